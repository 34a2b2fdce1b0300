"""What a run has spent of its budget, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loops_tui.screens.runs_read import RunEntry
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, plain
from loops_tui.wording import count, number

NEAR = 0.8  # of a bound: from here on a run warns

# A bound of [budget], what of it is spent, and its unit.
BOUNDS = {
    "max_cost": ("cost", ""),
    "max_hours": ("hours", "h"),
    "max_sandbox_hours": ("sandbox_hours", "sandbox h"),
    "max_tokens": ("tokens", "tokens"),
}


def spent_of(spend: Mapping[str, Any], what: str) -> float | None:
    """So much is spent; tokens are those of prompts and replies together."""
    if what == "tokens":
        parts = [spend.get("prompt_tokens"), spend.get("sampled_tokens")]
        known = [part for part in parts if isinstance(part, int | float)]
        return float(sum(known)) if known else None
    value = spend.get(what)
    return float(value) if isinstance(value, int | float) else None


def shares(entry: RunEntry) -> list[tuple[str, float, float]]:
    """(bound, spent, limit) of each bound of the run's budget, the nearest to its end first."""
    found: list[tuple[str, float, float]] = []
    for bound, (what, _) in BOUNDS.items():
        limit, spent = entry.budget.get(bound), spent_of(entry.run.spend, what)
        if isinstance(limit, int | float) and limit > 0 and spent is not None:
            found.append((bound, spent, float(limit)))
    return sorted(found, key=lambda item: item[1] / item[2], reverse=True)


def share_spent(entry: RunEntry) -> float | None:
    """The greatest share of a bound that is spent; without a budget the cost, where it is known."""
    found = shares(entry)
    return found[0][1] / found[0][2] if found else spent_of(entry.run.spend, "cost")


def tone_of(share: float) -> Tone:
    return Tone.BAD if share >= 1 else Tone.WARN if share >= NEAR else Tone.PLAIN


def amount(value: float, bound: str, currency: str) -> str:
    """A figure with its unit: ``3.20 USD``, ``1.5 h``, ``2.1M tokens``."""
    unit = BOUNDS[bound][1] or safe(currency, 8) or "USD"
    if bound == "max_tokens":
        return f"{count(value)} {unit}"
    # Hours and money in hundredths: a run's first seconds are none.
    return f"{number(value) if value >= 0.01 else '0.00'} {unit}"


def spent_cell(entry: RunEntry) -> Line:
    """The most pressing bound in a few letters, or what the run has cost."""
    found = shares(entry)
    if found:
        bound, spent, limit = found[0]
        share = spent / limit
        return ((f"{share:.0%}", tone_of(share)), (f" of {short(limit, bound, entry.currency)}", Tone.DIM))
    cost = spent_of(entry.run.spend, "cost")
    return plain("–", Tone.DIM) if cost is None else plain(amount(cost, "max_cost", entry.currency))


def short(limit: float, bound: str, currency: str) -> str:
    unit = {
        "max_cost": safe(currency, 4) or "USD",
        "max_hours": "h",
        "max_sandbox_hours": "sb-h",
        "max_tokens": "tok",
    }
    return f"{count(limit) if bound == 'max_tokens' else f'{limit:g}'} {unit[bound]}"


def spent_line(entry: RunEntry) -> Line:
    """Everything that is known of it, for the details; empty where nothing is."""
    bounded = {bound: (spent, limit) for bound, spent, limit in shares(entry)}
    spans: list[Span] = []
    for bound, (what, _) in BOUNDS.items():
        spent = spent_of(entry.run.spend, what)
        if spent is None or (bound not in bounded and spent == 0):
            continue
        spans.append((" · " if spans else "spent ", Tone.DIM))
        if bound in bounded:
            _, limit = bounded[bound]
            share = spent / limit
            spans.append((amount(spent, bound, entry.currency), tone_of(share)))
            spans.append(
                (f" of {count(limit) if bound == 'max_tokens' else f'{limit:g}'} ({share:.0%})", Tone.DIM)
            )
        else:
            spans.append((amount(spent, bound, entry.currency), Tone.PLAIN))
    return tuple(spans)
