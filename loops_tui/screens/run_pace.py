"""How fast a live run goes and what its step waits for, as its host says every few seconds: pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.store.rows import RunRow, RunState
from loops_tui.lease_words import counted
from loops_tui.screens.run_read import RunView
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, fact, in_room
from loops_tui.wording import count

LATE_SECONDS = 0.05  # of the engine's event loop, p99: from here on model calls are held up
_GAP: Span = ("   ", Tone.PLAIN)


def pace_line(view: RunView, width: int) -> Line:
    """The rates in one line, as many of them as there is room for; empty where nothing is known."""
    figures = _figures(view.run)
    parts: list[Line] = []
    if _late(figures):
        parts.append(((f"engine {_milliseconds(figures['loop_lag_p99'])} late", Tone.WARN),))
    for name, unit in (("attempts_per_minute", "attempts/min"), ("tokens_per_second", "tokens/s")):
        if name in figures:
            parts.append(((_rate(figures[name]), Tone.PLAIN), (f" {unit}", Tone.DIM)))
    if "slots_busy" in figures:
        parts.append(
            (("slots ", Tone.DIM), (f"{figures['slots_busy']:.0%}", Tone.PLAIN), (" busy", Tone.DIM))
        )
    if figures and view.run.mode == "async":
        parts.append(((counted(view.groups_ahead, "group"), Tone.PLAIN), (" ahead", Tone.DIM)))
    line = in_room(parts, width - 1, (_GAP,))
    return ((" ", Tone.PLAIN), *line) if line else ()


def pace_facts(view: RunView, width: int) -> list[Line]:
    """All of it, each figure under its name."""
    figures = _figures(view.run)
    lines: list[Line] = []
    waits = waited_group(view.run)
    if waits:
        lines.append(fact("the step waits for", waits, width))
    for name, label in (
        ("attempts_per_minute", "attempts a minute"),
        ("tokens_per_second", "tokens a second"),
    ):
        if name in figures:
            lines.append(fact(label, _rate(figures[name]), width))
    if "slots_busy" in figures:
        lines.append(fact("sampling slots busy", f"{figures['slots_busy']:.0%}", width))
    if figures.get("ahead"):
        lines.append(fact("attempts set up ahead", f"{figures['ahead']:.0f}", width))
    if figures and view.run.mode == "async":
        lines.append(fact("groups of later steps", str(view.groups_ahead), width))
    if "loop_lag_p99" in figures:
        tone = Tone.WARN if _late(figures) else Tone.PLAIN
        lines.append(
            fact("engine late, 99 in 100", f"≤ {_milliseconds(figures['loop_lag_p99'])}", width, tone)
        )
    return lines


def waited_group(run: RunRow) -> str:
    """The group that the next update waits for (``group 8, 13 attempts left``); empty where it waits for none."""
    waits = _told(run).get("waits_for")
    sampling = run.phase == "sampling" and run.state is RunState.RUNNING
    return safe(waits, 60) if sampling and isinstance(waits, str) and waits.startswith("group ") else ""


def _told(run: RunRow) -> Mapping[str, Any]:
    """What its host said last. While a run that was taken up again starts, that is of its life before."""
    told = run.info.get("pace")
    over = run.state.final or run.state is RunState.STARTING
    return {} if over or not isinstance(told, dict) else told


def _figures(run: RunRow) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in _told(run).items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _late(figures: Mapping[str, float]) -> bool:
    return figures.get("loop_lag_p99", 0.0) > LATE_SECONDS


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _rate(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 10 else count(value)
