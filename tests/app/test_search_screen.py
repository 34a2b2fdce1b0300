"""Full-text search: of a run, of the project; from a hit into its transcript."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store.rows import RunState, TranscriptRow
from engine.store.search import SearchHit
from engine.store.snippets import HIT_END, HIT_START
from engine.store.store import Store
from loops_tui.screens import checkpoints_text, runs_text
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.screens.search import QueryLine, SearchScreen
from loops_tui.screens.search_text import (
    Found,
    empty_lines,
    from_first_hit,
    snippet,
    snippet_lines,
    texts_to_find,
)
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.theme import Tone
from loops_tui.widgets.spans import text_of, width_of
from tests.app.conftest import LIVE, SIZES, make_app, open_run, screen_text, until, until_shown
from tools.sample_store import run_row

OTHER = "20261120-000000-0ther"


@pytest.fixture
def told(project: Path, store: Store) -> Path:
    """A second run with one transcript that only it has words of, and one word that both have."""
    store.create_run(run_row(OTHER, "other_agent", RunState.DONE, project))
    turns = [
        {"role": "user", "content": "\n".join(f"line {number}" for number in range(100))},
        {"role": "assistant", "content": "the platypus counts ERROR lines => 17 \x1b[31m"},
    ]
    store.recorder(OTHER, files=False).transcript(
        TranscriptRow(OTHER, 7, 3, "odd-task", 0.25, "max_turns", turns)
    )
    store.flush()
    return project


def keys(text: str) -> list[str]:
    return [{" ": "space", "=": "equals_sign", ">": "greater_than_sign"}.get(char, char) for char in text]


@pytest.mark.parametrize("size", SIZES)
async def test_from_a_word_to_the_place_in_the_transcript(told: Path, size: tuple[int, int]) -> None:
    app = make_app(told)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("F")
        await until_shown(pilot, app, "In the whole project", "Type words")
        await pilot.press(*keys("platyp"))
        await until_shown(pilot, app, "1 hit in", "other_agent", "g7 #3", "0.25", "max turns", "platypus")
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.focused, QueryLine), "the hits have the focus")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TranscriptScreen), "the transcript opens")
        await until_shown(pilot, app, "other_agent", "group 7", "match 1 of 1", "the platypus counts")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, SearchScreen), "back to the hits")
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.focused, QueryLine), "the words again")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back to the runs")


async def test_from_a_run_only_that_run_is_searched_at_first(told: Path) -> None:
    app = make_app(told)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_run(pilot, app)
        await pilot.press("F")
        await until_shown(pilot, app, "In this run", "tool_agent")
        await pilot.press(*keys("platypus"))
        await until_shown(pilot, app, "No transcript of run tool_agent holds “platypus”")
        await until(
            pilot, lambda: "To the hits" not in screen_text(app), "no key for hits that are not there"
        )
        await pilot.press("ctrl+t")
        await until_shown(pilot, app, "In the whole project", "1 hit in", "other_agent", "To the hits")
        await pilot.press("ctrl+t")
        await until_shown(pilot, app, "No transcript of run tool_agent")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "back to the run")


async def test_signs_are_found_as_they_are_and_letters_are_no_keys(told: Path) -> None:
    app = make_app(told)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("F", *keys("=>"))
        await until_shown(pilot, app, "1 hit in", "g7 #3")
        await pilot.press("backspace", "backspace", *keys("q1F"))
        line = app.screen.query_one(QueryLine)
        assert line.value == "q1F"
        assert isinstance(app.screen, SearchScreen)


async def test_a_result_stands_still_while_the_store_changes(told: Path, store: Store) -> None:
    app = make_app(told)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("F", *keys("platypus"))
        await until_shown(pilot, app, "1 hit in")
        reads, turns = app.feed.reads, app.feed.turns
        store.recorder(LIVE, files=False).log("info", "run", "something happened")
        store.flush()
        await until(pilot, lambda: app.feed.turns > turns + 3, "the feed goes round")
        assert app.feed.reads == reads


def test_what_was_found_is_marked_and_nothing_else_gets_through() -> None:
    text = f"a long way before it, \x1b[31mred\n{HIT_START}found{HIT_END} and {HIT_START}more{HIT_END} after"
    line = snippet(text)
    assert [part for part, tone in line if tone is Tone.MATCH] == ["found", "more"]
    assert all(part.isprintable() for part, _ in line)
    assert text_of(from_first_hit(line)).startswith("…")
    assert "found" in text_of(from_first_hit(line))[:20]
    lines = snippet_lines(text, 20)
    assert " ".join(text_of(one) for one in lines).split() == text_of(line).split()
    assert "found" in [part for one in lines for part, tone in one if tone is Tone.MATCH]


def test_the_words_as_typed_are_looked_for_first() -> None:
    hit = SearchHit("r", 0, 0, "t", None, None, f"{HIT_START}one{HIT_END} x {HIT_START}two{HIT_END}")
    assert texts_to_find(" one two ", hit) == ["one two", "one", "two"]


async def test_a_hit_in_an_evaluation_is_told_apart(told: Path, store: Store) -> None:
    turns = [{"role": "user", "content": "a wombat"}]
    store.recorder(OTHER, files=False).transcript(TranscriptRow(OTHER, -2, 0, "t", 1.0, "x", turns))
    store.flush()
    app = make_app(told)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("F", *keys("wombat"))
        await until_shown(pilot, app, "e2 #0")
        assert "g-2" not in screen_text(app)


def test_what_lists_with_nothing_in_them_say_fits_80_columns() -> None:
    searched = empty_lines(Found("zebra", None, [], {}, 1.0), "run in_process_direct")
    for lines in (empty_lines(None, "this project"), searched, runs_text.EMPTY, checkpoints_text.EMPTY):
        assert max(width_of(line) for line in lines) <= 76
