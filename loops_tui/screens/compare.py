"""Two runs beside each other: their curves, their final figures, and what differs in their configs."""

from __future__ import annotations

from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from loops_tui.feed import ReadPlan
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.compare_read import CompareView, read_pair
from loops_tui.screens.compare_text import keys_differ, lines, metric_title, plot
from loops_tui.theme import Tone
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.search_view import SearchView
from loops_tui.widgets.spans import Line, SpanPane, entitle, plain


class CurvesPane(SpanPane):
    """One figure of both runs over the steps."""

    def __init__(self) -> None:
        super().__init__(id="curves", classes="pane")
        self._view: CompareView | None = None
        self._metric = ""

    def write(self, view: CompareView, metric: str) -> None:
        self._view, self._metric = view, metric
        self.recompose_lines()

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        return None if self._view is None else plot(self._view, self._metric, width, height)


class CompareScreen(FedScreen):
    """The older run stands left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "metric(1)", "Plot", id="compare.metric", tooltip="Plot the next figure that both have"),
        Binding("V", "metric(-1)", "Plot before", show=False, id="compare.metric_before", tooltip="… the one before"),
        Binding("m", "pick", "Metric", id="compare.pick", tooltip="Plot any figure that both have, found by a few letters"),
        Binding("x", "swap", "Swap", id="compare.swap", tooltip="Left becomes right"),
        Binding("escape", "back", "Back", id="compare.back", tooltip="Back to the runs"),
    ]  # fmt: skip

    def __init__(self, left: str, right: str) -> None:
        super().__init__()
        self._pair = (left, right)
        self._metric: str | None = None
        self.view: CompareView | None = None

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        with Container(id="body"):
            yield CurvesPane()
            yield SearchView(id="figures", classes="pane")
        yield KeyBar()

    @property
    def figures(self) -> SearchView:
        return self.query_one("#figures", SearchView)

    def on_mount(self) -> None:
        self.figures.border_title = "Figures and configs"
        self.figures.focus()
        self._write_top("")

    def _write_top(self, right: str) -> None:
        self.query_one(TopLine).write(
            [self.app.project_dir.name or "/", "Runs", "Compare"], plain(right, Tone.DIM)
        )

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan:
        pair = self._pair
        return lambda reader: (pair, read_pair(reader, *pair))

    def take(self, data: object) -> None:
        pair, view = cast("tuple[tuple[str, str], CompareView | None]", data)
        if pair != self._pair:
            return  # swapped while this was read
        self.view = view
        self._show()

    def _show(self) -> None:
        view = self.view
        if view is None:
            self.figures.show([(), plain("One of the two runs is no longer in the store.", Tone.DIM)])
            return
        metrics = view.metrics()
        metric = self._metric if self._metric in metrics else metrics[0] if metrics else ""
        pane = self.query_one(CurvesPane)
        place = f"{metrics.index(metric) + 1} of {len(metrics)}, v for the next" if len(metrics) > 1 else ""
        entitle(pane, f"{metric_title(metric)} by step" if metric else "No figures yet", place)
        pane.write(view, metric)
        self.figures.show(lines(view, self.figures.scrollable_content_region.width))
        same = keys_differ(len(view.changes)) if view.changes else "same config"
        self._write_top(same if view.changes is not None else "")
        self.refresh_bindings()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("metric", "pick"):
            return self.view is not None and len(self.view.metrics()) > 1
        return super().check_action(action, parameters)

    def action_metric(self, by: int) -> None:
        if self.view is None:
            return
        metrics = self.view.metrics()
        here = metrics.index(self._metric) if self._metric in metrics else 0
        self._metric = metrics[(here + by) % len(metrics)]
        self._show()

    def action_pick(self) -> None:
        from loops_tui.screens.run_picker import MetricPicker

        view = self.view
        if view is None:
            return
        ends = {metric: view.left.points(metric) or view.right.points(metric) for metric in view.metrics()}

        def chosen(metric: str | None) -> None:
            if metric is not None:
                self._metric = metric
                self._show()

        self.app.push_screen(
            MetricPicker({metric: points[-1][1] for metric, points in ends.items() if points}), chosen
        )

    def action_swap(self) -> None:
        self._pair = (self._pair[1], self._pair[0])
        self.app.poke()

    def action_back(self) -> None:
        self.dismiss(None)
