"""The live run: figures, tables, tabs, updates that arrive while it is looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.store.queries import StoreReader
from engine.store.rows import AttemptState, CommandState, GroupRow, GroupState, RunState, StepRow
from engine.store.store import Store
from loops_tui.screens.run import RunScreen
from loops_tui.screens.run_read import RunView, RunWatch, RunWish
from loops_tui.screens.runs import RunsScreen
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import LIVE, SIZES, make_app, open_run, screen_text, until, until_shown

WIDE, NARROW = (120, 40), (80, 24)


@pytest.mark.parametrize("size", SIZES)
async def test_where_it_stands_at_a_glance(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await open_run(pilot, app)
        await until_shown(
            pilot, app, "● running", "sampling", "14/40", "28/64", "done 28", "grading 2", "queued 4"
        )
        curve = "first 0.15" if size == WIDE else "0.15 → 0.87"
        await until_shown(pilot, app, "Reward by step", curve, "Step 14", "KL sampler/trainer k3", "1 of 9")
        await until_shown(pilot, app, "waits for group 120, 1", "published policy v15", "tokens sampled")


async def test_wide_shows_everything_at_once(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(
            pilot, app, "Groups", "all alike", "Attempts of group 124 (newest)", "Reward by step", "Log"
        )
        assert "[Overview]" not in screen_text(app)


async def test_narrow_shows_it_in_tabs(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "[Overview]", "Reward by step")
        await pilot.press("right_square_bracket")
        await until_shown(pilot, app, "[Groups]", "split-config")
        assert "Reward by step" not in screen_text(app)
        await pilot.press("right_square_bracket")
        await until_shown(
            pilot, app, "[Attempts]", "Attempts of group 124 (newest)", "Attempt 0 of group 124"
        )
        await pilot.press("right_square_bracket")
        await until_shown(pilot, app, "[Log]", "local server ready")
        await pilot.press("right_square_bracket")
        await until_shown(pilot, app, "[Overview]")
        await pilot.press("left_square_bracket")
        await until_shown(pilot, app, "[Log]")


async def test_resizing_loses_nothing(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(200, 60)) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "Attempts of group 124", "Reward by step")
        await pilot.press("up", "up")
        await until_shown(pilot, app, "Attempts of group 122")
        await pilot.resize_terminal(80, 24)
        await until_shown(pilot, app, "[Overview]")
        await pilot.resize_terminal(200, 60)
        await until_shown(
            pilot, app, "Attempts of group 122", "Reward by step", "Step 14", "published policy v15"
        )


async def test_choosing_a_group_shows_its_attempts_and_f_follows_again(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "Attempts of group 124 (newest)")
        await pilot.press("up", "up", "up", "up")
        await until_shown(pilot, app, "Attempts of group 120", "◆ grading")
        await pilot.press("f")
        await until_shown(pilot, app, "Attempts of group 124 (newest)")


async def test_updates_arrive_from_the_store(project: Path, store: Store) -> None:
    app = make_app(project)
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "first 0.15", "Attempts of group 124 (newest)")
        recorder.step(StepRow(LIVE, 15, "done", 1.0, 2.0, 16, {"reward/mean": 0.93}))
        recorder.run(step=15, policy_version=16, phase="training")
        recorder.log("warning", "trainer", "a line that was not there before")
        recorder.group(GroupRow(LIVE, 125, GroupState.RUNNING, "new-task", 5, step=16))
        await until_shown(
            pilot, app, "15/40", "v16", "training", "last 0.93", "a line that was not there before"
        )
        await until_shown(pilot, app, "new-task", "Attempts of group 125 (newest)")
        attempts = store.reader().attempts(LIVE, 124)
        recorder.attempt(replace(attempts[0], group_id=125, attempt=0, state=AttemptState.GRADING))
        await until_shown(pilot, app, "◆ grading")


@pytest.mark.parametrize("size", SIZES)
async def test_that_nothing_isolates_its_sandboxes_stays_in_view(
    project: Path, store: Store, size: tuple[int, int]
) -> None:
    app = make_app(project)
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    recorder.run(info={"isolation": "none", "sandbox_warnings": ["ordinary processes"]}, error="word " * 40)
    bad = {"reward/mean": 0.5, "loss/kl_sample_train_k3": 0.5, "rollout/truncated": 0.9}
    recorder.step(StepRow(LIVE, 15, "done", 1.0, 2.0, 16, bad))
    recorder.flush_blocking()
    async with app.run_test(size=size) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "nothing isolates this run's sandboxes", "word word", "more, i)")
        await pilot.press("s", "y")
        await until_shown(
            pilot, app, "nothing isolates this run's sandboxes", "stop after this step", "word word"
        )
        store.end_run(LIVE, "host-1", RunState.DONE, None)
        await until_shown(pilot, app, "✓ done")
        assert "nothing isolates" not in screen_text(app)


async def test_the_end_of_a_run_is_seen_and_said(project: Path, store: Store) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        store.end_run(LIVE, "host-1", RunState.FAILED, "the local Loops server ended unexpectedly")
        await until_shown(pilot, app, "× failed", "the local Loops server ended unexpectedly")
        for key in ("s", "A", "P", "space"):
            await pilot.press(key)
        assert isinstance(app.screen, RunScreen)


async def test_holding_the_view_still(project: Path, store: Store) -> None:
    app = make_app(project)
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        await pilot.press("space")
        await until_shown(pilot, app, "held still")
        recorder.run(step=22)
        recorder.flush_blocking()
        turns = app.feed.turns
        await until(pilot, lambda: app.feed.turns > turns + 2, "the feed goes round")
        assert "22/40" not in screen_text(app)
        await pilot.press("space")
        await until_shown(pilot, app, "22/40")
        assert "held still" not in screen_text(app)


@pytest.mark.parametrize(
    ("key", "verb", "kind"), [("s", "Stop", "stop"), ("A", "Abort", "abort"), ("P", "Pause", "pause")]
)
async def test_asking_the_run_for_something(
    project: Path, store: Store, key: str, verb: str, kind: str
) -> None:
    app = make_app(project)
    reader = store.reader()
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        await pilot.press(key)
        await until_shown(pilot, app, f"{verb} this run?")
        await pilot.press("y")
        await until(
            pilot, lambda: [row.kind for row in reader.commands(LIVE)] == [kind], "a command is written"
        )
        await until_shown(pilot, app, "asked")
        command = store.take_commands(LIVE)[0]
        await until_shown(pilot, app, "under way")
        store.answer(command.command_id, CommandState.REFUSED, "not in this phase")
        await until_shown(pilot, app, "refused: not in this phase")


async def test_a_paused_run_is_offered_to_go_on(project: Path, store: Store) -> None:
    app = make_app(project)
    store.recorder(LIVE, host_id="host-1", files=False).run(state=RunState.PAUSED)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "‖ paused")
        await pilot.press("P")
        await until_shown(pilot, app, "Resume this run?")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Ask), "the dialog closes")


async def test_plots_can_be_switched(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        for shown in (
            ("Groups, trained or rejected", "trained 8", "all alike 1"),
            ("KL sampler/trainer by step", "k3", "v2", "|v1|", "log scale"),
            ("Where the time goes", "environment", "publishing", "100%"),
            ("Tokens per second",),
            ("Turns an attempt",),
            ("Tokens an attempt",),
            ("Seconds a step",),
            ("Loss by step",),
            ("Reward by step", "◆ held-out"),
        ):
            await pilot.press("v")
            await until_shown(pilot, app, *shown)
        await pilot.press("V")
        await until_shown(pilot, app, "Loss by step")


@pytest.mark.parametrize("size", SIZES)
async def test_from_a_group_to_a_transcript_and_back(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await open_run(pilot, app)
        if size == NARROW:
            await pilot.press("enter")
            await until_shown(pilot, app, "[Groups]")
        await pilot.press("up")
        await until_shown(pilot, app, "▌   123")
        await pilot.press("enter")
        await until_shown(pilot, app, "Attempts of group 123")
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, TranscriptScreen), "the transcript opens")
        await until_shown(pilot, app, "group 123", "#1", "Sort names.txt", "attempt 2 of 8")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "back to the run")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back to the runs")


async def test_a_run_without_anything_yet(project: Path, store: Store) -> None:
    from tools.sample_store import run_row

    store.create_run(run_row("20261129-150000-new1", "brand_new", RunState.CREATED, project))
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await until_shown(pilot, app, "brand_new")
        await pilot.press("enter")
        await until_shown(pilot, app, "○ created", "the run is starting", "No groups yet", "No attempts yet")


@pytest.fixture
def rows_may_come(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A run's rows come once this is set."""
    gate, read = threading.Event(), RunWatch.read

    def read_late(watch: RunWatch, reader: StoreReader, wish: RunWish) -> RunView:
        assert gate.wait(120)
        return read(watch, reader, wish)

    monkeypatch.setattr(RunWatch, "read", read_late)
    return gate


