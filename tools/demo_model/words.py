"""Where names and values come from.

A model this small learns words by heart unless it is shown many different spellings, and then cannot copy a
name it has never met. So half of the words are spelled at random. `HELD_OUT` never occurs in training, neither in
the demonstrations nor in the tokenizer's corpus: evaluation uses it to tell copying from recall.
"""

from __future__ import annotations

import random
from pathlib import Path

_ALL = (Path(__file__).parent / "words.txt").read_text().split()
KEYS = [
    "port",
    "host",
    "user",
    "mode",
    "level",
    "limit",
    "size",
    "depth",
    "color",
    "region",
    "timeout",
    "retries",
    "workers",
    "cache",
    "theme",
    "lang",
    "debug",
    "proxy",
    "queue",
    "quota",
    "name",
]
KEY_PREFIXES = ["admin", "backup", "proxy", "old", "max", "test", "local", "remote"]
STEMS = [
    "app",
    "notes",
    "data",
    "list",
    "names",
    "items",
    "report",
    "orders",
    "users",
    "stock",
    "log",
    "todo",
    "sales",
    "team",
    "words",
    "books",
    "costs",
    "plan",
    "input",
    "table",
    "main",
    "web",
    "server",
    "site",
]
CITIES = [
    "Oslo",
    "Paris",
    "Lima",
    "Rome",
    "Cairo",
    "Delhi",
    "Tokyo",
    "Quito",
    "Berlin",
    "Madrid",
    "Dublin",
    "Athens",
]
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"

HELD_OUT = frozenset(random.Random(7).sample([w for w in _ALL if len(w) > 4], 24))
KNOWN = [w for w in _ALL if w not in HELD_OUT]


def _followers() -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for word in KNOWN:
        for left, right in zip("^" + word, word, strict=False):
            out.setdefault(left, []).append(right)
    return out


_NEXT = _followers()


class WordSource:
    """Draws words, numbers and file names from one random stream.

    With `held_out` every word comes from `HELD_OUT`.
    """

    def __init__(self, rng: random.Random, held_out: bool = False) -> None:
        self.rng = rng
        self.held_out = held_out

    def _syllables(self) -> str:
        pick = self.rng.choice
        return "".join(pick(_CONSONANTS) + pick(_VOWELS) for _ in range(pick([2, 2, 3])))

    def _spelled(self) -> str:
        """A word with the letter pairs of real ones: pronounceable, and nearly always new."""
        while True:
            word = self.rng.choice(_NEXT["^"])
            length = self.rng.randint(4, 7)
            while len(word) < length and word[-1] in _NEXT:
                word += self.rng.choice(_NEXT[word[-1]])
            if word not in HELD_OUT and len(word) > 3:
                return word

    def word(self) -> str:
        if self.held_out:
            return self.rng.choice(sorted(HELD_OUT))
        draw = self.rng.random()
        if draw < 0.12:
            return self._syllables()
        if draw < 0.5:
            return self._spelled()
        return self.rng.choice(KNOWN)

    def words(self, count: int) -> list[str]:
        out: list[str] = []
        while len(out) < count:
            word = self.word()
            if word not in out:
                out.append(word)
        return out

    def number(self) -> str:
        """Mostly one or two digits; the longer ones (ports) take the most practice to copy."""
        draw = self.rng.random()
        if draw < 0.7:
            return str(self.rng.randint(1, 99))
        return str(self.rng.randint(100, 999) if draw < 0.82 else self.rng.randint(1000, 9999))

    def stem(self) -> str:
        if self.rng.random() < 0.5 and not self.held_out:
            return self.rng.choice(STEMS)
        return self.word()

    def file_name(self, extensions: list[str], *avoid: str) -> str:
        while True:
            name = self.stem() + self.rng.choice(extensions)
            if name not in avoid:
                return name
