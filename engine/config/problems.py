"""What is wrong with a config or a task file, said so that a person can put it right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.config.printable import one_line

_LONGEST_PATH = 4096
_LONGEST_WORD = 100  # nobody misspells a longer one, and comparing it takes long


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and what would be right. Its sentences are single lines without control
    characters, whatever was found."""

    text: str
    file: Path | None = None
    line: int | None = None  # 1-based; None where it belongs to no line
    key: str | None = None  # dotted, as in ``training.group_size``
    remedy: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", one_line(self.text))
        if self.remedy is not None:
            object.__setattr__(self, "remedy", one_line(self.remedy))

    def __str__(self) -> str:
        where = ""
        if self.file is not None:
            file = one_line(str(self.file), _LONGEST_PATH)
            where = f"{file}:{self.line}: " if self.line is not None else f"{file}: "
        sentence = self.text if self.text.endswith((".", "?", "!")) else f"{self.text}."
        if self.remedy:
            remedy = self.remedy if self.remedy.endswith((".", "?", "!")) else f"{self.remedy}."
            sentence = f"{sentence} {remedy}"
        return f"{where}{sentence}"


class ConfigError(Exception):
    """A config, its tasks or its episode cannot be used; carries every problem found, not the first alone."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def named(key: str) -> str:
    """``training.group_size`` as ``[training] group_size``."""
    section, dot, last = key.rpartition(".")
    return f"[{section}] {last}" if dot else key


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, or None."""
    if len(word) > _LONGEST_WORD:
        return None
    candidates = list(known)
    by_folded = {candidate.casefold().replace("-", "_"): candidate for candidate in candidates}
    match = difflib.get_close_matches(word.casefold().replace("-", "_"), by_folded, n=1, cutoff=0.6)
    return by_folded[match[0]] if match else None
