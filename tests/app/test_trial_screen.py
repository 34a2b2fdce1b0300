"""Trying weights from the Checkpoints screen: what is asked of the engine, what is shown, and that it is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hosting.trying import TrialSampling
from loops_tui.loops_ports import ActFailed
from loops_tui.screens.checkpoints import CheckpointsScreen
from loops_tui.screens.trial import TrialScreen
from loops_tui.widgets.form import Form
from tests.app.conftest import SIZES, FakeHosting, make_app, screen_text, until, until_shown, until_told
from tests.app.test_checkpoints_screen import open_checkpoints, saved
from tools.sample_checkpoints import DONE

__all__ = ["saved"]


@pytest.mark.parametrize("size", SIZES)
async def test_talking_to_a_checkpoint(saved: Path, size: tuple[int, int]) -> None:
    hosting = FakeHosting()
    hosting.loops.says = "Sampler sampler-1: on this machine, at no cost"
    app = make_app(saved, hosting)
    async with app.run_test(size=size) as pilot:
        await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Form), "the form")
        await pilot.press("enter", "enter", *"Be brief", "enter")
        await until_shown(pilot, app, "Try step-000020", "sampler-1", "sampled as the config says")
        await pilot.press(*"hello", "enter")
        await until_shown(pilot, app, "you said hello", "4 tokens after 12, cut off")
        await pilot.press(*"call", "enter")
        await until_shown(
            pilot, app, '→ (no name) {"name": "shell"', "malformed: it is no JSON", "19 tokens after 21"
        )
        assert "(nothing)" not in screen_text(app)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: isinstance(app.screen, Form), "the sampling's form")
        await pilot.press(*"hot", "enter", "enter", "enter", "enter")
        await until_shown(pilot, app, "Temperature must be a number")
        await pilot.press(*["backspace"] * 3, *"0.5", "enter", "enter", "enter", *"7", "enter")
        await until_shown(pilot, app, "temperature 0.5, seed 7")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: ("forget",) in hosting.loops.asked, "a new conversation")
        await until(pilot, lambda: "you said" not in screen_text(app), "nothing said any more")
        trial = app.screen
        hosting.loops.goes.clear()  # a release takes longer than the screen lives
        await pilot.press("escape")
        await until(pilot, lambda: not trial.is_attached, "the screen is gone")
        hosting.loops.goes.set()
        await until_told(pilot, app, "Sampler sampler-1 is released")
        assert isinstance(app.screen, CheckpointsScreen)
        assert hosting.loops.asked == [
            ("try", DONE, "step-000020", "Be brief", False),
            ("say", "hello"),
            ("say", "call"),
            ("use", TrialSampling(temperature=0.5, seed=7)),
            ("forget",),
            ("close",),
        ]


async def test_letting_the_base_model_attempt_tasks(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Form), "the form")
        await pilot.press(*"base", "enter", "3", "enter", "enter")
        await until_shown(pilot, app, "Try the base model", "task sums", "reward 0.50", "shell {}")
        await pilot.press(*"x", "enter")
        await until_told(pilot, app, "a task's number is wanted")
        await pilot.press("backspace", "0", "enter")
        await until(pilot, lambda: ("attempt", 0) in hosting.loops.asked, "another task")
        assert hosting.loops.asked[:2] == [("try", DONE, None, None, True), ("attempt", 3)]


async def test_a_sampler_that_cannot_be_started_is_said(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.loops.fail = ActFailed("Loops is not there")
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Form), "the form")
        await pilot.press("enter", "enter", "enter")
        await until_shown(pilot, app, "Loops is not there", "not started")


async def test_a_sampler_that_is_wanted_no_more_when_it_comes_is_released(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.loops.goes.clear()
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, Form), "the form")
        await pilot.press("enter", "enter", "enter")
        await until(
            pilot, lambda: isinstance(app.screen, TrialScreen) and bool(hosting.loops.asked), "it starts"
        )
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, CheckpointsScreen), "closed")
        hosting.loops.goes.set()
        await until(pilot, lambda: ("close",) in hosting.loops.asked, "the release")
