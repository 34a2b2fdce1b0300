"""Text that a model, a task file or a broken program wrote, in every place where text can be."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.store.rows import AttemptRow, AttemptState, GroupRow, GroupState, RunState, TranscriptRow
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.widgets import spans
from tests.app.conftest import LIVE, SIZES, make_app, screen_text, until_shown
from tools.sample_store import run_row

EVIL = "[bold red]x[/] [link=http://e]y[/link] \x1b]52;c;QUJD\x07\x1b[2J\x9b31m\u202e\u200b\x00\x07\t'[\\"
BAD_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def assert_harmless(app: LoopsApp) -> None:
    for char in screen_text(app).replace("\n", ""):
        assert unicodedata.category(char) not in BAD_CATEGORIES, repr(char)


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
