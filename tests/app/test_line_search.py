"""Finding a text in a pane of lines, also where wrapping has broken it."""

from __future__ import annotations

import pytest

from loops_tui.theme import Tone
from loops_tui.widgets.line_search import MOST, LineSearch, marked
from loops_tui.widgets.spans import Line, plain, text_of
from loops_tui.widgets.wrapping import AfterSpace, Continued, wrap, wrap_spans

SENTENCE = "the quick brown fox jumps over the lazy dog while supercalifragilisticexpialidocious words are broken anywhere"


def found(lines: list[Line], needle: str) -> list[str]:
    """Each match as it is marked, a bar between lines."""
    matches, _ = LineSearch(lines).find(needle)
    return ["|".join(text_of(lines[part.line])[part.start : part.end] for part in match) for match in matches]


def wrapped(text: str, width: int, indent: str = "  ") -> list[Line]:
    return [((indent, Tone.PLAIN), (piece, Tone.PLAIN)) for piece in wrap(text, width)]


@pytest.mark.parametrize("width", [7, 12, 20, 33, 200])
@pytest.mark.parametrize(
    "needle",
    ["quick brown fox", "OVER THE LAZY", "fragilisticexpiali", "dog while super", SENTENCE, "x", "anywhere"],
)
def test_a_text_is_found_wherever_its_lines_are_broken(width: int, needle: str) -> None:
    lines = [plain("a heading"), *wrapped(SENTENCE, width), plain("the end")]
    matches = found(lines, needle)
    assert len(matches) == SENTENCE.count(needle.lower())
    for match in matches:
        assert match.replace("|", "").replace(" ", "") == needle.lower().replace(" ", "")


def test_two_lines_of_the_source_are_not_one() -> None:
    lines = [*wrapped("one two", 20), *wrapped("three four", 20)]
    assert found(lines, "two three") == found(lines, "twothree") == []


def test_tokens_broken_over_lines_are_put_together_without_a_space() -> None:
    tokens = [
        ("Hel", Tone.TOKEN),
        ("lo the", Tone.TOKEN_LOW),
        ("re, wor", Tone.TOKEN),
        ("ld", Tone.TOKEN_MID),
    ]
    lines = list(wrap_spans(tokens, 5))
    assert [text_of(line) for line in lines] == ["Hello", " ther", "e, wo", "rld"]
    assert found(lines, "there, world") == ["ther|e, wo|rld"]


def test_folding_keeps_the_places() -> None:
    lines = [plain("STRASSE Straße ﬁne İ STRASSE end")]
    assert found(lines, "END") == ["end"]
    assert found(lines, "strasse") == ["STRASSE", "STRASSE"]
    assert found(lines, "straße") == ["Straße"]


def test_more_matches_than_anybody_steps_through() -> None:
    matches, more = LineSearch([plain("e" * 100) for _ in range(MOST // 100 + 1)]).find("e")
    assert (len(matches), more) == (MOST, True)
    assert LineSearch([plain("e")]).find("e")[1] is False


def test_matches_are_marked_and_the_current_one_apart() -> None:
    lines = wrapped("aa bb aa", 5, indent="")
    assert [text_of(line) for line in lines] == ["aa bb", "aa"]
    matches, _ = LineSearch(lines).find("aa")
    parts = [
        [(part, place) for place, match in enumerate(matches) for part in match if part.line == y]
        for y in (0, 1)
    ]
    assert marked(lines[0], parts[0], 0) == (("aa", Tone.MATCH_HERE), (" bb", Tone.PLAIN))
    assert marked(lines[1], parts[1], 0) == (("aa", Tone.MATCH),)


def test_pieces_say_how_they_were_joined() -> None:
    pieces = list(wrap("aaaa bbbb ccccccccccccc", 9))
    assert pieces == ["aaaa bbbb", "ccccccccc", "cccc"]
    assert [type(piece) for piece in pieces] == [str, AfterSpace, Continued]
    assert list(wrap("", 5)) == [""]
