"""The library in a program of its own: next to another event loop, leaving logging and signals alone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.project import load
from engine.recipes.contract import Outcome
from engine.recipes.control import RunControl
from engine.store.rows import RunState

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/in_process_direct/train.toml"
SMALL = {"training.max_steps": 1, "training.group_size": 8}

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")


def test_a_project_tells_what_it_was_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBRARY_TEST_WORD", raising=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # a .env file sets variables of the process
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("train.toml", "tasks.jsonl", "direct_episode.py"):
        (shared / name).write_text((ROOT / "examples/in_process_direct" / name).read_text())
    (shared / "mine.env").write_text("LIBRARY_TEST_WORD=hello\n")
    (shared / ".env").write_text("LIBRARY_TEST_WORD=never read: only the commands read it by themselves\n")
    here = tmp_path / "here"
    here.mkdir()
    (here / "train.toml").symlink_to(shared / "train.toml")
    monkeypatch.chdir(here)
    project = load("train.toml", env_file="mine.env", overrides={"training.max_steps": 3})
    try:
        assert (project.path, project.source) == (here / "train.toml", shared / "train.toml")
        assert project.config.training.max_steps == 3
        assert project.environ["LIBRARY_TEST_WORD"] == "hello"
        assert project.describe() == [
            f"Config: {here / 'train.toml'} -> {shared / 'train.toml'}",
            f"  paths, modules: beside {shared}",
            f"  .env: {shared / 'mine.env'}",
            f"  runs: {here / 'runs' / 'shared'}",
            "  overrides: training.max_steps = 3",
        ]
        assert project.tasks()
    finally:
        project.close()


async def test_training_in_a_thread_beside_a_loop_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASETEN_LOOPS_SCOPE", raising=False)
    handlers, level = list(logging.root.handlers), logging.root.level
    chosen = logging.getLogger("baseten.loops")
    monkeypatch.setattr(chosen, "level", logging.WARNING)  # by the program, and no business of the engine's
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    seen: list[object] = []

    async def check_and_train() -> Outcome:
        project = load(EXAMPLE, overrides=SMALL, working_dir=tmp_path)
        try:
            report = await project.check()
            assert report.ok, report.describe()
            return await project.train()
        finally:
            seen.append({number: signal.getsignal(number) for number in signals})
            project.close()

    ticks = 0
    training = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(check_and_train())))
    while not training.done():
        ticks += 1
        await asyncio.wait({training}, timeout=0.01)
    outcome = await training
    assert (outcome.state, outcome.steps) == (RunState.DONE, 1)
    assert outcome.reward_first is not None
    assert ticks > 10  # this loop was not held up
    assert (list(logging.root.handlers), logging.root.level) == (handlers, level)
    assert chosen.level == logging.WARNING
    assert seen == [signals]


def test_a_run_is_stopped_from_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BASETEN_LOOPS_SCOPE", raising=False)
    control, outcomes = RunControl(), []
    many = {**SMALL, "training.max_steps": 100_000, "training.max_consecutive_unusable_groups": 100_000}

    def train() -> None:
        project = load(EXAMPLE, overrides=many, working_dir=tmp_path)
        try:
            outcomes.append(asyncio.run(project.train(control=control)))
        finally:
            project.close()

    training = threading.Thread(target=train)
    training.start()
    control.stop_after_step("enough")
    training.join(90)
    assert [outcome.state for outcome in outcomes] == [RunState.STOPPED]


def test_the_example_runs(tmp_path: Path) -> None:
    script = ROOT / "examples" / "library" / "train_from_python.py"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    environ.pop("BASETEN_LOOPS_SCOPE", None)
    done = subprocess.run(
        [sys.executable, str(script), "--steps", "2", "--until", "2"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nothing of the engine's is logged where the program wants no log
    assert "no sandbox or Loops trainer launched" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("done after 2 steps: ")
