"""Two attempts of one group side by side, and where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.store.rows import AttemptRow, AttemptState, TranscriptRow
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.screens.attempt_facts import nothing_lines
from loops_tui.screens.attempt_pair import AttemptPairScreen, difference_line
from loops_tui.screens.attempt_pair_read import PairView, first_difference
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.screens.transcript_read import TranscriptView, Want
from loops_tui.screens.transcript_text import lay_out
from loops_tui.widgets.spans import text_of, width_of
from tests.app.conftest import LIVE, make_app, screen_text, until, until_shown

GROUP = 120  # all of its attempts but the fourth have scored


def view_of(turns: list[dict[str, Any]]) -> TranscriptView:
    transcript = TranscriptRow("r", 0, 0, "t", 1.0, "x", turns)
    return TranscriptView(
        Want(0, 0, 60, "text"), None, [], None, transcript, lay_out(transcript, None, 60, "text")
    )


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def test_the_first_difference_is_a_turn_and_a_line_of_it() -> None:
    left = view_of([said("user", "hello"), said("assistant", "one\ntwo\nthree"), said("user", "x")])
    right = view_of([said("user", "hello"), said("assistant", "one\ntwo\n3"), said("user", "y")])
    found = first_difference(left, right)
    assert found is not None
    assert (found.turn, found.role, found.ended) == (1, "assistant", "")
    assert left.layout is not None
    assert right.layout is not None
    assert text_of(left.layout.lines[found.lines[0]]).strip() == "three"
    assert text_of(right.layout.lines[found.lines[1]]).strip() == "3"


def test_one_ends_before_the_other_and_two_are_the_same() -> None:
    short, long = view_of([said("user", "a")]), view_of([said("user", "a"), said("assistant", "b")])
    found = first_difference(short, long)
    assert found is not None
    assert (found.turn, found.role, found.ended) == (1, "assistant", "left")
    assert first_difference(long, long) is None


def test_an_attempt_that_was_not_kept_differs_in_nothing() -> None:
    nothing = TranscriptView(Want(0, 0, 60, "text"), None, [], None, None, None)
    assert first_difference(nothing, view_of([said("user", "a")])) is None


async def open_pair(pilot: Pilot[int], app: LoopsApp) -> AttemptPairScreen:
    await until_shown(pilot, app, "7 runs")
    app.push_screen(TranscriptScreen(LIVE, "tool_agent", GROUP, 3))
    await until_shown(pilot, app, "attempt 4 of 8, worst")
    await pilot.press("v")
    await until(pilot, lambda: isinstance(app.screen, AttemptPairScreen), "the pair opens")
    assert isinstance(app.screen, AttemptPairScreen)
    return app.screen


def test_an_attempt_at_work_is_not_said_to_have_no_transcript() -> None:
    at_work = AttemptRow("r", 0, 0, AttemptState.SAMPLING)
    view = TranscriptView(Want(0, 0, 60, "text"), None, [], at_work, None, None)
    words = text_of(difference_line(PairView(view, view, None)))
    assert words == " nothing to compare yet: they are not both at their end"
    told = [text_of(line) for line in nothing_lines(view)]
    assert told == ["", "Nothing said yet: the attempt is sampling."]
    lost = AttemptRow("r", 0, 0, AttemptState.LOST, turns=1, ended_at=1.0, error="it broke " * 20 + "at last")
    lines = nothing_lines(TranscriptView(Want(0, 0, 40, "text"), None, [], lost, None, None))
    assert max(width_of(line) for line in lines) <= 40
    told = " ".join(text_of(line) for line in lines)
    assert '"off" none.' in told
    assert told.endswith("at last")


async def test_side_by_side_with_the_best_one(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await open_pair(pilot, app)
        await until_shown(
            pilot, app, "#3 and #0", "they part in turn 5 (policy)", "attempt 4 of 8", "attempt 1 of 8"
        )
        await until_shown(pilot, app, "There are 17 lines.", "content: grep -c ERROR")
        await pilot.press("n")
        await until_shown(pilot, app, "#3 and #1")
        await pilot.press("p", "p")
        await until_shown(pilot, app, "#3 and #7")
        await pilot.press("x")
        await until_shown(pilot, app, "#7 and #3")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TranscriptScreen), "one alone")
        await until_shown(pilot, app, "attempt 8 of 8")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, TranscriptScreen), "back to where one came from")
        assert not screen.is_attached


@pytest.mark.parametrize("side", ["left", "right"])
async def test_both_scroll_together(project: Path, store: Store, side: str) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    for attempt in (0, 3):
        turns = [
            said("user", "\n".join(f"line {number}" for number in range(200))),
            said("assistant", str(attempt)),
        ]
        recorder.transcript(TranscriptRow(LIVE, GROUP, attempt, "t", 1.0, "x", turns))
    recorder.flush_blocking()
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await open_pair(pilot, app)
        await until_shown(pilot, app, "they part in turn 2 (policy)")
        panes = [screen._pane(name) for name in ("left", "right")]
        screen._pane(side).focus()
        await pilot.press("home")
        await until(pilot, lambda: [pane.scroll_offset.y for pane in panes] == [0, 0], "both at the top")
        await pilot.press("pagedown")
        await until(
            pilot, lambda: panes[0].scroll_offset.y == panes[1].scroll_offset.y > 0, "a page down, both"
        )
        await pilot.press("d")
        await until(pilot, lambda: panes[0].scroll_offset.y > 150, "where they part")


async def test_one_at_a_time_where_there_is_no_room(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_pair(pilot, app)
        await until_shown(pilot, app, "#3 and #0", "they part in turn 5", "attempt 4 of 8")
        assert "attempt 1 of 8" not in screen_text(app)
        await pilot.press("x")
        await until_shown(pilot, app, "attempt 1 of 8")
        assert "attempt 4 of 8" not in screen_text(app)
