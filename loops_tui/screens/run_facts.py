"""What the pane beside the plot says: a step in numbers, the run's health, the run's facts. Pure functions."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from engine.store.rows import EvalRow, RunRow, StepRow
from loops_tui.health import Finding
from loops_tui.lease_words import coarse, counted
from loops_tui.screens.run_curves import time_parts
from loops_tui.screens.run_pace import pace_facts
from loops_tui.screens.run_read import RunView
from loops_tui.screens.run_supervised import update_lines
from loops_tui.signals import first_of
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, fact, plain
from loops_tui.widgets.step_bar import share_bar, share_legend
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import count, duration, number, signed, words

WATCHED = (
    "groups and tasks that score alike",
    "attempts that run out of turns, tokens or time",
    "replies that cannot be parsed, attempts lost",
    "a reward that climbs too fast",
    "held-out reward that does not follow",
    "a sampler that disagrees with the trainer",
)
WATCHED_SUPERVISED = (
    "a loss that is no number",
    "a validation loss that rises while the training loss falls",
    "rows that are refused",
)


# -- a step --------------------------------------------------------------------------------------------------------

_NAMED = (
    ("reward", "reward/mean"),
    ("with unusable", "reward/mean_with_unusable"),
    ("spread in a group", "reward/group_std_mean"),
    ("loss", "loss"),
    ("validation loss", "loss/validation"),
)
_KL = ("kl_sample_train_v1_loops", "kl_sample_train_v2_loops", "kl_sample_train_k3")


def step_lines(view: RunView, width: int) -> list[Line]:
    """The chosen step, or the last finished one, each figure with its change where that says something."""
    step = view.shown_step
    if step is None or not step.metrics:
        told = "no finished step" if view.run.state.final else "the first step is under way"
        return [(), plain(f"  {told}" if view.wish.step is None else "  no figures yet", Tone.DIM)]
    now = step.metrics
    before_row = next((row for row in view.steps if row.step == step.step - 1), None)
    before = before_row.metrics if before_row is not None else {}
    lines = [_figure(label, name, now, before, width) for label, name in _NAMED if name in now]
    if view.supervised:
        lines.extend(update_lines(now, width))
    lines.extend(_discards(now, width))
    lines.extend(_divergence(now, width))
    lines.extend(_lag(view, step, width))
    lines.extend(_speed(now, width))
    shares = time_parts(step, before_row, view.resumed_at)
    if shares or view.supervised:
        lines.append(fact("step took", duration(now.get("time/step")), width))
    if shares:
        lines.append(share_bar(shares, width))
        lines.extend(share_legend(shares, width))
    lines.extend(_endings(now, width))
    return lines


def _figure(label: str, name: str, now: Mapping[str, float], before: Mapping[str, float], width: int) -> Line:
    value = now[name]
    change: Line = plain("        ")
    if name in before:
        difference = value - before[name]
        up = difference > 0
        tone = Tone.DIM
        if name == "reward/mean" and abs(difference) >= 0.005:
            tone = Tone.GOOD if up else Tone.WARN
        arrow = "=" if abs(difference) < 0.005 else "▲" if up else "▼"
        shown = 0.0 if arrow == "=" else difference  # not -0.00
        change = ((f" {arrow} {signed(shown):>5}", tone),)
    return fact(label, number(value, 3 if "loss" in name else 2), width, change=change)


def _discards(now: Mapping[str, float], width: int) -> list[Line]:
    alike, finished = now.get("discard/groups/no_variance"), now.get("groups/finished")
    if alike is None:
        return []
    of = f" of {finished:.0f}" if finished is not None else ""
    lines = [fact("groups all alike", f"{alike:.0f}{of}", width, Tone.WARN if alike else Tone.PLAIN)]
    many = now.get("discard/groups/too_many_losses", 0.0)
    if many:
        lines.append(fact("groups with many lost", f"{many:.0f}{of}", width, Tone.WARN))
    lost = now.get("discard/attempts", 0.0)
    if lost:
        lines.append(fact("attempts lost", f"{lost:.0f}", width, Tone.WARN))
    return lines


def _divergence(now: Mapping[str, float], width: int) -> list[Line]:
    values = [first_of(now, name) for name in _KL]
    if values[2] is None:
        return []
    v1, v2, k3 = ("–" if value is None else "0" if not value else number(value) for value in values)
    lines = [fact("KL sampler/trainer k3", k3, width), fact("KL v1, v2", f"{v1}, {v2}", width)]
    ess = first_of(now, "ess_fraction")
    if ess is not None and ess < 0.995:
        lines.append(fact("effective samples", f"{ess:.0%}", width))
    return lines


def _lag(view: RunView, step: StepRow, width: int) -> list[Line]:
    """By how many publishes the groups of a step were older than the weights it began with."""
    if step.policy_version is None:
        return []
    lags = sorted(
        step.policy_version - 1 - group.policy_version
        for group in view.groups
        if group.step == step.step and group.policy_version is not None
    )
    if not lags or lags[-1] <= 0:
        return []
    mean = sum(lags) / len(lags)
    return [fact("policies behind", f"{mean:.1f}, at most {lags[-1]}", width)]


def _speed(now: Mapping[str, float], width: int) -> list[Line]:
    sampled, rate = now.get("tokens/sampled"), now.get("tokens/sampled_per_second")
    if sampled is None:
        return []
    rate_text = f", {count(rate)}/s" if rate else ""
    return [fact("tokens sampled", f"{count(sampled)}{rate_text}", width)]


def _endings(now: Mapping[str, float], width: int) -> list[Line]:
    """``rollout/…``: what the episodes told about themselves; rates of texts as percentages."""
    lines: list[Line] = []
    for name in sorted(now):
        if not name.startswith("rollout/"):
            continue
        parts = name.split("/")[1:]
        label = words(": ".join(parts))
        value = f"{now[name]:.0%}" if len(parts) > 1 else number(now[name])
        lines.append(fact(safe(label, 60), value, width))
    return lines


# -- health --------------------------------------------------------------------------------------------------------


def health_lines(found: Sequence[Finding], run: RunRow, width: int) -> list[Line]:
    """Every finding with its numbers and what to do."""
    lines: list[Line] = []
    for finding in found:
        if lines:
            lines.append(())
        for place, piece in enumerate(wrap(safe(finding.text, 400), max(10, width - 2))):
            lines.append((("! " if place == 0 else "  ", finding.tone), (piece, finding.tone)))
        for text, tone in ((finding.basis, Tone.DIM), (finding.remedy, Tone.PLAIN)):
            if text and text not in finding.text:
                lines.extend(plain(f"  {piece}", tone) for piece in wrap(safe(text, 400), max(10, width - 2)))
    if not found:
        told = "nothing looked wrong at its end" if run.state.final else "nothing looks wrong"
        lines.append(plain(told, Tone.GOOD))
        lines.append(())
        lines.append(plain("watched are", Tone.DIM))
        for text in WATCHED_SUPERVISED if run.recipe == "sft" else WATCHED:
            pieces = list(wrap(text, max(10, width - 2)))
            lines.extend(
                plain(("· " if place == 0 else "  ") + piece, Tone.DIM) for place, piece in enumerate(pieces)
            )
    return lines


# -- the run -------------------------------------------------------------------------------------------------------


def run_lines(view: RunView, width: int) -> list[Line]:
    """What was saved, evaluated and spent, and what the run is."""
    run = view.run
    lines = [
        *pace_facts(view, width),
        *_saved(view, width),
        *_evaluations(view.evals, width),
        *_spent(run, width),
        *_loops(view, width),
    ]
    lines.append(())
    lines.append(fact("model", safe(run.base_model, 60), width))
    shape = f"{run.groups_per_step} × {run.group_size} attempts a step" if run.group_size else ""
    lines.append(fact(f"{run.recipe} {run.mode}".strip(), shape, width))
    if run.info.get("isolation"):
        lines.append(fact("sandboxes", safe(str(run.info["isolation"]), 40), width))
    if view.sandboxes:
        lines.append(fact("sandboxes in use", str(view.sandboxes), width))
    lines.extend(_resumed(view, width))
    for name, value in run.info.items():
        told = ", ".join(str(item) for item in value) if isinstance(value, list) else value
        if name not in _TOLD_ELSEWHERE and isinstance(told, str | int | float) and told != "":
            lines.append(fact(safe(words(name), 24), safe(str(told), 80), width))
    if view.host is not None and not run.state.final:
        lines.append(fact("host", f"{view.host.kind}, pid {view.host.pid}", width))
    for label, path in (("config", run.config_path), ("files", run.run_dir)):
        room = max(8, width - len(label) - 2)
        lines.append(fact(label, safe(path if len(path) <= room else "…" + path[-room + 1 :]), width))
    return lines


def _resumed(view: RunView, width: int) -> list[Line]:
    """How often it was taken up again, and when last."""
    if not view.resumed_at:
        return []
    at = time.strftime("%H:%M on %d %b", time.localtime(view.resumed_at[-1]))
    return [fact("resumed", f"{counted(len(view.resumed_at), 'time')}, last at {at}", width)]


def _saved(view: RunView, width: int) -> list[Line]:
    saved = view.saved
    if not saved:
        return [fact("checkpoints", "none", width, Tone.DIM)]
    last = saved[0]
    many = counted(len(saved), "checkpoint")
    lines = [fact(many, f"last {safe(last.name, 30)}", width)]
    if view.run.state.final:  # a time of day: nothing turns an age here once a run has ended
        at = time.strftime("%H:%M on %d %b", time.localtime(last.saved_at or last.created_at))
        lines.append(fact("", f"saved at {at}", width, Tone.DIM))
    return lines


def _evaluations(evals: Sequence[EvalRow], width: int) -> list[Line]:
    """Newest last, as their points in the reward's plot."""
    lines: list[Line] = []
    for row in evals[-6:]:
        told = row.state
        if row.mean is not None:
            low_high = f" ({number(row.low)} – {number(row.high)})" if row.low is not None else ""
            told = f"{number(row.mean)}{low_high}"
        elif row.state == "running" and row.tasks:
            told = f"{row.graded} of {row.tasks * row.attempts}"
        lines.append(fact(f"◆ {safe(row.eval_id, 24)}", told, width))
    return lines


