"""Search takes what a person types, whatever it looks like."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store import HIT_END, HIT_START, Store
from tests.store.conftest import make_run, make_transcript

RUN = "20261129-143501-k3f9"


@pytest.fixture
def filled(store: Store, tmp_path: Path) -> Store:
    store.create_run(make_run(tmp_path))
    store.create_run(make_run(tmp_path, "other"))
    recorder = store.recorder(RUN)
    recorder.transcript(make_transcript(RUN, 0, 0, "What is six times seven?", "The answer is forty-two."))
    recorder.transcript(
        make_transcript(RUN, 0, 1, "What is six times seven?", 'x = {{"a": 1}} => "AND" OR NEAR(b)')
    )
    recorder.transcript(make_transcript(RUN, 1, 0, "Grüße an die Welt", "<b>bold</b> \x1b[31mred"))
    store.recorder("other").transcript(make_transcript("other", 0, 0, "another answer"))
    store.flush()
    return store


def found(store: Store, text: str, run_id: str | None = RUN) -> list[tuple[int, int]]:
    return [(hit.group_id, hit.attempt) for hit in store.reader().search(run_id, text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("answer", [(0, 0)]),
        ("ANSWER is", [(0, 0)]),
        ("ans", [(0, 0)]),
        ("six seven", [(0, 1), (0, 0)]),
        ("forty-two", [(0, 0)]),
        ("grusse", []),
        ("grüße", [(1, 0)]),
        ("{{", [(0, 1)]),
        ("=>", [(0, 1)]),
        ('"AND"', [(0, 1)]),
        ("NEAR(b)", [(0, 1)]),
        ("nothing-like-it", []),
        ("", []),
        ("  \0 ", []),
    ],
)
def test_words(filled: Store, text: str, expected: list[tuple[int, int]]) -> None:
    assert found(filled, text) == expected


@pytest.mark.parametrize(
    "text",
    ['"', '""', "'", "(", ")", "*", "^", "-", "a AND", "NOT", "OR OR", "text:x", "{a b}", "a + b", "\\", "\udc80",
     "\x1b]0;x\x07", "_", "__", "a\0b", "%", "x" * 10_000, "' UNION SELECT 1 --", "🙂", "col : *", "-word", "a*b*"],
    ids=range(27),
)  # fmt: skip
def test_hostile_text_is_only_text(filled: Store, text: str) -> None:
    filled.reader().search(RUN, text)
    filled.reader().search(None, text)


def test_across_runs_with_a_limit_and_snippets(filled: Store) -> None:
    hits = filled.reader().search(None, "answer")
    assert [hit.run_id for hit in hits] == ["other", RUN]
    assert f"{HIT_START}answer{HIT_END}" in hits[0].snippet
    assert hits[1].task_id == "task-0"
    assert hits[1].reward == 1.0
    assert len(filled.reader().search(None, "answer", limit=1)) == 1
    assert f"{HIT_START}{{{{{HIT_END}" in filled.reader().search(RUN, "{{")[0].snippet


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("naïve CAFE", ["Naive", "café"]),
        ("needle", ["needle"]),
        ("need", ["need"]),
        ("app.log", ["app.log"]),
        ("=>", ["=>"]),
    ],
)
def test_snippets_mark_the_words_however_long_the_text(
    store: Store, tmp_path: Path, text: str, marked: list[str]
) -> None:
    """Also where the words lie on the edge of a piece that is read, or in a text of megabytes."""
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    long = (
        "grün und blau " * 9361
        + " the needle in app.log => a Naive café, and so on "
        + "words and words " * 100_000
    )
    recorder.transcript(make_transcript(RUN, 0, 0, "a task", long))
    store.flush()
    (hit,) = store.reader().search(RUN, text)
    parts = [part.split(HIT_END)[0] for part in hit.snippet.split(HIT_START)[1:]]
    assert parts == marked
    assert len(hit.snippet) < 300


def test_a_hit_too_deep_for_its_snippet_is_a_hit(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.search._SNIPPET_BYTES", 1000)
    store.create_run(make_run(tmp_path))
    store.recorder(RUN).transcript(make_transcript(RUN, 0, 0, "how it begins", "filler " * 1000 + "needle"))
    store.flush()
    (hit,) = store.reader().search(RUN, "needle")
    assert hit.snippet.startswith("how it begins")
    assert HIT_START not in hit.snippet
