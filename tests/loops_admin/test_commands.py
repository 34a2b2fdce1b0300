"""``checkpoints``, ``deactivate``, ``runs --account`` and ``export`` against the project's own Loops server."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from engine.hosting.local_server import LocalServer
from engine.loops.session import LoopsSession, SessionSettings
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, RunState
from tests.cli.conftest import Call
from tests.loops_admin.conftest import DEMO
from tests.loops_admin.odd_server import Answer, OddServer
from tests.loops_admin.remote_run import NAME, RUN, remote
from tests.store.conftest import make_host, make_run

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
    assert answer.status == (1 if arguments == ("save",) else 2)
    assert said in answer.err
    assert "Traceback" not in answer.err


# -- deactivate ----------------------------------------------------------------------------------------------------


def test_what_still_bills_is_known_from_the_store(
    store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    run_id = remote(store, odd, monkeypatch)
    assert f"loops-tui deactivate {run_id}" in call("runs").err


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
