"""The Checkpoints screen: what it lists, and what is done with a checkpoint and asked of Loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.store.rows import CheckpointRow, CheckpointState, EvalRow, RunState
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.loops_ports import ActFailed
from loops_tui.screens.checkpoints import AGES_SECONDS, CheckpointsScreen
from loops_tui.screens.checkpoints_text import eval_words
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.widgets.confirm import Ask, Tell
from loops_tui.widgets.form import Form
from loops_tui.widgets.spans import text_of
from tests.app.conftest import (
    LIVE,
    SIZES,
    FakeHosting,
    make_app,
    screen_text,
    until,
    until_shown,
    until_told,
)
from tools.sample_checkpoints import BILLING, DONE, INTERRUPTED, fill_checkpoints
from tools.sample_store import Sample


@pytest.fixture
def saved(project: Path, filled: tuple[Path, Sample]) -> Path:
    fill_checkpoints(project, filled[1])
    with Store.open(project) as store:  # one whose config names held-out tasks
        store.recorder(BILLING, files=False).run(
            config_toml='recipe = "rl"\n[eval]\ntasks = "held.jsonl"\n[compute]\nscope = "dedicated"\n'
        )
    return project


async def open_checkpoints(pilot: Pilot[int], app: LoopsApp, on: str | None = None) -> CheckpointsScreen:
    """The screen, with the cursor on a checkpoint (run/name)."""
    await until_shown(pilot, app, " runs", "tool_agent")
    await pilot.press("5")
    await until_shown(pilot, app, "Checkpoints", "step-0000")
    screen = app.screen
    assert isinstance(screen, CheckpointsScreen)
    if on is not None:
        screen.table.move_to(on)
        await until(pilot, lambda: screen.table.cursor_key == on, f"the cursor is on {on}")
        await pilot.pause()
    return screen


def last_line(app: LoopsApp) -> str:
    return screen_text(app).splitlines()[-1]


@pytest.mark.parametrize("size", SIZES)
async def test_each_checkpoint_with_its_figures(saved: Path, size: tuple[int, int]) -> None:
    app = make_app(saved)
    async with app.run_test(size=size) as pilot:
        await open_checkpoints(pilot, app, f"{BILLING}/step-000028")
        await until_shown(
            pilot, app, "Still billing (", "run-7f3c21", "9h 48m", "✓ saved", "0.70 (0.63–0.77)"
        )
        await until_shown(
            pilot, app, "over the base model's 0.13", "pass@1", "after step 28 of 40", "when stopped"
        )
        if size[0] >= 120:
            await until_shown(pilot, app, "× failed", "◐ saving", "175.5 MiB", "dedicated", BILLING)


async def test_what_is_wrong_with_one_is_said(saved: Path, filled: tuple[Path, Sample]) -> None:
    app = make_app(saved)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_checkpoints(pilot, app, f"{filled[1].failed}/step-000005")
        await until_shown(pilot, app, "! the local Loops server did not answer")
        for word in ("Resume", "Download", "Evaluate", "Deploy"):
            assert word not in last_line(app)


async def test_no_checkpoints_yet(empty_project: Path) -> None:
    app = make_app(empty_project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "No runs yet")
        await pilot.press("5")
        await until_shown(pilot, app, "No checkpoints yet", "checkpoint_every")
        for key in ("r", "e", "w", "P", "D", "N", "enter", "ctrl+s", "slash"):
            await pilot.press(key)
        assert isinstance(app.screen, CheckpointsScreen)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back")


async def test_a_live_run_is_asked_to_save(saved: Path, store: Store) -> None:
    app = make_app(saved)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        await pilot.press("ctrl+s")
        await until_told(pilot, app, "saves after its step in hand")
        await until(
            pilot,
            lambda: [row.kind for row in store.reader().commands(LIVE)] == ["save"],
            "a command is written",
        )
        store.end_run(LIVE, "host-1", RunState.DONE, None)
        await until(pilot, lambda: "^s Save" not in last_line(app), "nobody is there to save")


async def test_only_the_last_one_of_an_ended_run_is_resumed_from(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await open_checkpoints(pilot, app, f"{INTERRUPTED}/step-000010")
        assert "Resume" not in last_line(app)
        screen.table.move_to(f"{INTERRUPTED}/step-000020")
        await until(pilot, lambda: "Resume" in last_line(app), "the key is offered")
        await pilot.press("r")
        await until_shown(pilot, app, "It goes on from step-000020")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen opens")
        assert hosting.resumed == [(INTERRUPTED, ())]


async def test_a_new_run_from_any_of_them(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_checkpoints(pilot, app, f"{INTERRUPTED}/step-000010")
        await pilot.press("N")
        await until_shown(pilot, app, "Start a new run from this checkpoint?", "optimizer starts")
        await pilot.press("y")
        await until(pilot, lambda: bool(hosting.started), "a run is started")
        assert hosting.started[0][1] == (f'model.from_checkpoint="{INTERRUPTED}@step-000010"',)


async def test_deactivating_says_what_stops_and_watches_until_it_has(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.loops.says = "run-7f3c21 is ACTIVE; ending it"
    hosting.loops.goes.clear()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await open_checkpoints(pilot, app)
        screen.billing.focus()
        await until(pilot, lambda: "Download" not in last_line(app), "the keys are those of a run")
        assert "Deactivate" in last_line(app)
        await pilot.press("D")
        await until_shown(
            pilot, app, "Deactivate this run?", "Stops: ", "run-7f3c21", "billing", "3 checkpoints"
        )
        assert app.focused is not None
        assert app.focused.id == "choice-cancel"
        await pilot.press("y")
        await until_shown(pilot, app, "run-7f3c21 is ACTIVE; ending it")
        await pilot.press("escape")
        # It goes on behind any screen.
        await until_shown(pilot, app, "run-7f3c21 is ACTIVE; ending it", "Details")
        hosting.loops.goes.set()
        await until_told(pilot, app, "run-7f3c21 is INACTIVE; nothing of it bills any more")
        assert hosting.loops.asked == [("deactivate", BILLING)]
        assert app.notice is None


async def test_what_was_not_done_is_told_in_full(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.loops.fail = ActFailed("run-7f3c21 may still bill: Loops did not answer within 300 s")
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_checkpoints(pilot, app, f"{BILLING}/step-000028")
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, Tell), "the answer")
        await until_shown(pilot, app, "Not done: deactivating tool_agent", "may still bill")


async def test_evaluating_this_one_or_the_base_model(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        assert "Evaluate" not in last_line(app)  # its config names no held-out tasks
        screen.table.move_to(f"{BILLING}/step-000020")
        await until(pilot, lambda: "Evaluate" in last_line(app), "the key is offered")
        await pilot.press("e")
        await until_shown(pilot, app, "are attempted", "this bills", "the base model")
        await pilot.press("e")
        await until_told(pilot, app, "mean 0.50 (0.40–0.60)")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        await pilot.press("b")
        await until(pilot, lambda: len(hosting.loops.asked) == 2, "the second act")
        assert hosting.loops.asked == [("evaluate", BILLING, "step-000020"), ("evaluate", BILLING, None)]


async def test_downloading_into_a_directory(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, Form), "the form")
        await until_shown(pilot, app, "Download this checkpoint", f"checkpoints/{DONE}", "Part:")
        await pilot.press("enter", "x", "enter")
        await until_shown(pilot, app, "Part must be sampler or trainer")
        await pilot.press("backspace", *"trainer", "enter")
        await until_told(pilot, app, "1 file, 1.2 KiB, verified, in ")
        directory = saved / "checkpoints" / DONE / "step-000020"
        assert hosting.loops.asked == [("download", DONE, "step-000020", "trainer", directory)]


async def test_deploying_shows_the_request_and_sends_it_once(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await open_checkpoints(pilot, app, f"{DONE}/step-000020")
        assert "Deploy" not in last_line(app)  # this machine's own server serves nothing
        screen.table.move_to(f"{BILLING}/step-000028")
        await until(pilot, lambda: "Deploy" in last_line(app), "the key is offered")
        await pilot.press("P")
        await until_shown(pilot, app, "Deploy step-000028", "Name of the model", "tool_agent")
        await pilot.press("enter", "enter", "enter")
        await until_shown(pilot, app, "Instance type is needed")
        await pilot.press(*"a10", "enter", "enter")
        await until_shown(pilot, app, "POST https://api.example/deploy", '"model_name": "tool_agent"', "h100")
        assert [what[0] for what in hosting.loops.asked] == ["plan"]
        await pilot.press("y")
        await until_told(pilot, app, "deployment dep-1 of model model-1")
        assert [what[0] for what in hosting.loops.asked] == ["plan", "deploy"]


async def test_one_act_at_a_time(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.loops.goes.clear()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_checkpoints(pilot, app, f"{BILLING}/step-000028")
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        await pilot.press("y")
        await until(pilot, lambda: app.acts.under_way is not None, "it is under way")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        await pilot.press("e")
        await until_told(pilot, app, "first this has to end: deactivating tool_agent")
        assert len(hosting.loops.asked) == 1
        hosting.loops.goes.set()
        await until(pilot, lambda: app.acts.under_way is None, "it has ended")


async def test_ages_go_on_where_nothing_else_does(saved: Path) -> None:
    app = make_app(saved)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await open_checkpoints(pilot, app)
        view = screen.view
        assert view is not None
        old = view.now - AGES_SECONDS - 1
        screen.view = replace(
            view, now=old, billing=[], entries=[replace(entry, now=old) for entry in view.entries]
        )
        screen._tick()
        assert min(entry.now for entry in screen.view.entries) > old


@pytest.mark.parametrize(
    ("metrics", "cell", "said"),
    [
        ({"loss": 0.5, "loss/validation": 0.3125}, "loss 0.31", "validation loss 0.312 in its step"),
        ({"loss": 0.5}, "loss 0.50", "training loss 0.500 in its step"),
    ],
)
async def test_a_checkpoint_of_fine_tuning_says_its_loss(
    saved: Path, metrics: dict[str, float], cell: str, said: str
) -> None:
    run, now = "20261126-080000-sft1", 1.9e9
    with Store.open(saved) as store:
        row = CheckpointRow(run, "step-000030", 30, CheckpointState.SAVED, "end", now, now, metrics=metrics)
        store.recorder(run, files=False).checkpoint(row)
    app = make_app(saved)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_checkpoints(pilot, app, f"{run}/step-000030")
        await until_shown(pilot, app, "score", cell, said)


@pytest.mark.parametrize(
    ("size", "titles"),
    [((80, 24), ["score", "evaluation", "age"]), ((120, 40), ["why", "step", "evaluation", "size"])],
)
async def test_how_a_checkpoint_did_is_listed_at_every_size(
    saved: Path, size: tuple[int, int], titles: list[str]
) -> None:
    app = make_app(saved)
    async with app.run_test(size=size) as pilot:
        await open_checkpoints(pilot, app)
        await until_shown(pilot, app, "checkpoint ", *titles)


@pytest.mark.parametrize(
    ("mean", "low", "high", "told"),
    [
        (0.61, 0.54, 0.68, "0.61 (0.54–0.68)"),
        (0.53, -2.0, 3.0466, "0.53 (-2.0–3.0)"),
        (12.3, -112.26, 113.1, "12.30 (-112–113)"),
        (123.4, -99112.26, 99113.1, "123.40 (wide)"),
    ],
)
def test_an_interval_of_the_list_is_never_cut(mean: float, low: float, high: float, told: str) -> None:
    row = EvalRow("r", "base", "base", "done", "asked", 0.0, mean=mean, low=low, high=high)
    assert text_of(eval_words(row, 16)) == told
