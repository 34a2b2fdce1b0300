"""What surrounds the words that a search found.

SQLite's own ``snippet()`` takes seconds for a text of megabytes. Texts are read here in pieces, and of one search no
more than a bounded amount: a hit whose words lie too deep in it is still a hit, with its beginning for a snippet.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator

HIT_START, HIT_END = "\x02", "\x03"
"""Marks around the words found in a snippet: a screen that knows them turns them into a style, any other one shows
them as visible control characters."""

PIECE = 128 * 1024  # bytes read at once
BEFORE, AFTER = 60, 150  # characters around the first word found


class _Folding(dict[int, int]):
    """One character for one: without case and diacritics, as the index has it."""

    def __missing__(self, code: int) -> int:
        base = unicodedata.normalize("NFD", chr(code))[0].casefold()
        folded = ord(base) if len(base) == 1 else code
        self[code] = folded
        return folded


_FOLDED = _Folding()


class SnippetMaker:
    """Snippets for the hits of one search; reads at most ``budget`` bytes of texts for all of them together."""

    def __init__(self, connection: sqlite3.Connection, pattern: re.Pattern[str], *, budget: int) -> None:
        self._connection = connection
        self._pattern = pattern
        self.left = budget

    def of(self, transcript_id: int) -> str | None:
        """The snippet of a text; None where nothing of the pattern was found in what could be read of it."""
        kept = ""
        for piece in self._pieces(transcript_id):
            text = kept + piece
            match = self._pattern.search(text.translate(_FOLDED))
            if match is not None:
                return self._around(text, match.start())
            kept = text[-(BEFORE + AFTER) :]
        return None

    def beginning(self, transcript_id: int) -> str:
        """The text's first words."""
        with self._blob(transcript_id) as blob:
            text = _decoded(blob.read(4 * (BEFORE + AFTER)))
        return text[: BEFORE + AFTER] + ("…" if len(text) > BEFORE + AFTER else "")

    def _pieces(self, transcript_id: int) -> Iterator[str]:
        with self._blob(transcript_id) as blob:
            while self.left > 0:
                piece = blob.read(min(PIECE, self.left))
                if not piece:
                    return
                self.left -= len(piece)
                yield _decoded(piece)

    def _blob(self, transcript_id: int) -> sqlite3.Blob:
        # The table in which FTS5 keeps the texts.
        return self._connection.blobopen("transcript_text_content", "c0", transcript_id, readonly=True)

    def _around(self, text: str, at: int) -> str:
        start, end = max(0, at - BEFORE), min(len(text), at + AFTER)
        shown = text[start:end]
        parts: list[str] = ["…"] if start else []
        last = 0
        for match in self._pattern.finditer(shown.translate(_FOLDED)):
            parts.extend(
                (shown[last : match.start()], HIT_START, shown[match.start() : match.end()], HIT_END)
            )
            last = match.end()
        parts.append(shown[last:])
        return "".join(parts) + ("…" if end < len(text) else "")


def _decoded(piece: bytes) -> str:
    """A piece may begin or end within a character: what is cut in half there is left out."""
    return piece.decode("utf-8", "ignore")


def word_pattern(words: list[str]) -> re.Pattern[str]:
    """Where one of these words (as they were typed) stands: whole words, the last one as a beginning."""
    alternatives: list[str] = []
    for place, word in enumerate(words):
        tokens = [re.escape(token) for token in re.findall(r"[^\W_]+", word.translate(_FOLDED))]
        if tokens:
            end = "" if place == len(words) - 1 else r"(?![^\W_])"
            alternatives.append(r"[\W_]+".join(tokens) + end)
    return re.compile(r"(?<![^\W_])(?:" + "|".join(alternatives) + ")")


def sign_pattern(signs: str) -> re.Pattern[str]:
    """Exactly these characters."""
    return re.compile(re.escape(signs.translate(_FOLDED)))
