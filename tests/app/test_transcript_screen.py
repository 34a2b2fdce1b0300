"""A conversation: turns, calls, tokens, searching, copying, attempts beside it, growth while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.store.rows import AttemptRow, AttemptState, TranscriptRow
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.widgets.filter_line import FilterLine
from tests.app.conftest import LIVE, SIZES, make_app, screen_text, until, until_shown, until_told

GROUP, ATTEMPT = 123, 1
TASK = "Sort names.txt"


async def open_transcript(
    pilot: Pilot[int], app: LoopsApp, group: int = GROUP, attempt: int = ATTEMPT
) -> None:
    await until_shown(pilot, app, "7 runs")
    app.push_screen(TranscriptScreen(LIVE, "tool_agent", group, attempt))
    await until_shown(pilot, app, f"group {group}", "attempt")


@pytest.mark.parametrize("size", SIZES)
async def test_turn_by_turn(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await open_transcript(pilot, app)
        await until_shown(
            pilot, app, "1 system", "2 user", TASK, "3 policy", "policy v15", "→ shell", "command: grep"
        )
        await until_shown(
            pilot, app, "4 result of shell", "17", "reward 1.00", "ended: solved", "┊ I should look"
        )
        await pilot.press("end")
        await until_shown(pilot, app, "── ended", "because solved")
        if size[0] >= 120:
            assert "tokens of prompts" in screen_text(app)


async def test_tokens_shaded_and_one_a_line(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, TASK)
        await pilot.press("t")
        await until_shown(pilot, app, "tokens, shaded by logprob", "less likely", "unlikely (below")
        await pilot.press("t")
        await until_shown(pilot, app, "tokens, one a line", "logprob", "v15", "<too")
        await pilot.press("t")
        await until_shown(pilot, app, "→ shell")


async def test_next_and_previous_attempt_go_beyond_the_group(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app)
        await pilot.press("p")
        await until_shown(pilot, app, "attempt 1 of 8", "#0")
        await pilot.press("n", "n")
        await until_shown(pilot, app, "attempt 3 of 8", "#2")
        for number in range(4, 9):
            await pilot.press("n")
            await until_shown(pilot, app, f"attempt {number} of 8")
        await pilot.press("n")
        await until_told(pilot, app, f"group {GROUP + 1} of step 15")
        await until_shown(pilot, app, f"group {GROUP + 1}", "attempt 1 of 8", "#0")
        await pilot.press("p")
        await until_shown(pilot, app, f"group {GROUP} ", "attempt 8 of 8", "#7")


async def test_nothing_lies_beyond_the_first_attempt_and_the_last(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_transcript(pilot, app, 0, 0)
        await until_shown(pilot, app, "attempt 1 of 8")
        assert "Prev." not in screen_text(app).splitlines()[-1]
        await pilot.press("p")
        app.pop_screen()
        await open_transcript(pilot, app, 124, 7)
        await until_shown(pilot, app, "attempt 8 of 8")
        assert "n Next" not in screen_text(app).splitlines()[-1]


async def test_the_best_and_the_worst_of_the_group(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_transcript(pilot, app, 120, 5)  # all but the fourth have scored
        await pilot.press("W")
        await until_shown(pilot, app, "attempt 4 of 8, worst")
        await pilot.press("W")
        await until_told(pilot, app, "this is the worst attempt")
        await pilot.press("B")
        await until_shown(pilot, app, "attempt 1 of 8, best")


async def test_an_attempt_without_words_says_so(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app, 124, 7)
        await until_shown(pilot, app, "Nothing said yet: the attempt is queued")
        app.pop_screen()
        await open_transcript(pilot, app, 123, 7)
        await until_shown(pilot, app, "No transcript of this attempt was kept", "did not answer within 30 s")
        for key in ("y", "Y", "a", "t", "right_curly_bracket", "slash", "full_stop"):
            await pilot.press(key)
        assert isinstance(app.screen, TranscriptScreen)
        app.pop_screen()
        with Store.open(project) as store:
            recorder = store.recorder(LIVE, host_id=None, files=False)
            recorder.attempt(AttemptRow(LIVE, 124, 7, AttemptState.CANCELLED, started_at=1.0, ended_at=2.0))
            recorder.flush_blocking()
        await open_transcript(pilot, app, 124, 7)
        await until_shown(pilot, app, "Nothing was said: the attempt ended before the model replied.")
        assert "trace" not in screen_text(app)


async def test_searching(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, TASK)
        await pilot.press("slash", *"ERROR")
        await until_shown(pilot, app, "match 1 of")
        await pilot.press("enter")
        screen = app.screen
        assert isinstance(screen, TranscriptScreen)
        count = len(screen.conversation.matches)
        assert count >= 2
        await pilot.press("full_stop")
        await until_shown(pilot, app, f"match 2 of {count}")
        await pilot.press("comma", "comma")
        await until_shown(pilot, app, f"match {count} of {count}")
        await pilot.press("escape")
        await until(pilot, lambda: "match" not in screen_text(app), "the search ends")
        assert isinstance(app.screen, TranscriptScreen)
        await pilot.press("slash", *"zebra")
        await until_shown(pilot, app, "not found")
        await pilot.press("escape")
        assert not isinstance(app.focused, FilterLine)


async def test_a_text_that_wrapping_has_broken_is_found(project: Path, store: Store) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    text = "the sandbox was started, and after that the quick brown fox jumps over the lazy dog once more"
    recorder.transcript(
        TranscriptRow(LIVE, GROUP, ATTEMPT, "t", 1.0, "x", [{"role": "user", "content": text}])
    )
    recorder.flush_blocking()
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, "the sandbox was started")
        assert "jumps over the lazy dog" not in screen_text(app)  # it lies over the end of a line
        await pilot.press("slash", *(("space" if c == " " else c) for c in "jumps over the lazy dog"))
        await until_shown(pilot, app, "match 1 of 1")


async def test_it_opens_where_a_search_has_found_something(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        app.push_screen(TranscriptScreen(LIVE, "tool_agent", GROUP, ATTEMPT, find=["zebra", "exit status"]))
        await until_shown(pilot, app, "match 1 of 1", "[exit status 0]")
        await pilot.press("escape")
        await until(pilot, lambda: "match 1 of" not in screen_text(app), "the search ends first")
        assert isinstance(app.screen, TranscriptScreen)


async def test_moving_from_turn_to_turn(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, TASK)
        screen = app.screen
        assert isinstance(screen, TranscriptScreen)
        assert screen.turn_in_view() == 0
        await pilot.press("right_curly_bracket", "right_curly_bracket")
        await until(pilot, lambda: screen.turn_in_view() == 2, "the third turn is on top")
        await pilot.press("left_curly_bracket")
        await until(pilot, lambda: screen.turn_in_view() == 1, "the second turn is on top")


async def test_copying_says_what_became_of_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    app = make_app(project)
    copied: list[str] = []
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, TASK)
        await pilot.press("right_curly_bracket", "y")
        await until_told(pilot, app, "were sent to the terminal")
        assert copied == ["Sort names.txt alphabetically in place, without duplicates."]
        await pilot.press("a")
        await until(pilot, lambda: len(copied) == 2, "all of it is copied")
        assert "[assistant]" in copied[1]
        await pilot.press("Y")
        await until_told(pilot, app, f"{LIVE}-group{GROUP}-attempt{ATTEMPT}.txt")
        saved = project / ".loops" / "saved" / f"{LIVE}-group{GROUP}-attempt{ATTEMPT}.txt"
        assert saved.read_text() == copied[1]
        assert saved.stat().st_mode & 0o077 == 0


async def test_what_is_copied_is_what_is_stored(
    project: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    text = "red \x1b[31mhere\x1b[0m\r\n\ttab \u202e and a zero\x00"
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    turns = [{"role": "user", "content": text}, {"role": "tool", "content": "half \ud800"}]
    recorder.transcript(TranscriptRow(LIVE, GROUP, ATTEMPT, "t", 1.0, "x", turns))
    recorder.flush_blocking()
    app = make_app(project)
    copied: list[str] = []
    monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, "tab")
        await pilot.press("y")
        await until_told(pilot, app, "control characters")
        assert copied == [text]
        await pilot.press("a")
        await until(pilot, lambda: len(copied) == 2, "all of it is copied")
        assert copied[1] == f"[user]\n{text}\n\n[tool]\nhalf \\ud800\n"


async def test_a_text_too_large_for_a_terminal_goes_to_a_file(
    project: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    recorder.transcript(
        TranscriptRow(LIVE, GROUP, ATTEMPT, "t", 1.0, "x", [{"role": "user", "content": "z" * 200_000}])
    )
    recorder.flush_blocking()
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, "zzz")
        await pilot.press("end")
        await until_shown(pilot, app, "196,000 more characters in this line")
        await pilot.press("y")
        await until_told(pilot, app, "copied.txt")
        assert (project / ".loops" / "copied.txt").read_text() == "z" * 200_000


async def test_a_conversation_grows_while_it_is_read(project: Path, store: Store) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    turns = [{"role": "user", "content": "the first words"}]
    recorder.transcript(TranscriptRow(LIVE, 124, 0, "t", None, None, turns))
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app, 124, 0)
        await until_shown(pilot, app, "the first words", "under way: sampling")
        attempt = store.reader().attempts(LIVE, 124)[0]
        attempt.turns = 2
        recorder.attempt(attempt)
        turns = [*turns, {"role": "assistant", "content": "and then some more"}]
        recorder.transcript(TranscriptRow(LIVE, 124, 0, "t", None, None, turns))
        await until_shown(pilot, app, "and then some more")


async def test_a_long_conversation_is_laid_out_in_no_time(project: Path, store: Store) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    turns = [{"role": "user", "content": "words and more words " * 5000 + "\n" + "x" * 3_000_000}]
    turns += [{"role": "tool", "content": "\n".join(f"line {n}" for n in range(60_000))}]
    recorder.transcript(TranscriptRow(LIVE, GROUP, ATTEMPT, "t", 1.0, "x", turns))
    recorder.flush_blocking()
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_transcript(pilot, app)
        await until_shown(pilot, app, "words and more words")
        screen = app.screen
        assert isinstance(screen, TranscriptScreen)
        await until(pilot, lambda: 20_000 < len(screen.conversation.lines) < 30_000, "all of it is laid out")
        assert screen.conversation._search is not None  # prepared by the reading thread: no key waits for it
        assert "(20,000 lines are shown; y copies all)" in "".join(
            text for line in screen.conversation.lines[-12:] for text, _ in line
        )
        await pilot.press("end")
        await until_shown(pilot, app, "── ended")
