"""``checkpoints RUN deploy``: looked at before it is sent, sent once, and what came of it told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from engine.store import Store
from tests.cli.conftest import Call
from tests.loops_admin.keeps_checkpoints import KeepsCheckpoints
from tests.loops_admin.odd_server import Answer, OddServer
from tests.loops_admin.remote_run import NAME, RUN, remote, remote_answer


def test_a_dry_run_shows_the_request_and_sends_nothing(call: Call, store: Store) -> None:
    said = call("checkpoints", RUN, "deploy", NAME, "--dry-run", "--json", "--instance-type", "local").value
    assert said["url"].endswith("/v1/loops/checkpoints/deploy")
    (checkpoint_id,) = said["body"]["checkpoint_ids"]
    assert checkpoint_id.startswith("ckpt-")
    assert said["body"]["instance_type_id"] == "local"
    assert said["body"]["hf_secret_name"] == "hf_access_token"
    assert said["body"]["model_name"] == "demo"


def test_this_machine_deploys_nothing(call: Call, store: Store) -> None:
    said = call("checkpoints", RUN, "deploy", NAME, "--instance-type", "local")
    assert said.status == 1
    assert f"loops-tui try {RUN}@{NAME}" in said.err


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


@pytest.mark.parametrize(
    "mistake",
    [
        (("--instance-type", "h100"), "there is no instance type 'h100' (did you mean 'H100:1'?)"),
        (("--instance-type", "H100:1", "--name", "my run"), "a model name is at most 100 letters"),
        (("--instance-type", "H100:1", "--secret", "hf token"), "a secret name is at most 100 letters"),
    ],
)
def test_what_cannot_be_deployed_is_not_sent(
    call: Call,
    store: Store,
    odd: OddServer,
    monkeypatch: pytest.MonkeyPatch,
    mistake: tuple[tuple[str, ...], str],
) -> None:
    options, said = mistake
    run_id = remote(store, odd, monkeypatch)
    odd.answer = remote_answer(Answer.of({"model_id": "m1", "deployment_id": "d1"}))
    for dry in ((), ("--dry-run",)):
        answer = call("checkpoints", run_id, "deploy", NAME, *options, *dry)
        assert (answer.status, said in answer.err) == (2, True)
        assert len(answer.err.splitlines()) == 1
    assert {asked.method for asked in odd.asked} <= {"GET"}


def test_a_checkpoint_that_is_gone_is_not_used(
    call: Call, store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_id = remote(store, odd, monkeypatch)
    odd.answer = KeepsCheckpoints()
    for arguments in (
        ("checkpoints", run_id, "download", NAME, str(tmp_path / "d")),
        ("checkpoints", run_id, "deploy", NAME, "--instance-type", "H100:1"),
    ):
        said = call(*arguments)
        assert (said.status, f"no longer has {NAME} of run {run_id}" in said.err) == (2, True)
        assert len(said.err.splitlines()) == 1
    assert {asked.method for asked in odd.asked} == {"GET"}
    assert not (tmp_path / "d").exists()


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
