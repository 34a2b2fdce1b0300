"""What the Run screen says of fine-tuning: how far through its data it is, a step's figures, data and checkpoints."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from engine.store.rows import CheckpointState, StepRow
from loops_tui.lease_words import counted
from loops_tui.screens.run_read import RunView
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, clip, fact, plain
from loops_tui.widgets.step_bar import step_bar
from loops_tui.wording import count, duration, number

PACE_STEPS = 20  # newest ones that say how long a step takes, validations between them included


def trained_line(view: RunView, width: int) -> Line:
    """The share of the steps that are trained, and what that is in epochs, tokens and time."""
    run, done = view.run, _done(view)
    if not done:
        waiting = "no finished step" if run.state.final else "waiting for the first step"
        return ((" ", Tone.PLAIN), (waiting, Tone.DIM))
    now = done[-1].metrics
    told: list[Span] = []
    if "epoch" in now:
        of = epochs_of(view)
        told.append((f"  epoch {now['epoch']:.2f}" + (f" of {of}" if of else ""), Tone.PLAIN))
    told.append((f"  {count(_total(done, 'tokens/trained'))} tokens trained", Tone.DIM))
    rate = now.get("tokens/trained_per_second")
    if rate:
        told.append((f", {count(rate)}/s", Tone.DIM))
    left = seconds_left(view)
    if left is not None:
        told.append((f"  about {duration(max(left, 10.0))} left", Tone.DIM))
    bar = step_bar({"done": run.step}, max(run.max_steps, run.step, 1), max(8, min(40, width // 4)))
    return clip(((" ", Tone.PLAIN), *bar, *told), width)


def seconds_left(view: RunView) -> float | None:
    """Until the last step, at the pace of the newest ones; None where nothing says."""
    run, done = view.run, _done(view)[-PACE_STEPS:]
    last = done[-1].ended_at if done else None
    if run.state.final or last is None or not run.max_steps:
        return None
    return max(0.0, (last - done[0].started_at) / len(done) * (run.max_steps - run.step))


def update_lines(now: Mapping[str, float], width: int) -> list[Line]:
    """One optimizer step's figures besides its losses."""
    lines: list[Line] = []
    if "learning_rate" in now:
        lines.append(fact("learning rate", f"{now['learning_rate']:.2e}", width))
    if "epoch" in now:
        lines.append(fact("epoch", f"{now['epoch']:.2f}", width))
    if "rows" in now:
        lines.append(fact("rows", f"{now['rows']:.0f}", width))
    if "tokens/trained" in now:
        of = f" of {count(now['tokens/total'])}" if "tokens/total" in now else ""
        lines.append(fact("tokens trained", f"{count(now['tokens/trained'])}{of}", width))
    if "tokens/trained_per_second" in now:
        lines.append(fact("tokens a second", count(now["tokens/trained_per_second"]), width))
    norm = next((value for name, value in now.items() if name.endswith("grad_norm")), None)
    if norm is not None:
        lines.append(fact("gradient norm", number(norm, 3), width))
    return lines


def data_lines(view: RunView, width: int) -> list[Line]:
    """The rows it learns from, those it is measured by, and what was saved."""
    data = view.run.info.get("data")
    lines: list[Line] = []
    if isinstance(data, dict):
        lines.extend(_rows(data, width))
    else:
        lines.append(plain("the data is prepared first" if not view.run.state.final else "no data", Tone.DIM))
    done = _done(view)
    if done:
        trained = f"{count(_total(done, 'rows'))} rows, {count(_total(done, 'tokens/trained'))} tokens"
        lines.append(fact("trained so far", trained, width))
    loss = view.run.info.get("loss")
    if (
        isinstance(loss, dict)
        and isinstance(loss.get("first"), float)
        and isinstance(loss.get("last"), float)
    ):
        best = f", best {number(loss['best'], 3)}" if isinstance(loss.get("best"), float) else ""
        told = f"{number(loss['first'], 3)} → {number(loss['last'], 3)}{best}"
        lines.append(fact("validation loss", told, width))
    lines.append(())
    lines.extend(_checkpoints(view, width))
    return lines


def _rows(data: Mapping[str, Any], width: int) -> list[Line]:
    def of(name: str) -> int:
        value = data.get(name)
        return value if isinstance(value, int) else 0

    rows, refused, samples = of("rows"), of("refused"), of("samples")
    parts = f", {counted(samples, 'sample')}" if samples != rows - refused else ""
    lines = [fact("training rows", f"{rows:,}{parts}", width)]
    share = f" ({refused / rows:.0%})" if rows and refused else ""
    lines.append(fact("refused", f"{refused:,}{share}", width, Tone.WARN if refused else Tone.PLAIN))
    lines.append(fact("tokens trained an epoch", count(of("trained_tokens")), width))
    held = of("validation_rows")
    lines.append(
        fact("validation rows", f"{held:,}" if held else "none", width, Tone.PLAIN if held else Tone.DIM)
    )
    return lines


def _checkpoints(view: RunView, width: int) -> list[Line]:
    """Newest first, each with the validation loss that was known when it was saved."""
    if not view.checkpoints:
        return [fact("checkpoints", "none", width, Tone.DIM)]
    losses = {
        row.step: row.metrics["loss/validation"] for row in view.steps if "loss/validation" in row.metrics
    }
    lines: list[Line] = []
    for row in view.checkpoints:
        if row.state is CheckpointState.SAVED:
            known = max((step for step in losses if step <= row.step), default=None)
            told = "saved" if known is None else f"validation {number(losses[known], 3)}"
            lines.append(fact(f"◆ {safe(row.name, 30)}", told, width))
        else:
            lines.append(fact(f"◆ {safe(row.name, 30)}", str(row.state), width, Tone.WARN))
    return lines


def epochs_of(view: RunView) -> str:
    """As its config says; empty where it does not."""
    try:
        found = tomllib.loads(view.run.config_toml).get("training", {}).get("epochs")
    except tomllib.TOMLDecodeError:
        return ""
    return f"{found:g}" if isinstance(found, int | float) else ""


def _done(view: RunView) -> list[StepRow]:
    return [row for row in view.steps if row.state == "done"]


def _total(done: list[StepRow], metric: str) -> float:
    return sum(row.metrics.get(metric, 0.0) for row in done)
