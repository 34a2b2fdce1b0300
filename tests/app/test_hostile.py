"""Text that a model, a task file or a broken program wrote, in every place where text can be."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from textual.events import Paste
from textual.pilot import Pilot

from engine.store.rows import (
    AttemptRow,
    AttemptState,
    CheckpointRow,
    CheckpointState,
    EvalRow,
    GroupRow,
    GroupState,
    RunState,
    StepRow,
    TranscriptRow,
)
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.screens.compare import CompareScreen
from loops_tui.screens.config import ConfigScreen
from loops_tui.screens.config_files import ConfigFile
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.widgets import spans
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.text_line import LONGEST
from tests.app.conftest import LIVE, SIZES, make_app, screen_text, until, until_shown, until_told
from tools.sample_store import run_row

EVIL = "[bold red]x[/] [link=http://e]y[/link] \x1b]52;c;QUJD\x07\x1b[2J\x9b31m\u202e\u200b\x00\x07\t'[\\"
BAD_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def assert_harmless(app: LoopsApp) -> None:
    for line in screen_text(app).split("\n"):
        for char in line:
            assert unicodedata.category(char) not in BAD_CATEGORIES, repr(line)


@pytest.fixture(autouse=True)
def _no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The painter marks what slipped through the door; here the door itself is what is looked at."""
    monkeypatch.setattr(spans, "safe", lambda text, limit=None: text)


@pytest.fixture
def hostile(project: Path, store: Store) -> Path:
    paths = {"run_dir": str(project / "runs" / "evil"), "config_path": EVIL}
    evil = run_row(
        "20261129-160000-evil",
        EVIL,
        RunState.CREATED,
        project,
        base_model=EVIL,
        recipe=EVIL,
        scope=EVIL,
        **paths,
    )
    store.create_run(evil)
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    recorder.run(name=EVIL, phase=EVIL, error=EVIL)
    recorder.group(GroupRow(LIVE, 130, GroupState.REJECTED, EVIL, 0, 15, reason=EVIL))
    attempt = AttemptRow(LIVE, 130, 0, AttemptState.DONE, reward=1.0, ending=EVIL, error=EVIL, ended_at=1.0)
    attempt.timeline = {EVIL: [0.0, 1.0, 1.0]}
    attempt.metadata = {EVIL: EVIL}
    recorder.attempt(attempt)
    sampled = {"tokens": [1, 2], "texts": [EVIL, "b\n"], "logprobs": [-0.1, None], "policy_version": EVIL,
               "stop_reason": EVIL}  # fmt: skip
    turns = [
        {"role": EVIL, "content": EVIL + "\n" + EVIL},
        {"role": "assistant", "content": EVIL, "reasoning": EVIL, "sampled": sampled,
         "tool_calls": [{"id": EVIL, "name": EVIL, "arguments": '{"' + "a" * 50 + '": "\\u001b[2J"}', "problem": EVIL},
                        {"name": None, "arguments": EVIL}, "no mapping"]},
        {"role": "tool", "name": EVIL, "content": [{"type": "text", "text": EVIL}]},
        {"role": "tool", "content": None},
        {},
    ]  # fmt: skip
    recorder.transcript(TranscriptRow(LIVE, 130, 0, EVIL, 1.0, EVIL, turns, metadata={EVIL: EVIL}))
    recorder.log("error", EVIL, EVIL)
    recorder.log(EVIL, "x" * 300, "y" * 3_000_000)
    recorder.flush_blocking()
    return project


async def look_around(pilot: Pilot[int], app: LoopsApp, keys: str) -> None:
    for key in keys.split():
        await pilot.press(key)
        await pilot.pause()
        assert_harmless(app)


@pytest.mark.parametrize("size", SIZES)
async def test_no_screen_passes_anything_on(hostile: Path, size: tuple[int, int]) -> None:
    app = make_app(hostile)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "8 runs", "[bold red]")
        await look_around(pilot, app, "down up s escape slash x escape")
        app.open_run(LIVE)
        await until_shown(pilot, app, "policy v15")
        await until_shown(pilot, app, "[bold red]", "␛]52…")
        await look_around(
            pilot, app, "right_square_bracket right_square_bracket right_square_bracket s escape"
        )
        await look_around(pilot, app, "question_mark escape")
        app.push_screen(TranscriptScreen(LIVE, EVIL, 130, 0))
        await until_shown(pilot, app, "attempt 1 of 1", "[bold red]", "not run:")
        await look_around(
            pilot, app, "t end home t end home pagedown t slash b o l d enter full_stop escape y end"
        )
        assert app.is_running


EVIL_NAME = EVIL.replace("\x00", "").replace("/", "|") + ".toml"


