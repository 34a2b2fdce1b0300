"""Rewards on a final answer: exactly right, right up to its spelling, or a part of it right."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from engine.rewards.attempt import text_of
from engine.rewards.functions import RewardFunction
from engine.rewards.scored import Reward

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?")


def exact_answer(column: str = "answer", value: float = 1.0) -> RewardFunction:
    """``value`` where the text, without white space around it, is exactly the data set's ``column``."""
    return _compared("exact_answer_reward", column, value, str.strip)


def normalised_answer(column: str = "answer", value: float = 1.0) -> RewardFunction:
    """As :func:`exact_answer`, after :func:`normalise` on both sides."""
    return _compared("normalised_answer_reward", column, value, normalise)


def numeric_answer(column: str = "answer", value: float = 1.0, tolerance: float = 1e-6) -> RewardFunction:
    """``value`` where the last number in the text is the expected one, within ``tolerance`` (relative, or absolute
    below 1)."""

    def score(attempt: Any, columns: Mapping[str, Any]) -> Reward:
        wanted = float(str(_expected(columns, column)).replace(",", ""))
        found = _NUMBER.findall(text_of(attempt))
        if not found:
            return Reward(0.0, reason="no number in the answer")
        said = float(found[-1].replace(",", ""))
        right = abs(said - wanted) <= tolerance * max(1.0, abs(wanted))
        return Reward(value if right else 0.0, reason="" if right else f"{said:g} is not {wanted:g}")

    return RewardFunction("numeric_answer_reward", score)


def partial_credit(fraction: float, value: float = 1.0, *, reason: str = "") -> Reward:
    """``value`` times the share that is right, such as the tests that pass; 0 to 1."""
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"a fraction must be between 0 and 1, not {fraction}")
    return Reward(value * fraction, reason=reason)


def normalise(text: str) -> str:
    """Lower case, without accents' forms, punctuation, articles and repeated white space (as SQuAD's script does)."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(" " if unicodedata.category(char)[0] in "PS" else char for char in plain)
    return " ".join(_ARTICLE.sub(" ", words).split())


def _compared(name: str, column: str, value: float, form: Callable[[str], str]) -> RewardFunction:
    def score(attempt: Any, columns: Mapping[str, Any]) -> Reward:
        wanted = _expected(columns, column)
        answers = wanted if isinstance(wanted, list | tuple) else [wanted]
        said = form(text_of(attempt))
        right = any(said == form(str(answer)) for answer in answers)
        return Reward(value if right and said else 0.0, reason="" if right and said else "another answer")

    return RewardFunction(name, score)


def _expected(columns: Mapping[str, Any], column: str) -> Any:
    if column not in columns:
        raise ValueError(f"this reward needs the column {column!r} of the data set")
    return columns[column]
