"""The Run screen's keys that change how a run is looked at (plot, log) and those that ask something of it."""

from __future__ import annotations

from textual.events import Key

from engine.store.history_queries import LastCheckpoint
from loops_tui.screens.base import FedScreen
from loops_tui.screens.resume_asks import ask_to_resume
from loops_tui.screens.run_asks import ask, makes_sense, why_not
from loops_tui.screens.run_panes import LogPane
from loops_tui.screens.run_plot import CurvePane
from loops_tui.screens.run_read import RunView
from loops_tui.widgets.filter_line import FilterLine

EARLY_KEYS = 8  # kept at most until the run's rows come
ASKS = frozenset({"stop", "abort", "pause", "resume", "save_checkpoint", "resume_run"})


class RunControls(FedScreen):
    """A screen of one run, with its plot and its log; what is chosen of the run is the subclass's."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id
        self.view: RunView | None = None
        self._early: list[str] = []

    @property
    def log_view(self) -> LogPane:
        return self.query_one(LogPane)

    @property
    def curve(self) -> CurvePane:
        return self.query_one(CurvePane)

    def show_overview(self) -> None:
        """Bring the plot into view, where panes are shown one at a time."""
        raise NotImplementedError

    def on_key(self, event: Key) -> None:
        """A key that means nothing yet, because nothing is known of the run: pressed again as soon as that is."""
        if self.view is None and event.key not in self.active_bindings and len(self._early) < EARLY_KEYS:
            self._early.append(event.key)
            event.stop()

    def on_screen_suspend(self) -> None:
        self._early.clear()  # whoever comes back later has forgotten them

    def press_early_keys(self) -> None:
        """What was pressed before the run's rows came."""
        early, self._early = self._early, []
        for key in early:
            # From the app: what a screen sends bubbles no higher.
            self.app.call_later(self.app.simulate_key, key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self.view if self.is_mounted else None
        if action in ASKS:
            return makes_sense(action, view)
        if action in ("curve", "metric"):
            return view is not None and bool(view.names)
        if action == "smooth":
            return view is not None and self.curve.can_smooth()
        if action == "log_scale":
            return view is not None and self.curve.can_toggle_log()
        if action in ("level", "search"):
            return view is not None and bool(view.log)
        if action == "match":
            return view is not None and bool(self.log_view.needle)
        return super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        view = self.view
        if view is None:
            return None
        if action in ASKS:
            return why_not(action, view)
        return {
            "hold": "this run has ended: its view stands still",
            "follow": "the newest is shown already",
            "evaluations": "this run has no evaluation",
            "curve": "there is no figure before the first step is trained",
            "metric": "there is no figure before the first step is trained",
            "smooth": "this figure is a stack of parts: there is nothing to smooth",
            "log_scale": "this figure has no powers of ten: it is a stack, or has values that are not above zero",
            "level": "there is no line in the log yet",
            "search": "there is no line in the log yet",
            "match": "nothing is looked for: / finds a text in the log",
        }.get(action)

    # -- the plot ----------------------------------------------------------------------------------------------

    def action_curve(self, by: int) -> None:
        self.show_overview()
        self.curve.turn(by)

    def action_metric(self) -> None:
        from loops_tui.screens.run_picker import MetricPicker

        view = self.view
        if view is None:
            return
        last: dict[str, float] = {}
        for step in view.steps:
            last.update(step.metrics)

        def chosen(name: str | None) -> None:
            if name is not None:
                self.curve.choose_metric(name)

        self.app.push_screen(MetricPicker(last), chosen)

    def action_smooth(self) -> None:
        self.curve.smooth()

    def action_log_scale(self) -> None:
        self.curve.toggle_log()

    # -- the log -----------------------------------------------------------------------------------------------

    def action_level(self) -> None:
        self.log_view.turn_level()

    def action_search(self) -> None:
        self.query_one(FilterLine).open()

    def action_match(self, by: int) -> None:
        self.log_view.step_match(by)
        self.log_view.entitle()

    def on_filter_line_typed(self, event: FilterLine.Typed) -> None:
        self.log_view.find(event.text)
        self.log_view.entitle()

    def on_filter_line_left(self, event: FilterLine.Left) -> None:
        if not event.kept:
            self.log_view.find("")
        self.log_view.entitle()
        self.log_view.focus()
        self.refresh_bindings()

    # -- the run -----------------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        self._ask("pause")

    def action_resume(self) -> None:
        self._ask("resume")

    def action_stop(self) -> None:
        self._ask("stop")

    def action_abort(self) -> None:
        self._ask("abort")

    def _ask(self, kind: str) -> None:
        if self.view is not None:
            ask(self.app, self.view.run, kind)

    def action_save_checkpoint(self) -> None:
        self.app.ask_of_run(self.run_id, "save")

    def action_resume_run(self) -> None:
        if self.view is not None:
            last = self.view.saved[0]
            ask_to_resume(self.app, self.view.run, LastCheckpoint(last.name, last.step))
