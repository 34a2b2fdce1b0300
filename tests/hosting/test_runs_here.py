"""Runs beside a screen: the engine's own loop and thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config.problems import ConfigError
from engine.hosting.engine_loop import EngineLoop
from engine.hosting.errors import HostingError
from engine.hosting.runs_here import RunsHere
from engine.store import Store
from engine.store.rows import RunState
from tests.hosting.stand_ins import AddressOnly, make_project, obedient, stubborn


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], RunsHere]]:
    async def sound(*_: Any) -> None:
        return None

    monkeypatch.setattr("engine.hosting.runs_here.require_sound", sound)
    monkeypatch.setattr("engine.hosting.runs_here.LocalServer", AddressOnly)
    make_project(tmp_path).close()
    made: list[RunsHere] = []

    def make(recipe: Any) -> RunsHere:
        made.append(RunsHere(tmp_path, train=recipe))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_runs_begin_live_and_stop(here: Callable[[Any], RunsHere], tmp_path: Path) -> None:
    runs = here(obedient)
    first, second = (runs.start("direct/train.toml", ["training.max_steps=9"]) for _ in range(2))
    assert sorted(runs.live()) == sorted([first, second])
    assert not runs.wait(0.0)
    runs.stop()
    assert runs.wait(60)
    assert runs.live() == []
    with Store.open(tmp_path) as store:
        reader = store.reader()
        assert {reader.run(run_id).state for run_id in (first, second)} == {RunState.STOPPED}
        assert reader.last_log(first, 1)[0].text == f"Run {first} stopped (asked for by app)"
        host = reader.host(reader.run(first).host_id)
        assert host is not None
        assert host.kind == "app"


def test_abort_and_close(here: Callable[[Any], RunsHere], tmp_path: Path) -> None:
    runs = here(stubborn)
    aborted = runs.start("direct/train.toml")
    runs.abort()
    assert runs.wait(60)
    cut_off = runs.start("direct/train.toml")
    runs.close()
    with Store.open(tmp_path) as store:
        reader = store.reader()
        assert reader.run(aborted).state is RunState.ABORTED
        assert reader.run(cut_off).state is RunState.ABORTED
    with pytest.raises(HostingError, match="closed"):
        runs.start("direct/train.toml")


def test_what_cannot_begin_is_told_to_the_caller(here: Callable[[Any], RunsHere]) -> None:
    runs = here(obedient)
    with pytest.raises(ConfigError, match="no such file"):
        runs.start("missing.toml")
    with pytest.raises(ConfigError, match="max_stepz"):
        runs.start("direct/train.toml", ["training.max_stepz=9"])
    assert runs.live() == []


def test_the_loop_is_in_a_thread_of_its_own() -> None:
    loop = EngineLoop()

    async def where() -> str:
        return threading.current_thread().name

    assert loop.submit(where()).result(120) == "engine"
    assert loop.close()
    assert loop.close()
    with pytest.raises(HostingError):
        loop.submit(where())


def test_closing_lets_tasks_clean_up() -> None:
    loop = EngineLoop()
    begun, cleaned = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    loop.submit(work())
    assert begun.wait(120)
    assert loop.close()
    assert cleaned.is_set()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_the_loop_outlives_code_that_ends_the_process(error: BaseException) -> None:
    loop = EngineLoop()

    async def leave() -> None:
        raise error

    async def leave_beside() -> None:
        await asyncio.wait({asyncio.ensure_future(leave())})

    async def stay() -> str:
        return "here"

    with pytest.raises(HostingError, match="tried to end the process"):
        loop.submit(leave()).result(120)
    loop.submit(leave_beside()).result(120)
    assert loop.submit(stay()).result(120) == "here"
    assert loop.close()
