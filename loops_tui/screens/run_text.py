"""What the Run screen says: pure functions from rows to lines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from engine.store.rows import (
    AttemptRow,
    AttemptState,
    CommandRow,
    CommandState,
    GroupRow,
    GroupState,
    LogRow,
    RunRow,
    RunState,
    StepRow,
)
from loops_tui.health import Finding
from loops_tui.lease_words import counted
from loops_tui.screens.run_read import RunView
from loops_tui.screens.runs_text import progress, run_seconds
from loops_tui.signals import kl_of
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, clip, plain, spread, width_of
from loops_tui.widgets.step_bar import share_bar, share_legend, step_bar, step_legend
from loops_tui.widgets.virtual_table import Cells, Column
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import (
    attempt_state,
    count,
    duration,
    elapsed,
    group_state,
    number,
    reward_tone,
    run_state,
    signed,
    words,
)

GROUP_COLUMNS = (
    Column("group", "group", 5, right=True),
    Column("state", "state", 11),
    Column("task", "task", 10, flex=3, most=40),
    Column("step", "step", 4, right=True, drop=3),
    Column("done", "done", 5, right=True, drop=1),
    Column("mean", "reward", 6, right=True),
    Column("range", "low – high", 11, drop=4),
    Column("std", "spread", 6, right=True, drop=2),
)

ATTEMPT_COLUMNS = (
    Column("attempt", "#", 3, right=True),
    Column("state", "state", 10, flex=1, most=18),
    Column("reward", "reward", 6, right=True),
    Column("advantage", "adv.", 6, right=True, drop=1),
    Column("turns", "turns", 5, right=True, drop=3),
    Column("tokens", "tokens", 6, right=True, drop=2),
    Column("ending", "ending", 8, flex=2, most=30, drop=1),
    Column("time", "time", 6, right=True, drop=4),
)

_IN_SETUP = (AttemptState.PROVISIONING, AttemptState.SETUP)
_ENDED = (AttemptState.DONE, AttemptState.LOST, AttemptState.DISCARDED, AttemptState.CANCELLED)


def step_counts(view: RunView) -> dict[str, int]:
    """The attempts of the step in hand under the names of the bar."""
    counts: dict[str, int] = {}

    def add(name: str, amount: int) -> None:
        if amount:
            counts[name] = counts.get(name, 0) + amount

    for state, amount in view.counts.items():
        name = "done" if state in _ENDED else "setup" if state in _IN_SETUP else str(state)
        add(name, amount)
    # Groups that are graded and wait for their batch are no longer in flight but belong to the step.
    ready = [group for group in view.groups if group.state is GroupState.READY]
    add("done", sum(group.attempts_done + group.attempts_lost for group in ready))
    return counts


def header(view: RunView, found: Sequence[Finding], width: int) -> list[Line]:
    """State, progress, and what is wrong. The first line is where the run stands, the second where its step does."""
    run = view.run
    left: list[Span] = [(" ", Tone.PLAIN), *run_state(run.state)]
    if run.phase and not run.state.final:
        left.append((f"  {safe(run.phase, 40)}", Tone.PLAIN))
    right: list[Span] = [("step ", Tone.DIM), (progress(run), Tone.STRONG)]
    if run.policy_version is not None:
        right.extend((("   policy ", Tone.DIM), (f"v{run.policy_version}", Tone.PLAIN)))
    seconds = run_seconds(run, view.now)
    if seconds is not None:
        right.append((f"   {elapsed(seconds)} ", Tone.PLAIN))
    lines = [spread(tuple(left), tuple(right), width)]
    lines.append(_progress_line(view, width))
    asked = asked_words(view.command)
    if asked is not None and not run.state.final:
        found = [Finding(Tone.ACCENT, asked), *found]
    lasting = [finding for finding in found if finding.lasting]
    passing = [finding for finding in found if not finding.lasting]
    shown = [*lasting, *passing[:2]]
    for place, finding in enumerate(shown):
        last = place == len(shown) - 1
        more = f"  (+{len(found) - len(shown)} more)" if last and len(found) > len(shown) else ""
        pieces = list(wrap(safe(finding.line, 400) + more, max(20, width - 4)))[:2]
        for part, piece in enumerate(pieces):
            lines.append(((" ! " if part == 0 else "   ", finding.tone), (piece, finding.tone)))
    return lines


def _progress_line(view: RunView, width: int) -> Line:
    run = view.run
    if run.state.final:
        done = run.step / run.max_steps if run.max_steps else 1.0
        bar = step_bar({"done": round(done * 1000)}, 1000, min(40, width - 30))
        trained = f"  {run.step} of {counted(run.max_steps, 'step')} trained"
        return ((" ", Tone.PLAIN), *bar, (trained, Tone.DIM))
    counts = step_counts(view)
    total = max(run.group_size * run.groups_per_step, sum(counts.values()))
    if not total:
        return ((" ", Tone.PLAIN), ("waiting for the first attempts", Tone.DIM))
    legend, tally = step_legend(counts), f"  {counts.get('done', 0)}/{total} attempts  "
    if width - len(tally) - width_of(legend) < 16:
        legend, tally = step_legend(counts, gap=1), f"  {counts.get('done', 0)}/{total}  "
    room = max(8, min(48, width - len(tally) - width_of(legend) - 1))
    bar = step_bar(counts, total, room)
    return clip(((" ", Tone.PLAIN), *bar, (tally, Tone.PLAIN), *legend), width)


def asked_words(command: CommandRow | None) -> str | None:
    """A command that is still under way, or was turned down."""
    if command is None or command.state is CommandState.DONE:
        return None
    kind = {"stop": "stop after this step", "abort": "abort"}.get(command.kind, command.kind)
    if command.state in (CommandState.REFUSED, CommandState.FAILED):
        return f"{kind} was {command.state}: {safe(command.answer or 'no reason given', 120)}"
    return f"{kind}: {'asked' if command.state is CommandState.QUEUED else 'under way'}"


# -- figures -------------------------------------------------------------------------------------------------------


def figures(steps: Sequence[StepRow], run: RunRow, width: int, height: int) -> list[Line]:
    """The last finished step in numbers, each with its change where that says something."""
    done = [step for step in steps if step.state == "done"]
    if not done:
        words_ = "no finished step" if run.state.final else "the first step is under way"
        return [(), plain(f"  {words_}", Tone.DIM)]
    now = done[-1].metrics
    before = done[-2].metrics if len(done) > 1 else {}
    lines = [_figure(label, name, now, before, width) for label, name in _NAMED if name in now]
    lines.extend(_discards(now, width))
    kl = kl_of(now)
    if kl is not None:
        lines.append(_row("KL sampler/trainer k3", number(kl) if kl else "0", width))
    lines.extend(_speed(now, width))
    shares = {name.removeprefix("time/share/"): now[name] for name in now if name.startswith("time/share/")}
    if shares:
        lines.append(_row("step took", duration(now.get("time/step")), width))
        lines.append(share_bar(shares, width))
        lines.extend(share_legend(shares, width))
    room = height - len(lines)
    if room > 1:
        lines.extend(_endings(now, width)[:room])
    return [clip(line, width) for line in lines[:height]]


_NAMED = (
    ("reward", "reward/mean"),
    ("with unusable", "reward/mean_with_unusable"),
    ("spread in a group", "reward/group_std_mean"),
    ("loss", "loss"),
    ("held-out loss", "eval/loss"),
)


def _row(label: str, value: str, width: int, change: Line = ()) -> Line:
    return spread(plain(label, Tone.DIM), ((value, Tone.PLAIN), *change), width)


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
        change = ((f" {arrow} {signed(difference):>5}", tone),)
    return _row(label, number(value, 3 if "loss" in name else 2), width, change)


def _discards(now: Mapping[str, float], width: int) -> list[Line]:
    alike, finished = now.get("discard/groups/no_variance"), now.get("groups/finished")
    if alike is None:
        return []
    of = f" of {finished:.0f}" if finished is not None else ""
    tone = Tone.WARN if alike else Tone.PLAIN
    lines = [spread(plain("groups all alike", Tone.DIM), ((f"{alike:.0f}{of}", tone),), width)]
    lost = now.get("discard/attempts", 0.0)
    if lost:
        lines.append(spread(plain("attempts lost", Tone.DIM), ((f"{lost:.0f}", Tone.WARN),), width))
    return lines


def _speed(now: Mapping[str, float], width: int) -> list[Line]:
    sampled, rate = now.get("tokens/sampled"), now.get("tokens/sampled_per_second")
    if sampled is None:
        return []
    rate_text = f", {count(rate)}/s" if rate else ""
    return [_row("tokens sampled", f"{count(sampled)}{rate_text}", width)]


def _endings(now: Mapping[str, float], width: int) -> list[Line]:
    """``rollout/…``: what the episodes told about themselves; rates of texts as percentages."""
    lines: list[Line] = []
    for name in sorted(now):
        if not name.startswith("rollout/"):
            continue
        parts = name.split("/")[1:]
        label = words(": ".join(parts))
        value = f"{now[name]:.0%}" if len(parts) > 1 else number(now[name])
        lines.append(_row(safe(label, 60), value, width))
    return lines


# -- tables --------------------------------------------------------------------------------------------------------


def group_cells(row: GroupRow, group_size: int) -> Cells:
    low_high = ""
    if row.reward_min is not None and row.reward_max is not None:
        low_high = f"{row.reward_min:.2f} – {row.reward_max:.2f}"
    ended = row.attempts_done + row.attempts_lost
    return (
        plain(str(row.group_id), Tone.DIM),
        group_state(row),
        plain(safe(row.task_id, 80)),
        plain("–" if row.step is None else str(row.step), Tone.DIM),
        plain(
            f"{ended}/{group_size}" if group_size else str(ended),
            Tone.WARN if row.attempts_lost else Tone.DIM,
        ),
        plain(number(row.reward_mean), Tone.STRONG if row.reward_mean is not None else Tone.DIM),
        plain(low_high, Tone.DIM),
        plain(number(row.reward_std), Tone.DIM),
    )


def attempt_cells(row: AttemptRow, now: float) -> Cells:
    start, end = row.started_at or row.queued_at, row.ended_at
    seconds = None if start is None else (end if end is not None else now) - start
    ending = row.error or words(row.ending or "")
    if row.timed_out:
        ending = f"timed out; {ending}" if ending else "timed out"
    return (
        plain(str(row.attempt), Tone.DIM),
        attempt_state(row),
        plain(number(row.reward), Tone.STRONG if row.reward is not None else Tone.DIM),
        plain(signed(row.advantage), reward_tone(row.advantage)),
        plain(str(row.turns) if row.turns else "–", Tone.DIM),
        plain(count(row.sampled_tokens) if row.sampled_tokens else "–", Tone.DIM),
        plain(safe(ending, 120), Tone.BAD if row.error else Tone.DIM),
        plain(_coarse(seconds, running=end is None), Tone.DIM),
    )


def _coarse(seconds: float | None, running: bool) -> str:
    """A running attempt's clock goes in steps: one that ticks in every row is dear on a slow line."""
    if seconds is not None and running and seconds >= 10:
        seconds -= seconds % 5
    return elapsed(seconds)


