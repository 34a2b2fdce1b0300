"""The plot of the Run screen: one figure at a time, smoothed where wanted, with a cursor that chooses a step."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from loops_tui.screens.run_curves import (
    EVAL_MARK,
    FIGURES,
    SMOOTHING,
    Figure,
    figures_of,
    held_out_points,
    metric_figure,
    points_of,
    series_of,
    stack_names,
    stack_of,
)
from loops_tui.screens.run_read import RunView
from loops_tui.screens.run_text import curve_words, pending
from loops_tui.theme import Tone
from loops_tui.widgets.line_plot import can_be_log, empty_plot, nice_end, plot_lines
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, SpanPane, entitle, in_room, plain
from loops_tui.widgets.stack_plot import stack_legend, stack_lines
from loops_tui.widgets.step_bar import share_legend
from loops_tui.wording import number


class CurvePane(SpanPane, can_focus=True):
    """One figure over the steps. Drawn again only when it has a new point, a new size or another choice."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left", "cursor(-1)", "Step", key_display="← →", id="plot.left", tooltip="The step before, on the curve"
        ),
        Binding("right", "cursor(1)", "Step", show=False, id="plot.right", tooltip="The step after, on the curve"),
        Binding("home", "edge(-1)", "First", show=False, id="plot.first", tooltip="The first step of the curve"),
        Binding("end", "edge(1)", "Last", show=False, id="plot.last", tooltip="The last step of the curve"),
        Binding("enter", "choose", "Its groups", id="plot.choose", tooltip="The groups of the step under the cursor"),
    ]  # fmt: skip

    class Chosen(Message):
        """The groups of this step are wanted."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Pointed(Message):
        """The cursor is on this step (None: there is none any more)."""

        def __init__(self, step: int | None) -> None:
            super().__init__()
            self.step = step

    def __init__(self) -> None:
        super().__init__(id="plot", classes="pane")
        self._view: RunView | None = None
        self._chosen: Figure | None = None
        self._window = SMOOTHING[0]
        self._log: dict[str, bool] = {}
        self._drawn: object = None
        self.cursor: int | None = None

    # -- what is shown -----------------------------------------------------------------------------------------

    def write(self, view: RunView) -> None:
        self._view = view
        self.recompose_lines()

    def available(self) -> list[Figure]:
        """The figures that this run has points for."""
        return [] if self._view is None else figures_of(self._view.names)

    def current(self) -> Figure:
        choices = self.available()
        if self._chosen is not None and (self._chosen in choices or self._chosen.key.startswith("metric:")):
            return self._chosen
        return choices[0] if choices else FIGURES[0]

    def turn(self, by: int) -> None:
        """Show the next figure, or the one before."""
        choices = self.available()
        if choices:
            here = self.current()
            place = choices.index(here) if here in choices else -1
            self._choose(choices[(place + by) % len(choices)])

    def choose_metric(self, name: str) -> None:
        """Show any one metric of the run."""
        self._choose(metric_figure(name))

    def smooth(self) -> None:
        """The next window of smoothing."""
        self._window = SMOOTHING[(SMOOTHING.index(self._window) + 1) % len(SMOOTHING)]
        self.recompose_lines()

    def toggle_log(self) -> None:
        figure = self.current()
        self._log[figure.key] = not self._log.get(figure.key, figure.log)
        self.recompose_lines()

    def can_toggle_log(self) -> bool:
        view, figure = self._view, self.current()
        return (
            view is not None
            and not figure.stack
            and can_be_log(series_of(figure, view.steps, view.names, view.evals, 1))
        )

    def can_smooth(self) -> bool:
        return self._view is not None and bool(self._view.names) and not self.current().stack

    def clear_cursor(self) -> None:
        if self.cursor is not None:
            self._move(None)

    def _choose(self, figure: Figure) -> None:
        self._chosen = figure
        self.recompose_lines()
        self.refresh_bindings()

    # -- drawing -----------------------------------------------------------------------------------------------

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        view = self._view
        if view is None or width < 1 or height < 1:
            return None
        figure = self.current()
        last = view.steps[-1] if view.steps else None
        key = (
            figure.key, self._window, self._log.get(figure.key), self.cursor, width, height, view.run.state,
            len(view.steps), last and last.state, len(view.evals), view.evals and view.evals[-1].mean,
        )  # fmt: skip
        if key == self._drawn:
            return None
        self._drawn = key
        title = f"{figure.title} by step"
        if not figure.stack and figure.curves:
            main = points_of(view.steps, view.names, figure.curves[0])
            told = curve_words(main, figure.lower_is_better, width - 4) if main else ""
        else:
            told = ""
        if self.cursor is not None:
            told = f"step {self.cursor}" + ("" if view.supervised else " · enter shows its groups")
        entitle(self, title, told)
        lines = (
            self._stack(view, figure, width, height)
            if figure.stack
            else self._curves(view, figure, width, height)
        )
        return lines or empty_plot(width, height, pending(view.run))  # fmt: skip

    def _curves(self, view: RunView, figure: Figure, width: int, height: int) -> list[Line]:
        series = series_of(figure, view.steps, view.names, view.evals, self._window)
        if not any(one.points for one in series if not one.mark):
            return []
        log = self._log.get(figure.key, figure.log) and can_be_log(series)
        drawn = plot_lines(
            series, width, height - 1, x_max=self._ahead(view), log=log, cursor=self._cursor_x(view)
        )
        return [in_room(self._legend(view, figure, log), width), *drawn] if drawn else []

    def _stack(self, view: RunView, figure: Figure, width: int, height: int) -> list[Line]:
        columns, names = stack_of(figure, view.steps, view.resumed_at), stack_names(figure)
        if not columns:
            return []
        shares = figure.stack == "time"
        amounts = next((found for step, found in columns if step == self.cursor), columns[-1][1])
        legend = share_legend(amounts, width) if shares else stack_legend(names, amounts, width)
        drawn = stack_lines(
            columns,
            names,
            width,
            height - len(legend),
            x_max=self._ahead(view),
            shares=shares,
            cursor=self._cursor_x(view),
        )
        return [*legend, *drawn] if drawn else []

    def _ahead(self, view: RunView) -> float | None:
        if view.run.state.final or not view.steps:
            return None
        return nice_end(float(view.steps[-1].step), float(view.run.max_steps) or None)

    def _cursor_x(self, view: RunView) -> float | None:
        return float(self.cursor) if self.cursor is not None and view.steps else None

    def _legend(self, view: RunView, figure: Figure, log: bool) -> list[Line]:
        """Each curve with its value at the cursor, or its last one; how it is smoothed and scaled."""
        parts: list[Line] = []
        for curve in figure.curves:
            points = points_of(view.steps, view.names, curve)
            if not points:
                continue
            at = [y for x, y in points if x == self.cursor] if self.cursor is not None else [points[-1][1]]
            value = number(at[0]) if at else "–"
            label = (f"{safe(curve.label, 60)} ", Tone.DIM)
            parts.append((("━ ", curve.tone), label, (f"{value}  ", Tone.PLAIN)))
        held = held_out_points(view.evals) if figure.held_out else []
        if held:
            value = (f"{number(held[-1][1])}  ", Tone.PLAIN)
            parts.append(((f"{EVAL_MARK} ", Tone.ACCENT), ("held-out ", Tone.DIM), value))
        if self._window > 1:
            parts.append(plain(f"{self._window}-step mean  ", Tone.DIM))
        if log:
            parts.append(plain("log scale", Tone.DIM))
        return parts

    # -- the cursor --------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("cursor", "edge"):
            return bool(self._finished())
        if action == "choose":
            return self.cursor is not None and self._view is not None and not self._view.supervised
        return super().check_action(action, parameters)

    def _finished(self) -> list[int]:
        return [] if self._view is None else [row.step for row in self._view.steps if row.metrics]

    def _move(self, step: int | None) -> None:
        self.cursor = step
        self.recompose_lines()
        self.post_message(self.Pointed(step))
        self.refresh_bindings()

    def action_cursor(self, by: int) -> None:
        steps = self._finished()
        if self.cursor not in steps:
            self._move(steps[-1])
        else:
            self._move(steps[max(0, min(len(steps) - 1, steps.index(self.cursor) + by))])

    def action_edge(self, end: int) -> None:
        self._move(self._finished()[0 if end < 0 else -1])

    def action_choose(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Chosen(self.cursor))
