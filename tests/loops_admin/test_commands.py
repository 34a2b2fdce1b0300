"""``checkpoints``, ``deactivate``, ``runs --account`` and ``export`` against the project's own Loops server."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.hosting import checkpoints as hosted
from engine.hosting.local_server import LocalServer
from engine.hosting.loops_runs import local_server_use, still_billing
from engine.loops.session import LoopsSession, SessionSettings
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, RunState, StepRow
from tests.cli.conftest import Call, call, project_dir
from tests.loops_admin.odd_server import Answer, Asked, OddServer
from tests.store.conftest import make_host, make_run

__all__ = ["call", "project_dir"]

RUN = "20261129-143501-k3f9"
NAME = "step-000001"
DEMO = Path(hosted.__file__).parents[1] / "local_loops" / "models" / "loops-demo-1m"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A project directory whose server has a Loops run with one checkpoint; (directory, Loops run id)."""
    directory = tmp_path_factory.mktemp("project")
    server = LocalServer(directory)
    address = server.start()

    async def save() -> str:
        session = await LoopsSession.start(
            SessionSettings(base_model=str(DEMO), lora_rank=4, name=f"demo-{RUN}"),
            url=address.url,
            api_key=address.key,
        )
        await (await session.save(NAME)).paths()
        await session.close()
        return session.loops_run_id

    yield directory, asyncio.run(save())
    server.close()


@pytest.fixture
def store(made: tuple[Path, str], call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    directory, loops_run_id = made
    monkeypatch.chdir(directory)
    monkeypatch.delenv("BASETEN_API_KEY", raising=False)
    with Store.open(directory) as opened:
        if opened.reader().get_run(RUN) is None:
            opened.create_run(make_run(directory, RUN, loops_run_id=loops_run_id, step=1, scope="local"))
            opened.claim(RUN, make_host())
            recorder = opened.recorder(RUN)
            recorder.step(StepRow(RUN, 1, "done", 1.0, 2.0))
            recorder.checkpoint(
                CheckpointRow(
                    run_id=RUN,
                    name=NAME,
                    step=1,
                    state=CheckpointState.SAVED,
                    why="every",
                    created_at=1.0,
                    saved_at=2.0,
                    loops_run_id=loops_run_id,
                    trainer_path=f"bt://loops:{loops_run_id}/weights/{NAME}",
                    sampler_path=f"bt://loops:{loops_run_id}/sampler_weights/{NAME}",
                    reward_mean=0.5,
                )
            )
            recorder.flush_blocking()
            opened.end_run(RUN, "host-1", RunState.DONE, None)
        yield opened


# -- checkpoints ---------------------------------------------------------------------------------------------------


def test_checkpoints_are_listed(call: Call, store: Store) -> None:
    said = call("checkpoints", RUN, "--refresh")
    header, line = said.out.splitlines()
    assert header.split() == ["NAME", "STEP", "STATE", "HOLDS", "REWARD", "SIZE", "SAVED", "AGE"]
    assert line.split()[:5] == [NAME, "1", "saved", "trainer+sampler", "0.500"]
    assert "KiB" in line
    (value,) = call("checkpoints", RUN, "--json").value
    assert value["size_bytes"] > 0
    assert value["sampler_path"].endswith(f"/sampler_weights/{NAME}")


def test_a_checkpoint_that_loops_no_longer_has_is_told_of(call: Call, store: Store) -> None:
    recorder = store.recorder(RUN)
    gone = CheckpointRow(RUN, "step-000009", 9, CheckpointState.SAVED, "asked", 1.0, loops_run_id="run-none")
    gone.sampler_path = "bt://loops:run-none/sampler_weights/step-000009"
    recorder.checkpoint(gone)
    recorder.flush_blocking()
    values = {row["name"]: row for row in call("checkpoints", RUN, "--refresh", "--json").value}
    assert values["step-000009"]["state"] == "deleted"
    assert values[NAME]["state"] == "saved"


def test_a_download_arrives_and_is_not_repeated(call: Call, store: Store, tmp_path: Path) -> None:
    said = call("checkpoints", RUN, "download", "last", str(tmp_path / "d"))
    assert (said.status, said.out.strip()) == (0, str(tmp_path / "d"))
    assert (tmp_path / "d" / "adapter_model.safetensors").stat().st_size > 0
    about = json.loads((tmp_path / "d" / "checkpoint.json").read_text())
    assert (about["run"], about["name"], about["step"], about["part"]) == (RUN, NAME, 1, "sampler")
    again = call("checkpoints", RUN, "download", NAME, str(tmp_path / "d"), "--json").value
    assert again["fetched_bytes"] == 0
    other = call("checkpoints", RUN, "download", "1", str(tmp_path / "d"), "--part", "trainer")
    assert (other.status, "holds another checkpoint" in other.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("download", "step-000007", "d"), "there are step-000001"),
        (("download", NAME), "say which and where"),
        (("download", NAME, "d", "--part", "all"), "--part is sampler or trainer"),
        (("deploy",), "say which"),
        (("upload",), "is no action of checkpoints"),
        (("save",), "has ended already (done)"),
    ],
)
def test_mistakes_end_in_one_sentence(
    call: Call, store: Store, arguments: tuple[str, ...], said: str
) -> None:
    answer = call("checkpoints", RUN, *arguments)
    assert answer.status in (1, 2)
    assert said in answer.err
    assert "Traceback" not in answer.err