async def test_a_key_that_is_pressed_before_the_rows_come_is_kept(
    project: Path, rows_may_come: threading.Event
) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await until_shown(pilot, app, "tool_agent")
        app.open_run(LIVE)
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen is open")
        await pilot.press("P")
        assert isinstance(app.screen, RunScreen)
        rows_may_come.set()
        await until(pilot, lambda: isinstance(app.screen, Ask), "it asks before it pauses")


async def test_leaving_before_the_rows_come_forgets_what_was_pressed(
    project: Path, rows_may_come: threading.Event
) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await until_shown(pilot, app, "tool_agent")
        app.open_run(LIVE)
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen is open")
        await pilot.press("A", "2")
        await until(pilot, lambda: not isinstance(app.screen, RunScreen), "the configs are shown")
        rows_may_come.set()
        await pilot.press("escape")
        await until_shown(pilot, app, "policy v15")
        assert isinstance(app.screen, RunScreen)


async def test_the_log_alone_offers_nothing_to_open(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "↵ Open")
        await pilot.press("left_square_bracket")
        await until_shown(pilot, app, "[Log]")
        await until(pilot, lambda: "↵ Open" not in screen_text(app), "there is nothing to open")
        await pilot.press("enter")
        await pilot.pause()
        assert "[Log]" in screen_text(app)


async def test_the_focus_comes_back_with_the_room_for_it(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        assert app.focused is not None
        app.screen.set_focus(None)  # as where nothing of it has any room
        await pilot.resize_terminal(1, 1)
        await pilot.resize_terminal(*WIDE)
        await until(pilot, lambda: app.focused is not None, "a pane has the focus")


async def test_a_run_may_be_left_before_its_panes_have_settled_in_a_new_size(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], object]] = []
    monkeypatch.setattr(RunsScreen, "_invoke_later", lambda _, callback, sender: waiting.append(callback))
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        screen = app.screen
        assert isinstance(screen, RunScreen)
        screen.on_resize()
        await app.pop_screen()
        assert waiting, "what is to follow a picture follows one of whichever screen is in view then"
        for callback in waiting:
            callback()
        assert app.screen is not screen
