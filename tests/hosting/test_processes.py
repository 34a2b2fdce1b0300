"""Signals, killed hosts and detached runs, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.hosting.detach import DetachFailed, detach_run
from engine.store import Store
from engine.store.processes import process_started
from engine.store.rows import RunState
from tests.hosting.stand_ins import make_project

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project_dir(tmp_path: Path) -> Path:
    make_project(tmp_path).close()
    return tmp_path


class Driven:
    """A headless run in another process."""

    def __init__(self, project_dir: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hosting.driver", str(project_dir), *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def claimed(self) -> str:
        word, run_id = self.line().split()
        assert word == "claimed"
        return run_id


@pytest.fixture
def started() -> Iterator[list[Driven]]:
    driven: list[Driven] = []
    yield driven
    for one in driven:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def wait_until(store: Store, run_id: str, holds: Callable[[RunState], bool]) -> None:
    reader, bound = store.reader(), time.monotonic() + 60
    while not holds(state := reader.run(run_id).state):
        assert time.monotonic() < bound, f"the run is {state} for good"
        time.sleep(0.01)


def wait_running(store: Store, run_id: str) -> None:
    wait_until(store, run_id, lambda state: state is RunState.RUNNING)


@pytest.mark.parametrize(
    ("number", "status", "name"), [(signal.SIGINT, 130, "ctrl+c"), (signal.SIGTERM, 143, "SIGTERM"), (signal.SIGHUP, 129, "SIGHUP")]
)  # fmt: skip
def test_the_first_signal_drains(
    project_dir: Path, started: list[Driven], number: int, status: int, name: str
) -> None:
    driven = Driven(project_dir, "obedient")
    started.append(driven)
    run_id = driven.claimed()
    with Store.open(project_dir) as store:
        wait_running(store, run_id)
        driven.process.send_signal(number)
        assert driven.line() == f"{name}: stopping after the step in hand; once more to abort"
        assert driven.process.wait(60) == status
        run = store.reader().run(run_id)
        assert (run.state, run.step) == (RunState.STOPPED, 1)


def test_the_second_signal_aborts(project_dir: Path, started: list[Driven]) -> None:
    driven = Driven(project_dir, "stubborn")
    started.append(driven)
    run_id = driven.claimed()
    with Store.open(project_dir) as store:
        wait_running(store, run_id)
        driven.process.send_signal(signal.SIGINT)
        assert "once more to abort" in driven.line()
        driven.process.send_signal(signal.SIGTERM)
        assert driven.line().startswith("SIGTERM: aborting")
        assert driven.process.wait(60) == 130
        assert store.reader().run(run_id).state is RunState.ABORTED


@pytest.mark.parametrize("recipe", ["blocking", "computing"])
def test_signals_reach_a_run_that_blocks_its_loop(
    project_dir: Path, started: list[Driven], recipe: str
) -> None:
    driven = Driven(project_dir, recipe)
    started.append(driven)
    run_id = driven.claimed()
    assert driven.line() == recipe
    driven.process.send_signal(signal.SIGINT)
    assert driven.line() == "ctrl+c: stopping after the step in hand; once more to abort"
    driven.process.send_signal(signal.SIGINT)
    assert driven.line() == "ctrl+c: aborting, releasing what the run holds"
    driven.process.send_signal(signal.SIGINT)
    assert "ending the process" in driven.line()
    assert driven.process.wait(60) == 130
    with Store.open(project_dir) as store:
        run = store.reader().run(run_id)
    assert run.state is RunState.ABORTED
    assert run.error == "the process was ended by ctrl+c while it was blocked"


@pytest.mark.parametrize(("recipe", "status"), [("quick", 0), ("failing", 1)])
def test_statuses_without_signals(project_dir: Path, started: list[Driven], recipe: str, status: int) -> None:
    driven = Driven(project_dir, recipe)
    started.append(driven)
    driven.claimed()
    assert driven.process.wait(60) == status


def test_a_killed_host_leaves_an_interrupted_run(project_dir: Path, started: list[Driven]) -> None:
    driven = Driven(project_dir, "stubborn")
    started.append(driven)
    run_id = driven.claimed()
    with Store.open(project_dir) as store:
        wait_running(store, run_id)
        driven.process.kill()
        driven.process.wait(60)
        assert store.reconcile() == [run_id]
        run = store.reader().run(run_id)
        assert run.state is RunState.INTERRUPTED
        assert run.error is not None
        assert f"process {driven.process.pid}" in run.error


_PARENT = """
import os, sys
from pathlib import Path
from engine.hosting import detach
detach.DETACHED = "tests.hosting.detached_driver"
print(detach.detach_run("direct/train.toml", ["training.max_steps=7"], Path(sys.argv[1])), flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_detached_run_outlives_its_parent(project_dir: Path) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", _PARENT, str(project_dir)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert parent.returncode == -9
    run_id = parent.stdout.strip()
    with Store.open(project_dir) as store:
        wait_running(store, run_id)
        reader = store.reader()
        run = reader.run(run_id)
        assert run.max_steps == 7
        host = reader.host(run.host_id)
        assert host is not None
        assert host.kind == "detached"
        assert os.getsid(host.pid) == host.pid
        store.request(run_id, "stop")
        wait_until(store, run_id, lambda state: state.final)
        assert reader.run(run_id).state is RunState.STOPPED


_TAKEN_BACK = """
import os, signal, sys
from pathlib import Path
from engine.hosting import detach
detach.DETACHED = "tests.hosting.detached_driver"
read = detach._read_line
def interrupted(descriptor, deadline):
    os.kill(os.getpid(), signal.SIGINT)
    return read(descriptor, deadline)
detach._read_line = interrupted
begin = detach.subprocess.Popen
def started(*arguments, **options):
    process = begin(*arguments, **options)
    print(process.pid, flush=True)
    return process
detach.subprocess.Popen = started
try:
    detach.detach_run("direct/train.toml", [], Path(sys.argv[1]))
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_detached_run_that_is_taken_back_before_it_began_does_not_go_on(project_dir: Path) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", _TAKEN_BACK, str(project_dir)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert parent.returncode == 130
    pid = int(parent.stdout)
    bound = time.monotonic() + 60
    while process_started(pid) is not None:
        if time.monotonic() > bound:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError("the detached process goes on")
        time.sleep(0.01)
    if Store.exists(project_dir):
        with Store.open(project_dir) as store:
            assert [run for run in store.reader().runs(9) if not run.state.final] == []


def test_a_detached_run_that_cannot_begin_says_why(project_dir: Path) -> None:
    with pytest.raises(DetachFailed, match="there is no such file") as caught:
        detach_run("missing.toml", [], project_dir)
    assert caught.value.status == 2
