"""What the Run screen reads of a run that is taken up again while it is watched."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from engine.store.processes import hostname, process_started
from engine.store.resume import TakeUp
from engine.store.rows import HostRow, RunState, StepRow
from engine.store.store import Store
from loops_tui.screens.run_read import RunWatch, RunWish
from loops_tui.screens.run_text import header
from loops_tui.widgets.spans import text_of
from tools.sample_store import run_row

RUN = "20261129-143501-redo"


def a_host(name: str) -> HostRow:
    started = process_started(os.getpid()) or 0.0
    return HostRow(name, os.getpid(), started, hostname(), "app", time.time(), time.time())


def test_steps_that_are_done_again_are_read_again(tmp_path: Path) -> None:
    now = time.time()
    with Store.open(tmp_path) as store:
        store.create_run(run_row(RUN, "demo", RunState.RUNNING, tmp_path, max_steps=9))
        store.claim(RUN, a_host("first"))
        recorder = store.recorder(RUN, files=False)
        for step in (1, 2, 3):
            recorder.step(StepRow(RUN, step, "done", now - 1000, now - 900, step, {"reward/mean": 0.1}))
        recorder.run(step=3)
        recorder.flush_blocking()
        watch, reader = RunWatch(RUN), store.reader()
        assert [row.step for row in watch.read(reader, RunWish()).steps] == [1, 2, 3]

        store.end_run(RUN, "first", RunState.FAILED, "the server ended")
        info = {"resumed": [{"at": now - 10, "step": 2, "checkpoint": "step-000002", "was": "failed"}]}
        store.take_up(a_host("second"), TakeUp(RUN, "first", 2, 0, {"info": info}))
        recorder = store.recorder(RUN, files=False)
        recorder.step(StepRow(RUN, 3, "collecting", now - 5, None, None, {}))
        recorder.run(state=RunState.RUNNING, phase="sampling")
        recorder.flush_blocking()
        view = watch.read(reader, RunWish())
        assert [(row.step, row.state) for row in view.steps] == [(1, "done"), (2, "done"), (3, "collecting")]
        assert view.phase_since == pytest.approx(now - 5)
        assert "sampling 5s" in text_of(header(view, [], 118)[0])

        recorder.step(StepRow(RUN, 3, "done", now - 5, now, 3, {"reward/mean": 0.9}))
        recorder.flush_blocking()
        assert [row.metrics["reward/mean"] for row in watch.read(reader, RunWish()).steps] == [0.1, 0.1, 0.9]


def test_a_phase_that_comes_again_in_each_step_has_not_lasted_since_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    with Store.open(tmp_path) as store:
        store.create_run(run_row(RUN, "demo", RunState.RUNNING, tmp_path, max_steps=99))
        store.claim(RUN, a_host("first"))
        recorder = store.recorder(RUN, files=False)
        watch, reader = RunWatch(RUN), store.reader()
        watch.read(reader, RunWish())
        for step in range(1, 5):  # the watch never looks while it samples
            clock[0] += 10
            recorder.run(step=step, phase="publishing")
            recorder.flush_blocking()
            assert watch.read(reader, RunWish()).phase_since == clock[0]
