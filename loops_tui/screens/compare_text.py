"""Two runs beside each other in words and figures: pure functions from rows to lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from engine.config.comparing import Change
from engine.store.rows import EvalRow
from loops_tui.screens.compare_read import EVAL, LOSS, REWARD, CompareView, Side
from loops_tui.screens.runs_read import limits
from loops_tui.screens.runs_spend import BOUNDS, amount, spent_of
from loops_tui.screens.runs_text import model_name, progress
from loops_tui.theme import Tone
from loops_tui.widgets.line_plot import Series, empty_plot, plot_lines
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, pad, plain, width_of
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import elapsed, number, run_state, signed

LEFT, RIGHT = Tone.GOOD, Tone.ACCENT  # the tones of the two runs, in the plot and above their columns
GLYPHS = ("●", "◆")  # and their marks, for where there are no colours
LAST = 5  # steps that make the figure at the end of a curve
TITLES = {REWARD: "Reward", LOSS: "Loss", EVAL: "Evaluation"}
GAP = 2


def metric_title(metric: str) -> str:
    return TITLES.get(metric, metric)


def plot(view: CompareView, metric: str, width: int, height: int) -> list[Line]:
    """Both curves over each other under a line that says whose is whose and how they end."""
    legend: list[Span] = []
    series: list[Series] = []
    for side, tone, glyph in ((view.left, LEFT, GLYPHS[0]), (view.right, RIGHT, GLYPHS[1])):
        points = side.points(metric)
        series.append(Series(points, tone, mark=glyph if metric == EVAL else ""))
        legend.extend((("   " if legend else " ", Tone.PLAIN), (f"{glyph} {safe(side.run.name, 24)} ", tone)))
        legend.append((_course(points), Tone.DIM))
    drawn = plot_lines(series, width, height - 1)
    return [tuple(legend), *(drawn or empty_plot(width, height - 1, "no figures of this in either run"))]


def _course(points: Sequence[tuple[float, float]]) -> str:
    values = [value for _, value in points if math.isfinite(value)]
    if not values:
        return "no figures"
    return f"{number(values[0])} → {number(values[-1])}"


def lines(view: CompareView, width: int) -> list[Line]:
    """Final figures side by side, then the keys of the configs that differ."""
    columns = _Columns(width)
    left, right = view.left, view.right
    found: list[Line] = [*columns.heading(left, right)]
    for label, one, other in _figures(view):
        found.extend(columns.row(label, one, other))
    found.extend([(), *_diff(view.changes, columns)])
    return found


class _Columns:
    """A label and two values to a line; what is too long goes on below itself."""

    def __init__(self, width: int) -> None:
        self._label = max(14, min(34, width * 2 // 5))
        self._value = max(8, (width - self._label - 2 * GAP) // 2)

    def heading(self, left: Side, right: Side) -> Iterator[Line]:
        for glyph, tone, texts in (
            (GLYPHS, (LEFT, RIGHT), (left.run.name, right.run.name)),
            (("", ""), (Tone.DIM, Tone.DIM), (left.run.run_id, right.run.run_id)),
        ):
            cells = [
                ((f"{glyph[place]} " if glyph[place] else "", tone[place]), (safe(text, 60), tone[place]))
                for place, text in enumerate(texts)
            ]
            yield self._line(plain(""), *cells)

    def row(self, label: str, one: Line | str, other: Line | str) -> Iterator[Line]:
        """Lines of a figure; both values bright where they differ."""
        tone = Tone.PLAIN if one != other else Tone.DIM
        labels = list(wrap(label, self._label))
        ones, others = self._pieces(one, tone), self._pieces(other, tone)
        for place in range(max(len(labels), len(ones), len(others))):
            name = labels[place] if place < len(labels) else ""
            yield self._line(
                plain(name, Tone.DIM),
                ones[place] if place < len(ones) else (),
                others[place] if place < len(others) else (),
            )

    def _pieces(self, value: Line | str, tone: Tone) -> list[Line]:
        if isinstance(value, str):
            return [plain(piece, tone) for piece in wrap(value, self._value)]
        return [value]

    def _line(self, label: Line, one: Line, other: Line) -> Line:
        gap: Span = (" " * GAP, Tone.PLAIN)
        last = other if width_of(other) <= self._value else pad(other, self._value)
        return (*pad(label, self._label), gap, *pad(one, self._value), gap, *last)


def _figures(view: CompareView) -> Iterator[tuple[str, Line | str, Line | str]]:
    left, right = view.left, view.right
    now = max([*(side.run.ended_at or 0.0 for side in (left, right)), *_last_times(view)], default=0.0)

    def both(label: str, of: Callable[[Side], Line | str]) -> tuple[str, Line | str, Line | str]:
        return label, of(left), of(right)

    yield both("state", lambda side: run_state(side.run.state))
    yield both("steps", lambda side: progress(side.run))
    yield both("time taken", lambda side: elapsed(side.run.seconds(now)))
    yield both("model", lambda side: safe(model_name(side.run.base_model), 60))
    yield both("Loops", lambda side: safe(side.run.scope, 20))
    for metric in view.metrics()[:1]:
        name = metric_title(metric).lower()
        yield both(f"{name}, mean of last {LAST}", lambda side, metric=metric: number(_end(side, metric), 3))
        yield both(f"{name}, best", lambda side, metric=metric: number(_best(side, metric), 3))
        ends = _end(left, metric), _end(right, metric)
        if ends[0] is not None and ends[1] is not None:
            yield "difference", "", signed(ends[1] - ends[0], 3)
    if left.evals or right.evals:
        yield both("last evaluation", lambda side: _eval_words(side.evals))
    yield both("unusable groups", lambda side: str(side.run.unusable_groups))
    for bound, (what, _) in BOUNDS.items():
        if any(spent_of(side.run.spend, what) for side in (left, right)):
            yield both(f"spent: {what.replace('_', ' ')}", lambda side, bound=bound: _spent(side, bound))
    if left.run.error or right.run.error:
        yield both("error", lambda side: safe(side.run.error or "–", 300))


def _spent(side: Side, bound: str) -> str:
    value = spent_of(side.run.spend, BOUNDS[bound][0])
    return "–" if value is None else amount(value, bound, limits(side.run.config_toml)[1])


def _last_times(view: CompareView) -> list[float]:
    """When each run was last heard of: a run at work has taken time up to there."""
    return [
        max((step.ended_at or step.started_at for step in side.steps), default=side.run.created_at)
        for side in (view.left, view.right)
    ]


def _end(side: Side, metric: str) -> float | None:
    values = [value for _, value in side.points(metric) if math.isfinite(value)][-LAST:]
    return sum(values) / len(values) if values else None


def _best(side: Side, metric: str) -> float | None:
    values = [value for _, value in side.points(metric) if math.isfinite(value)]
    if not values:
        return None
    return min(values) if "loss" in metric else max(values)


def _eval_words(evals: Sequence[EvalRow]) -> str:
    done = [row for row in evals if row.mean is not None]
    if not done:
        return "–"
    row = done[0]
    interval = "" if row.low is None or row.high is None else f" ({number(row.low)} – {number(row.high)})"
    return f"{number(row.mean)}{interval} {safe(row.eval_id, 20)}"


def keys_differ(number: int) -> str:
    return "1 key differs" if number == 1 else f"{number} keys differ"


def _diff(found: Sequence[Change] | None, columns: _Columns) -> Iterator[Line]:
    if found is None:
        yield plain("Config: one of the two is no TOML and cannot be compared.", Tone.WARN)
        return
    if not found:
        yield plain("Config: no key differs.", Tone.STRONG)
        return
    yield plain(f"Config: {keys_differ(len(found))}", Tone.STRONG)
    for change in found:
        yield from columns.row(safe(change.key, 80), _value(change.old), _value(change.new))


def _value(written: str | None) -> str:
    return "(not set)" if written is None else safe(written, 300)