@pytest.mark.parametrize("size", SIZES)
async def test_configs_with_such_names_and_texts(hostile: Path, size: tuple[int, int]) -> None:
    text = f'recipe = "rl"\n# {EVIL}\n"{EVIL[:20]}" = 1\n[model]\nbase_model = "{EVIL}"\n'
    (hostile / EVIL_NAME).write_text(text, encoding="utf-8")
    (hostile / f"long{EVIL_NAME}").write_text(
        f'recipe = "rl"\nname = "{"y" * 3_000_000}"\n', encoding="utf-8"
    )
    app = make_app(hostile)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("2")
        await until_shown(pilot, app, "[bold red]")
        screen = app.screen
        assert isinstance(screen, ConfigScreen)
        await screen.open_file(ConfigFile(hostile / f"long{EVIL_NAME}", "long", bundled=False))
        await until_told(pilot, app, "3.0 MB: too much")
        await pilot.pause()
        assert_harmless(app)
        await screen.open_file(ConfigFile(hostile / EVIL_NAME, EVIL_NAME, bundled=False))
        await until_shown(pilot, app, "recipe =")
        await look_around(pilot, app, "down down end home pagedown end left_square_bracket f8 f9 escape up")
        assert app.is_running


@pytest.mark.parametrize("size", SIZES)
async def test_checkpoints_and_evaluations_with_such_names(
    hostile: Path, store: Store, size: tuple[int, int]
) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    for name in (EVIL, "x" * 100_000):
        row = CheckpointRow(LIVE, name, 3, CheckpointState.FAILED, EVIL, 1.0, 2e9, error=EVIL + "z" * 100_000)
        row.sampler_path = row.trainer_path = EVIL
        recorder.checkpoint(row)
    recorder.evaluation(
        EvalRow(LIVE, EVIL, "checkpoint", "done", EVIL, 1.0, 2.0, 3, EVIL, mean=0.5, error=EVIL)
    )
    recorder.run(loops_run_id=EVIL, loops_state=EVIL)
    recorder.flush_blocking()
    app = make_app(hostile)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("5")
        await until_shown(pilot, app, "Checkpoints", "[bold")
        await look_around(pilot, app, "up down down end home slash x escape question_mark escape N escape")
        assert app.is_running


@pytest.mark.parametrize("size", SIZES)
async def test_such_runs_compared(hostile: Path, store: Store, size: tuple[int, int]) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    recorder.step(StepRow(LIVE, 15, "done", 1.0, 2.0, 15, {EVIL: 0.5, "reward/mean": 0.5}))
    recorder.run(config_toml=f'recipe = "rl"\n["{EVIL[:9]}"]\nkey = "{"k" * 100_000}"\n')
    recorder.flush_blocking()
    app = make_app(hostile)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "8 runs")
        app.push_screen(CompareScreen("20261129-160000-evil", LIVE))
        await until(pilot, lambda: isinstance(app.screen, CompareScreen), "the comparison opens")
        await until_shown(pilot, app, "[bold")
        await look_around(pilot, app, "v v down end home tab end home question_mark escape")
        assert app.is_running


@pytest.mark.parametrize("size", SIZES)
async def test_such_transcripts_found(hostile: Path, store: Store, size: tuple[int, int]) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    turns = [
        {"role": "user", "content": f"{EVIL} platypus {EVIL}"},
        {"role": EVIL, "content": "platypus " + "y" * 3_000_000},
    ]
    recorder.transcript(TranscriptRow(LIVE, 131, 0, EVIL, 1.0, EVIL, turns))
    recorder.flush_blocking()
    app = make_app(hostile)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("F", *"platypus")
        await until_shown(pilot, app, "1 hit", "[bold")
        await look_around(pilot, app, "down up tab end home question_mark escape enter")
        assert app.is_running


async def test_such_text_pasted_into_a_line(hostile: Path) -> None:
    app = make_app(hostile)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("slash")
        line = app.screen.query_one(FilterLine)
        line.post_message(Paste(EVIL))
        await until(pilot, lambda: line.value.startswith("[bold red]x"), "the text is in the line")
        await until_shown(pilot, app, "[bold red]x[/]")
        await look_around(pilot, app, "end home right delete end enter")


async def test_a_book_pasted_into_a_line(hostile: Path) -> None:
    app = make_app(hostile)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("slash")
        line = app.screen.query_one(FilterLine)
        for _ in range(2):
            line.post_message(Paste("é" * 100_000))
        await until_told(pilot, app, "not all of it was pasted")
        await until(pilot, lambda: len(line.value) == LONGEST, "the line is full")
        line.post_message(Paste("\n"))
        await pilot.press("x")
        assert line.value.endswith("éx")
