"""The panes of the Run screen that are not tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message

from loops_tui.health import Finding
from loops_tui.screens.run_read import RunView
from loops_tui.screens.run_text import curve, curve_words, figures, header, pending
from loops_tui.theme import Tone
from loops_tui.widgets.line_plot import Series, empty_plot, plot_lines
from loops_tui.widgets.spans import Line, Span, SpanPane, entitle


class RunHeader(SpanPane):
    """Where the run stands, and what is wrong with it."""

    DEFAULT_CSS = "RunHeader { height: auto; min-height: 2; max-height: 8; }"

    def __init__(self) -> None:
        super().__init__(id="header")
        self._view: RunView | None = None
        self._findings: Sequence[Finding] = ()

    def write(self, view: RunView, found: Sequence[Finding]) -> None:
        before = len(self.lines)
        self._view, self._findings = view, found
        self.recompose_lines()
        if len(self.lines) != before:
            self.refresh(layout=True)

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        return None if self._view is None else header(self._view, self._findings, width)


@dataclass(frozen=True, slots=True)
class Curve:
    """A plot to choose from."""

    name: str
    title: str
    lower_is_better: bool = False
    tone: Tone = Tone.GOOD


CURVES = (
    Curve("reward/mean", "Reward"),
    Curve("reward/group_std_mean", "Spread in a group", tone=Tone.INFO),
    Curve("discard/groups/no_variance", "Groups all alike", lower_is_better=True, tone=Tone.WARN),
    Curve("kl", "KL sampler/trainer, k3", lower_is_better=True, tone=Tone.WARN),
    Curve("tokens/sampled_per_second", "Tokens sampled per second", tone=Tone.INFO),
    Curve("time/step", "Seconds a step", lower_is_better=True, tone=Tone.INFO),
    Curve("rollout/turns", "Turns", tone=Tone.INFO),
    Curve("eval/loss", "Held-out loss", lower_is_better=True),
    Curve("loss", "Loss", lower_is_better=True, tone=Tone.INFO),
)


class CurvePane(SpanPane):
    """One metric over the steps. Drawn again only when it has a new point or a new size."""

    def __init__(self) -> None:
        super().__init__(id="plot", classes="pane")
        self._view: RunView | None = None
        self._choice: str | None = None
        self._drawn: object = None

    def write(self, view: RunView) -> None:
        self._view = view
        self.recompose_lines()

    def available(self) -> list[Curve]:
        """The curves that this run has points for."""
        if self._view is None:
            return []
        names = {name for step in self._view.steps for name in step.metrics}
        has_kl = bool(curve(self._view.steps, "kl"))
        return [item for item in CURVES if item.name in names or (item.name == "kl" and has_kl)]

    def next(self) -> None:
        """Show the next curve."""
        choices = self.available()
        if choices:
            names = [item.name for item in choices]
            place = names.index(self._choice) + 1 if self._choice in names else 1
            self._choice = names[place % len(names)]
            self._drawn = None
            self.recompose_lines()

    def current(self) -> Curve:
        choices = self.available()
        chosen = [item for item in choices if item.name == self._choice]
        if chosen:
            return chosen[0]
        if self._view is not None and self._view.run.recipe == "sft":
            loss = [item for item in choices if "loss" in item.name]
            return loss[0] if loss else CURVES[-1]
        return CURVES[0]

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        view = self._view
        if view is None or width < 1 or height < 1:
            return None
        choice = self.current()
        points = curve(view.steps, choice.name)
        key = (choice.name, len(points), points[-1] if points else view.run.state, width, height)
        if key == self._drawn:
            return None
        self._drawn = key
        words = curve_words(points, choice.lower_is_better) if points else ""
        entitle(self, f"{choice.title} by step", words)
        if not points:
            return empty_plot(width, height, pending(view.run))
        ahead = (
            None
            if view.run.state.final
            else float(min(view.run.max_steps, max(10, round(points[-1][0] * 1.5))))
        )
        return plot_lines([Series(points, choice.tone)], width, height, x_max=ahead) or empty_plot(
            width, height, ""
        )


class FiguresPane(SpanPane):
    """The last step in numbers."""

    def __init__(self) -> None:
        super().__init__(id="figures", classes="pane")
        self._view: RunView | None = None

    def write(self, view: RunView) -> None:
        self._view = view
        done = [step for step in view.steps if step.state == "done"]
        entitle(self, f"Step {done[-1].step}" if done else "Last step")
        self.recompose_lines()

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        view = self._view
        return None if view is None or width < 1 else figures(view.steps, view.run, width, height)


class TabLine(SpanPane):
    """Which panes are shown, where there is not room for all."""

    DEFAULT_CSS = "TabLine { height: 1; }"

    class Chosen(Message):
        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self, tabs: dict[str, str]) -> None:
        super().__init__(id="tabs")
        self._tabs = tabs
        self._current = next(iter(tabs))
        self._spots: list[tuple[int, int, str]] = []

    def write(self, current: str) -> None:
        self._current = current
        self.recompose_lines()

    def compose_lines(self, width: int, height: int) -> list[Line]:
        spans: list[Span] = [(" ", Tone.PLAIN)]
        self._spots = []
        used = 1
        for name, title in self._tabs.items():
            here = name == self._current
            text = f"[{title}]" if here else f" {title} "
            self._spots.append((used, used + len(text), name))
            spans.append((text, Tone.TITLE if here else Tone.DIM))
            used += len(text)
        spans.append(("   [ ] switch", Tone.FAINT))
        return [tuple(spans)]

    def on_click(self, event: events.Click) -> None:
        for start, end, name in self._spots:
            if start <= event.x < end:
                self.post_message(self.Chosen(name))
