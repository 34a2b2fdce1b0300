"""The rows of the Run screen's tables: groups, attempts, and the bins of a histogram of rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.store.rows import AttemptRow, GroupRow, GroupState
from loops_tui.screens.run_read import RunView
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, plain
from loops_tui.widgets.virtual_table import Cells, Column
from loops_tui.wording import (
    attempt_state,
    count,
    elapsed,
    group_state,
    number,
    reward_tone,
    signed,
    words,
)

GROUP_COLUMNS = (
    Column("group", "group", 5, right=True),
    Column("state", "state", 11),
    Column("task", "task", 8, flex=3, most=40),
    Column("step", "step", 4, right=True, drop=3),
    Column("done", "done", 5, right=True, drop=1),
    Column("mean", "reward", 6, right=True),
    Column("std", "spread", 6, right=True),
    Column("range", "low – high", 11, drop=4),
)

ATTEMPT_COLUMNS = (
    Column("attempt", "#", 5, right=True),
    Column("state", "state", 10, flex=1, most=18),
    Column("reward", "reward", 6, right=True),
    Column("advantage", "adv.", 6, right=True, drop=3),
    Column("turns", "turns", 5, right=True, drop=2),
    Column("tokens", "tokens", 6, right=True, drop=2),
    Column("ending", "ending", 9, flex=2, most=30, drop=1),
    Column("tries", "tries", 5, right=True, drop=5),
    Column("time", "time", 6, right=True, drop=4),
)

BIN_COLUMNS = (
    Column("reward", "reward", 11, right=True),
    Column("bar", "", 6, flex=1),
    Column("count", "attempts", 8, right=True),
)

MOST_BINS = 10
WHY = {
    "no_variance": "all its attempts scored alike: it teaches nothing",
    "too_many_losses": "too many of its attempts were lost",
    "no_tokens": "it left no tokens to train on",
    "stopped": "the run ended before it was trained on",
    "aborted": "the run was aborted before it was trained on",
    "failed": "the run failed before it was trained on",
}


def why_rejected(row: GroupRow | None) -> str:
    """Why a group was not trained on, in words of ours; "" where it was, or still may be."""
    if row is None or row.state not in (GroupState.REJECTED, GroupState.LOST):
        return ""
    return WHY.get(row.reason or "", "")


def group_cells(row: GroupRow, group_size: int) -> Cells:
    low_high = ""
    if row.reward_min is not None and row.reward_max is not None:
        low_high = f"{row.reward_min:.2f} – {row.reward_max:.2f}"
    ended = row.attempts_done + row.attempts_lost
    known = row.reward_mean is not None
    return (
        plain(str(row.group_id), Tone.DIM),
        group_state(row),
        plain(safe(row.task_id, 80)),
        plain("–" if row.step is None else str(row.step), Tone.DIM),
        plain(
            f"{ended}/{group_size}" if group_size else str(ended),
            Tone.WARN if row.attempts_lost else Tone.DIM,
        ),
        plain(number(row.reward_mean), Tone.STRONG if known else Tone.DIM),
        plain(number(row.reward_std), Tone.DIM),
        plain(low_high, Tone.DIM),
    )


def attempt_key(row: AttemptRow) -> str:
    return f"{row.group_id}.{row.attempt}"


def place_of(key: str) -> tuple[int, int]:
    """Group and attempt of :func:`attempt_key`."""
    group_id, attempt = key.split(".")
    return int(group_id), int(attempt)


def attempt_cells(row: AttemptRow, now: float, mixed: bool) -> Cells:
    """``mixed``: the rows are of several groups, so each says of which."""
    start, end = row.started_at or row.queued_at, row.ended_at
    seconds = None if start is None else (end if end is not None else now) - start
    ending = row.error or words(row.ending or "")
    if row.timed_out:
        ending = f"timed out; {ending}" if ending else "timed out"
    return (
        plain(attempt_key(row) if mixed else str(row.attempt), Tone.DIM),
        attempt_state(row),
        plain(number(row.reward), Tone.STRONG if row.reward is not None else Tone.DIM),
        plain(signed(row.advantage), reward_tone(row.advantage)),
        plain(str(row.turns) if row.turns else "–", Tone.DIM),
        plain(count(row.sampled_tokens) if row.sampled_tokens else "–", Tone.DIM),
        plain(safe(ending, 120), Tone.BAD if row.error else Tone.DIM),
        plain(str(row.tries), Tone.WARN if row.tries > 1 else Tone.DIM),
        plain(_coarse(seconds, running=end is None), Tone.DIM),
    )


def _coarse(seconds: float | None, running: bool) -> str:
    """A running attempt's clock goes in steps: one that ticks in every row is dear on a slow line."""
    if seconds is not None and running and seconds >= 10:
        seconds -= seconds % 10
    return elapsed(seconds)