# -- deploy --------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_request_and_sends_nothing(call: Call, store: Store) -> None:
    said = call("checkpoints", RUN, "deploy", NAME, "--dry-run", "--json", "--instance-type", "H100:1").value
    assert said["url"].endswith("/v1/loops/checkpoints/deploy")
    (checkpoint_id,) = said["body"]["checkpoint_ids"]
    assert checkpoint_id.startswith("ckpt-")
    assert said["body"]["instance_type_id"] == "H100:1"
    assert said["body"]["hf_secret_name"] == "hf_access_token"
    assert said["body"]["model_name"] == "demo"


def test_this_machine_deploys_nothing(call: Call, store: Store) -> None:
    said = call("checkpoints", RUN, "deploy", NAME, "--instance-type", "local")
    assert said.status == 1
    assert f"loops-tui try {RUN}@{NAME}" in said.err


def remote(store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A second run, on the odd server, whose checkpoint can be deployed; its id."""
    run_id = "20261129-150000-rrrr"
    monkeypatch.setenv("BASETEN_API_KEY", "secret-key-value")
    if store.reader().get_run(run_id) is None:
        directory = store.project_dir
        store.create_run(make_run(directory, run_id, loops_run_id="r9", scope="dedicated", step=1))
        store.claim(run_id, make_host())
        store.end_run(run_id, "host-1", RunState.DONE, None)
    recorder = store.recorder(run_id)
    recorder.run(loops_url=odd.url, loops_state="ACTIVE", loops_since=100.0, loops_until=None)
    point = CheckpointRow(run_id, NAME, 1, CheckpointState.SAVED, "end", 1.0, loops_run_id="r9")
    point.sampler_path = f"bt://loops:r9/sampler_weights/{NAME}"
    recorder.checkpoint(point)
    recorder.flush_blocking()
    return run_id


def remote_answer(deploy: Answer) -> Any:
    checkpoint = {
        "id": "c9",
        "run_id": "r9",
        "checkpoint_id": NAME,
        "checkpoint_type": "lora",
        "created_at": "2026-11-29T10:00:00+00:00",
        "base_model": "m",
        "lora_adapter_config": {"r": 4},
        "size_bytes": 10,
        "target": "sampler",
    }
    kind = {
        "id": "H100:1",
        "name": "one H100",
        "memory_limit_mib": 1,
        "millicpu_limit": 1,
        "gpu_count": 1,
        "gpu_type": "H100",
        "gpu_memory_limit_mib": 1,
    }

    def answer(asked: Asked) -> Answer:
        if asked.path.startswith("/v1/instance_types"):
            return Answer.of({"instance_types": [kind]})
        return deploy if asked.method == "POST" else Answer.of({"checkpoints": [checkpoint]})

    return answer


def test_a_deployment_is_made_once_and_its_choice_remembered(
    call: Call, store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = remote(store, odd, monkeypatch)
    odd.answer = remote_answer(Answer.of({"model_id": "m1", "deployment_id": "d1"}))
    missing = call("checkpoints", run_id, "deploy", NAME)
    assert (missing.status, "H100:1 (1 x H100)" in missing.err) == (2, True)
    options = ("--name", "mine", "--instance-type", "H100:1", "--secret", "hf")
    said = call("checkpoints", run_id, "deploy", NAME, "--json", *options)
    assert said.value == {"run": run_id, "checkpoint": NAME, "model_id": "m1", "deployment_id": "d1"}
    assert [asked.method for asked in odd.asked].count("POST") == 1
    again = call("checkpoints", run_id, "deploy", NAME, "--dry-run", "--json").value
    assert again["body"] == {
        "checkpoint_ids": ["c9"],
        "model_name": "mine",
        "instance_type_id": "H100:1",
        "hf_secret_name": "hf",
    }
    log = [row.text for row in store.reader().log(run_id)]
    assert any("model m1, deployment d1" in line for line in log)
    kept = (store.project_dir / ".loops" / "deployments.json").read_text()
    assert "secret-key-value" not in kept + str(log) + said.err


def test_a_person_is_asked_for_what_is_missing_and_for_a_yes(
    call: Call, store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = remote(store, odd, monkeypatch)
    odd.answer = remote_answer(Answer.of({"model_id": "m1", "deployment_id": "d1"}))
    monkeypatch.setattr("loops_tui.commands.checkpoints.person_there", lambda _: True)
    for answer, posts, status in (("n", 0, 3), ("y", 1, 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"typed\n\n{answer}\n"))
        said = call("checkpoints", run_id, "deploy", NAME, "--instance-type", "H100:1")
        assert said.status == status
        assert "Name of the model on Baseten" in said.err
        assert "Instance type" not in said.err
        assert "bills until you deactivate it" in said.err
        assert [asked.method for asked in odd.asked].count("POST") == posts
    assert odd.asked[-1].json["model_name"] == "typed"


def test_an_unknown_outcome_says_so_and_where_to_look(
    call: Call, store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = remote(store, odd, monkeypatch)
    odd.answer = remote_answer(Answer.of({"error": "gateway"}, 504))
    said = call("checkpoints", run_id, "deploy", NAME, "--name", "mine", "--instance-type", "H100:1")
    assert said.status == 1
    assert "is unknown" in said.err
    assert "https://app.baseten.co/models" in said.err
    assert [asked.method for asked in odd.asked].count("POST") == 1
    assert any("is unknown" in row.text for row in store.reader().log(run_id))


# -- deactivate ----------------------------------------------------------------------------------------------------


def test_what_still_bills_is_known_from_the_store(
    store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    run_id = remote(store, odd, monkeypatch)
    (billing,) = still_billing(store.reader())
    assert (billing.run_id, billing.loops_run_id, billing.since, billing.live) == (run_id, "r9", 100.0, False)
    assert f"loops-tui deactivate {run_id}" in call("runs").err
    use = local_server_use(store.project_dir)
    assert use is not None
    assert (use.memory_bytes or 0) > 1_000_000


def test_the_account_s_runs_are_listed_and_known_ones_recognised(
    call: Call, store: Store, made: tuple[Path, str]
) -> None:
    (run,) = [run for run in call("runs", "--account", "--json").value if run["id"] == made[1]]
    assert (run["run"], run["where"], run["name"]) == (RUN, "local", f"demo-{RUN}")
    assert made[1] in call("runs", "--account").out


def test_a_wrong_key_is_one_sentence(
    call: Call, store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = remote(store, odd, monkeypatch)
    odd.answer = lambda _: Answer.of({"error": "Invalid API key"}, 401)
    said = call("deactivate", run_id)
    assert said.status == 1
    assert "refused the API key" in said.err
    assert "may still bill" in said.err
    assert "secret-key-value" not in said.err
    monkeypatch.delenv("BASETEN_API_KEY")
    said = call("deactivate", run_id)
    assert (said.status, "BASETEN_API_KEY is not set" in said.err) == (1, True)


def test_a_live_run_goes_on_where_its_loops_run_cannot_be_ended(
    call: Call, store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASETEN_API_KEY", "secret-key-value")
    monkeypatch.setenv("LOOPS_BASE_URL", odd.url)
    odd.answer = lambda _: Answer.of({"error": "Invalid API key"}, 401)
    run_id = "20261129-170000-dear"
    store.create_run(make_run(store.project_dir, run_id, scope="dedicated", loops_run_id="run-1"))
    store.claim(run_id, make_host("careful"), RunState.RUNNING)
    said = call("deactivate", run_id)
    assert (said.status, "refused the API key" in said.err, "goes on" in said.err) == (1, True, True)
    assert store.reader().commands(run_id) == []
    store.end_run(run_id, "careful", RunState.STOPPED, None)


def loops_run(store: Store, name: str) -> str:
    """A Loops run of this name on the project's own server; its id."""
    server = LocalServer(store.project_dir)
    address = server.start()

    async def begin() -> str:
        session = await LoopsSession.start(
            SessionSettings(base_model=str(DEMO), lora_rank=4, name=name),
            url=address.url,
            api_key=address.key,
        )
        await session.close()
        return session.loops_run_id

    try:
        return asyncio.run(begin())
    finally:
        server.close()


def test_a_run_is_deactivated_by_id_directory_and_loops_id(
    call: Call, store: Store, made: tuple[Path, str]
) -> None:
    run = store.reader().run(RUN)
    # What a process left up that was killed while Loops provisioned: nobody was told its id.
    left = loops_run(store, f"{run.name}-{RUN}")
    first = call("deactivate", run.run_dir)
    assert (first.status, first.out.split()) == (0, [made[1], left])
    assert f"{made[1]} is INACTIVE" in first.err
    row = store.reader().run(RUN)
    assert (row.loops_state, row.loops_until is not None) == ("INACTIVE", True)
    for ref in (RUN, made[1]):
        value = call("deactivate", ref, "--json").value
        assert value["run"] == RUN
        assert [one["state"] for one in value["loops_runs"]] == ["INACTIVE"]
        assert value["loops_runs"][0]["was_active"] is False
    assert store.reader().run(RUN).loops_until == row.loops_until


def test_a_person_is_asked_before_a_live_run_ends(
    call: Call, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = "20261129-160000-live"
    store.create_run(make_run(store.project_dir, run_id))
    store.claim(run_id, make_host("alive"), RunState.RUNNING)
    monkeypatch.setattr("loops_tui.commands.deactivate.person_there", lambda _: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    said = call("deactivate", run_id)
    assert (said.status, "It ends now" in said.err, "nothing was deactivated" in said.err) == (3, True, True)
    assert store.reader().run(run_id).state is RunState.RUNNING
    assert store.reader().commands(run_id) == []
    store.end_run(run_id, "alive", RunState.STOPPED, None)


def test_a_run_that_this_project_does_not_know_is_deactivated_by_its_loops_id(
    call: Call, store: Store
) -> None:
    stranger = loops_run(store, "somebody else's")
    said = call("deactivate", stranger, "--json").value
    assert said == {"run": None, "loops_runs": [{**said["loops_runs"][0], "was_active": True, "error": None}]}
    unknown = call("deactivate", "run-0000000000")
    assert unknown.status == 2
    assert "Loops knows no run of that id either" in unknown.err


# -- export --------------------------------------------------------------------------------------------------------


def test_a_run_s_directory_is_rebuilt(call: Call, store: Store, tmp_path: Path) -> None:
    said = call("export", RUN, str(tmp_path / "copy"))
    assert (said.status, said.out.strip()) == (0, str(tmp_path / "copy"))
    assert json.loads((tmp_path / "copy" / "run.json").read_text())["run_id"] == RUN
    assert (tmp_path / "copy" / "steps.jsonl").read_text().count("\n") == 1
    assert call("export", RUN, str(tmp_path / "copy")).status == 0  # its own earlier export
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    refused = call("export", RUN, str(tmp_path / "other"))
    assert (refused.status, "holds other files" in refused.err) == (2, True)
    own = Path(store.reader().run(RUN).run_dir)
    (own / "run.json").unlink()
    assert call("export", RUN).status == 0
    assert (own / "run.json").is_file()
