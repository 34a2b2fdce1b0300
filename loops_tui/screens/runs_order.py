"""Which runs are shown, and in which order: the filter's words and the columns one sorts by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loops_tui.screens.runs_read import RunEntry
from loops_tui.screens.runs_spend import share_spent

FIELDS: dict[str, Callable[[RunEntry], str]] = {
    "state": lambda entry: f"{entry.run.state} {'live' if entry.live else 'ended'}",
    "recipe": lambda entry: entry.run.recipe,
    "model": lambda entry: entry.run.base_model,
    "name": lambda entry: entry.run.name,
    "id": lambda entry: entry.run.run_id,
    "scope": lambda entry: entry.run.scope,
}
"""What ``field:word`` looks into; a word without one looks into all of them."""


def matches(entry: RunEntry, needle: str) -> bool:
    """Whether every word of ``needle`` occurs in what one sees of this run: ``state:failed agent``."""
    return all(_matches(entry, word) for word in needle.casefold().split())


def _matches(entry: RunEntry, word: str) -> bool:
    name, colon, wanted = word.partition(":")
    field = FIELDS.get(name) if colon else None
    if field is not None:
        return wanted in field(entry).casefold()
    return any(word in of(entry).casefold() for of in FIELDS.values())


@dataclass(frozen=True, slots=True)
class Order:
    """A column to sort by: its key, how it is called, its value, and whether the largest comes first."""

    column: str
    word: str
    value: Callable[[RunEntry], str | float | None]
    falling: bool = True


ORDERS: Sequence[Order | None] = (
    None,  # live ones first, then newest first: as the store gives them
    Order("name", "name", lambda entry: entry.run.name.casefold(), falling=False),
    Order("step", "step", lambda entry: entry.run.step),
    Order("reward", "reward", lambda entry: entry.run.reward_last),
    Order("elapsed", "time taken", lambda entry: entry.run.seconds(entry.now)),
    Order("spent", "spent", share_spent),
)


def arranged(entries: Sequence[RunEntry], order: Order | None, turned: bool) -> list[RunEntry]:
    """The runs in this order, or turned around; what has no value comes last either way."""
    if order is None:
        return list(reversed(entries)) if turned else list(entries)
    known: list[tuple[str | float, RunEntry]] = []
    unknown: list[RunEntry] = []
    for entry in entries:
        value = order.value(entry)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            unknown.append(entry)
        else:
            known.append((value, entry))
    known.sort(key=lambda item: item[0], reverse=order.falling != turned)
    return [entry for _, entry in known] + unknown