@dataclass(frozen=True, slots=True)
class Bin:
    """Attempts with a reward from ``low`` to ``high``, both included."""

    low: float
    high: float
    attempts: int

    @property
    def key(self) -> str:
        return f"{self.low!r}:{self.high!r}"

    @property
    def words(self) -> str:
        if self.low == self.high:
            return number(self.low)
        return f"{number(self.low)} – {number(self.high)}"


def bins_of(rewards: Mapping[float, int]) -> list[Bin]:
    """A histogram, highest rewards first: a bin for each value where there are few of them, else equal widths."""
    if not rewards:
        return []
    values = sorted(rewards)
    if len(values) <= MOST_BINS:
        return [Bin(value, value, rewards[value]) for value in reversed(values)]
    low, high = values[0], values[-1]
    filled: dict[int, list[float]] = {}
    for value in values:
        place = min(MOST_BINS - 1, int((value - low) / (high - low) * MOST_BINS))
        filled.setdefault(place, []).append(value)
    # The bounds are those of the values in it, so that the attempts asked for are exactly those counted.
    return [
        Bin(part[0], part[-1], sum(rewards[value] for value in part))
        for _, part in sorted(filled.items(), reverse=True)
    ]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar as a table's cell, in eighths of a cell."""

    share: float
    tone: Tone = Tone.INFO

    def line(self, width: int) -> Line:
        eighths = max(1, round(self.share * width * 8)) if self.share > 0 else 0
        whole, rest = divmod(eighths, 8)
        return plain("█" * whole + ("▏▎▍▌▋▊▉"[rest - 1] if rest else ""), self.tone)


def bin_cells(row: Bin, most: int) -> Cells:
    return (
        plain(row.words, Tone.PLAIN),
        Bar(row.attempts / most if most else 0.0),
        plain(count(row.attempts), Tone.DIM),
    )


def histogram_words(rewards: Mapping[float, int]) -> str:
    """How many, and around what."""
    total = sum(rewards.values())
    if not total:
        return ""
    mean = sum(value * times for value, times in rewards.items()) / total
    return f"{count(total)} attempts · mean {number(mean)}"


def most_of(bins: Sequence[Bin]) -> int:
    return max((row.attempts for row in bins), default=0)


def groups_title(view: RunView) -> str:
    """Of what the groups are, in words of ours: titles are read as markup."""
    wish = view.wish
    if wish.eval_id is not None:
        found = next((row for row in view.evals if row.eval_id == wish.eval_id), None)
        if found is None or found.step is None:
            return "Groups of the base model's evaluation"
        return f"Groups of the evaluation at step {found.step}"
    return "Groups" if wish.step is None else f"Groups of step {wish.step}"


def attempts_title(view: RunView) -> str:
    if view.wish.rewards is not None:
        low, high = view.wish.rewards
        bounds = number(low) if low == high else f"{number(low)} – {number(high)}"
        of_step = "" if view.wish.step is None else f" in step {view.wish.step}"
        return f"Attempts with reward {bounds}{of_step}"
    if view.group_id is None:
        return "Attempts"
    if view.group_id < 0:
        return f"Attempts of held-out group {-view.group_id}"
    newest = " (newest)" if view.wish.following else ""
    return f"Attempts of group {view.group_id}{newest}"
