"""What a run may go on with, and what is refused because its curve would lie."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.checking.starting import check_start
from engine.config.report import CheckReport
from engine.hosting import runs_here
from engine.hosting.errors import HostingError, ResumeRefused
from engine.hosting.host import RunHost
from engine.hosting.resuming import load_resumed, require_resumable
from engine.hosting.runs_here import RunsHere
from engine.project import Project, load
from engine.store import Store
from engine.store.errors import StoreError
from engine.store.rows import LeaseState, RunRow, RunState
from tests.hosting.stand_ins import AddressOnly, make_project
from tests.hosting.two_steps import ended, kept, leave_lease, run_two_steps, two_steps

__all__ = ["ended", "kept"]


def resumed(run: RunRow, directory: Path, *overrides: str) -> tuple[list[str], list[str]]:
    """(what is told, what is warned of) about a resume with these overrides."""
    project, resumption = load_resumed(run.run_id, overrides, directory)
    project.close()
    return resumption.told, resumption.warnings


@pytest.mark.parametrize(
    "override",
    [
        "training.group_size=8",
        "training.groups_per_step=2",
        "training.seed=2",
        "training.loss=ppo",
        "model.lora_rank=4",
        "model.seed=7",
        "model.max_seq_len=128",
        "sampling.temperature=0.5",
        "sampling.max_tokens=16",
        "output.name=other",
    ],
)
def test_what_the_curve_depends_on_must_not_change(ended: RunRow, tmp_path: Path, override: str) -> None:
    key = override.partition("=")[0]
    with pytest.raises(HostingError) as refused:
        resumed(ended, tmp_path, override)
    assert f"{key} = " in str(refused.value)
    assert "(it was " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_may_change_is_told(ended: RunRow, tmp_path: Path) -> None:
    overrides = (
        "training.max_steps=40",
        "training.max_concurrent_rollouts=3",
        "runtime.config.agent_timeout_seconds=9.5",
        "output.checkpoint_every=5",
        "output.progress_every_seconds=60.0",
        "compute.keep_run=false",
        "budget.max_hours=2.0",
        "prices.trainer_hour=3.0",
    )
    told, warnings = resumed(ended, tmp_path, *overrides)
    assert sorted(sentence.partition(" = ")[0] for sentence in told) == sorted(
        override.partition("=")[0] for override in overrides
    )
    assert "training.max_steps = 40 (it was 16) from here on" in told
    assert warnings == []
    told, warnings = resumed(ended, tmp_path, "training.learning_rate=0.001")
    assert told == []
    assert warnings == [
        "training.learning_rate = 0.001 (it was 0.003) from here on: the curve is no longer one of equal steps"
    ]


def test_a_config_file_that_was_changed_is_told_of_and_does_not_count(ended: RunRow, tmp_path: Path) -> None:
    assert resumed(ended, tmp_path) == ([], [])
    config = tmp_path / "direct" / "train.toml"
    config.write_text(config.read_text().replace("group_size = 32", "group_size = 64"))
    ((sentence,), _) = resumed(ended, tmp_path)
    assert "training.group_size = 64 (it was 32) by now; the run goes on with the config it was" in sentence
    config.write_text("recipe =")
    ((sentence,), _) = resumed(ended, tmp_path)
    assert "can no longer be loaded" in sentence
    config.unlink()
    assert resumed(ended, tmp_path) == ([], [])


async def test_first_weights_that_are_gone_do_not_matter_any_more(ended: RunRow, tmp_path: Path) -> None:
    project = load("direct/train.toml", [f"model.from_checkpoint={ended.run_id}"], working_dir=tmp_path)
    second = await run_two_steps(project, tmp_path)
    project.close()
    with Store.open(tmp_path) as store:
        store.delete_run(ended.run_id)
    project, resumption = load_resumed(second.run_id, (), tmp_path)
    report = CheckReport()
    await check_start(project, report, None)
    assert report.ok
    third = RunHost(
        project, tmp_path, AddressOnly(tmp_path), kind="headless", train=two_steps, resumption=resumption
    )
    third.begin()
    row = await third.run()
    assert (row.state, row.step) == (RunState.STOPPED, 4)
    project.close()


def test_steps_must_be_left(ended: RunRow, tmp_path: Path) -> None:
    with pytest.raises(HostingError, match=r"all its 2 steps.*--set training\.max_steps=4"):
        resumed(ended, tmp_path, "training.max_steps=2")


def test_a_run_that_lives_is_refused(ended: RunRow, tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        recorder = store.recorder(ended.run_id, files=False)
        recorder.run(state=RunState.RUNNING)
        recorder.close()
    who = f"process {os.getpid()} on {socket.gethostname()} (headless)"
    with pytest.raises(ResumeRefused, match=re.escape(f"is running, in {who}; only a run that has ended")):
        resumed(ended, tmp_path)
    with pytest.raises(StoreError, match="there is no run 'nothing'"):
        load_resumed("nothing", (), tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(HostingError, match="has no runs yet"):
        load_resumed(ended.run_id, (), empty)


async def test_changed_tasks_and_another_model_are_refused(
    ended: RunRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, resumption = load_resumed(ended.run_id, (), tmp_path)
    await require_resumable(project, resumption, tmp_path)
    tasks = tmp_path / "direct" / "tasks.jsonl"
    text = tasks.read_text()
    tasks.write_text("\n" + json.dumps(json.loads(text), indent=None) + "\n\n")  # the same tasks
    await require_resumable(project, resumption, tmp_path)
    tasks.write_text(text.replace("instruction", "instruction ", 1))
    with pytest.raises(HostingError, match=r"cannot be resumed: the tasks in .* have changed"):
        await require_resumable(project, resumption, tmp_path)
    tasks.write_text(text)
    assert project.model_dir is not None
    model = tmp_path / "model"
    shutil.copytree(project.model_dir, model)
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    monkeypatch.setattr(Project, "model_dir", model)
    with pytest.raises(HostingError, match=r"the model in .* has changed"):
        await require_resumable(project, resumption, tmp_path)
    project.close()


async def test_what_sandboxes_it_left_is_released_first(
    ended: RunRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, resumption = load_resumed(ended.run_id, (), tmp_path)
    with Store.open(tmp_path) as store:
        leave_lease(store, ended, "local")
        await require_resumable(project, resumption, tmp_path)
        assert [row.state for row in store.reader().leases()] == [LeaseState.RELEASED]
        store.submit(lambda connection: connection.execute("DELETE FROM leases").rowcount).result(120)
        leave_lease(store, ended, "no-such-provider")
        with pytest.raises(HostingError, match=f"loops-tui cleanup {ended.run_id}"):
            await require_resumable(project, resumption, tmp_path)
    project.close()


async def test_secret_values_come_from_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")
    make_project(tmp_path).close()
    config = tmp_path / "direct" / "train.toml"
    text = config.read_text()
    config.write_text(
        f'{text}\n[runtime.config.sandbox]\nprovider = "local"\nenv = {{ TOKEN = "very-secret-value" }}\n'
    )
    project = load("direct/train.toml", working_dir=tmp_path)
    run = await run_two_steps(project, tmp_path)
    project.close()
    assert "very-secret-value" not in run.config_toml
    project, _ = load_resumed(run.run_id, (), tmp_path)
    project.close()
    sandbox = project.rl.runtime.config.sandbox
    assert sandbox is not None
    assert sandbox.env == {"TOKEN": "very-secret-value"}
    assert "very-secret-value" not in project.config_toml
    config.write_text(text)
    with pytest.raises(HostingError, match=r"runtime\.config\.sandbox\.env\.TOKEN was secret"):
        load_resumed(run.run_id, (), tmp_path)


async def test_a_json_config_goes_on_as_well(tmp_path: Path) -> None:
    import tomllib

    make_project(tmp_path).close()
    directory = tmp_path / "direct"
    table: dict[str, Any] = tomllib.loads((directory / "train.toml").read_text())
    (directory / "train.json").write_text(json.dumps(table))
    project = load("direct/train.json", working_dir=tmp_path)
    run = await run_two_steps(project, tmp_path)
    project.close()
    assert resumed(run, tmp_path, "training.max_steps=40") == (
        ["training.max_steps = 40 (it was 16) from here on"],
        [],
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def sound(*_: Any) -> None:
        return None

    monkeypatch.setattr(runs_here, "require_sound", sound)
    monkeypatch.setattr(runs_here, "LocalServer", AddressOnly)
    made = RunsHere(tmp_path, train=two_steps)
    yield made
    made.close()


def test_it_goes_on_under_its_own_id(ended: RunRow, tmp_path: Path, here: RunsHere) -> None:
    assert here.resume(ended.run_id[:-2], ["training.max_steps=40"]) == ended.run_id
    assert here.wait(60)
    with Store.open(tmp_path) as store:
        reader = store.reader()
        (run,) = reader.runs()
        assert [row.step for row in reader.steps(run.run_id)] == [1, 2, 3, 4]
    assert (run.run_dir, run.created_at) == (ended.run_dir, ended.created_at)
    assert (run.state, run.step, run.max_steps) == (RunState.STOPPED, 4, 40)
    assert (run.loops_run_id, run.info["loops_runs"]) == ("loops-2", ["loops-0"])
    ((sitting,),) = (run.info["resumed"],)
    assert (sitting["step"], sitting["checkpoint"], sitting["was"]) == (2, "step-000002", "stopped")
    directory = Path(run.run_dir)
    assert "max_steps = 40" in (directory / "config.toml").read_text()
    assert [json.loads(line)["step"] for line in (directory / "steps.jsonl").read_text().splitlines()] == [
        1,
        2,
        3,
        4,
    ]


def test_what_cannot_go_on_is_told_to_the_caller(
    ended: RunRow, here: RunsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[tuple[Callable[[], Any], str]] = [
        (lambda: here.resume("nothing"), "there is no run"),
        (lambda: here.resume(ended.run_id, ["training.seed=3"]), r"training\.seed = 3"),
        (lambda: here.hand_over(ended.run_id, 1.0), "does not live in this process"),
    ]
    for act, words in refusals:
        with pytest.raises((HostingError, StoreError), match=words):
            act()
    assert here.live() == []