# -- log -----------------------------------------------------------------------------------------------------------

_LEVELS = {
    "debug": (" ", Tone.FAINT),
    "info": (" ", Tone.PLAIN),
    "warning": ("!", Tone.WARN),
    "error": ("×", Tone.BAD),
}


def log_lines(rows: Sequence[LogRow]) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        glyph, tone = _LEVELS.get(row.level, (" ", Tone.PLAIN))
        at = time.strftime("%H:%M:%S", time.localtime(row.at))
        lines.append(
            (
                (f"{at} ", Tone.DIM),
                (f"{glyph} ", tone),
                (f"{safe(row.source, 12):<8} ", Tone.DIM),
                (safe(row.text, 1000), tone if tone is not Tone.FAINT else Tone.DIM),
            )
        )
    return lines


def curve(steps: Sequence[StepRow], name: str) -> list[tuple[float, float]]:
    """A metric over the steps that have it."""
    if name == "kl":
        pairs = [(step.step, kl_of(step.metrics)) for step in steps]
        return [(float(step), value) for step, value in pairs if value is not None]
    return [(float(step.step), step.metrics[name]) for step in steps if name in step.metrics]


def curve_words(points: Sequence[tuple[float, float]], lower_is_better: bool) -> str:
    """First, last and best of a curve."""
    if not points:
        return ""
    best = (min if lower_is_better else max)(points, key=lambda point: point[1])
    first, last = points[0][1], points[-1][1]
    return f"first {number(first)} · last {number(last)} · best {number(best[1])} (step {best[0]:.0f})"


def pending(run: RunRow) -> str:
    """What to say where there is no point to plot yet."""
    if run.state in (RunState.CREATED, RunState.STARTING):
        return "the run is starting"
    return "no finished step" if run.state.final else "the first step is under way"