_TOLD_ELSEWHERE = ("isolation", "sandbox_warnings", "config_sha256", "ended_by", "resumed")
_SPENT = (
    ("hours", "max_hours", "hours"),
    ("sandbox_hours", "max_sandbox_hours", "sandbox hours"),
    ("cost", "max_cost", "cost"),
)


def _spent(run: RunRow, width: int) -> list[Line]:
    """What it used, each against its ``[budget]`` where the config gives one."""
    spend = run.spend
    if not spend:
        return []
    budget = _budget(run)
    lines: list[Line] = []
    for name, key, label in _SPENT:
        if name in spend:
            lines.extend(_against(label, float(spend[name]), budget.get(key), width))
    tokens = float(spend.get("prompt_tokens", 0)) + float(spend.get("sampled_tokens", 0))
    if tokens:
        lines.extend(_against("tokens", tokens, budget.get("max_tokens"), width))
    return lines


def _against(label: str, used: float, most: object, width: int) -> list[Line]:
    told = count(used) if used >= 1000 else number(used) if used >= 0.01 else "0.00"
    if not isinstance(most, int | float) or most <= 0:
        return [fact(label, told, width)]
    share = used / most
    of = count(float(most)) if most >= 1000 else f"{most:g}"
    tone = Tone.BAD if share >= 1 else Tone.WARN if share >= 0.8 else Tone.PLAIN
    return [fact(label, f"{told} of {of} ({share:.0%})", width, tone)]


def _budget(run: RunRow) -> Mapping[str, Any]:
    try:
        found = tomllib.loads(run.config_toml).get("budget", {})
    except tomllib.TOMLDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _loops(view: RunView, width: int) -> list[Line]:
    run = view.run
    if run.loops_run_id is None:
        return []
    lines = [fact(f"Loops, {safe(run.scope, 12)}", safe(run.loops_run_id, 40), width)]
    # The local server ends with the last program that uses it: of a run that has ended, nothing is up there.
    if run.loops_state is not None and not (run.scope == "local" and run.state.final):
        bills = run.scope != "local" and run.loops_until is None
        since = (
            f", bills since {coarse(view.now - run.loops_since)}"
            if bills and run.loops_since is not None
            else ""
        )
        lines.append(
            fact("", f"{safe(run.loops_state, 20)}{since}", width, Tone.WARN if bills else Tone.PLAIN)
        )
    return lines
