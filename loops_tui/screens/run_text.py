"""What the Run screen says of a run as a whole, and its log: pure functions from rows to lines."""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.store.rows import AttemptState, CommandRow, CommandState, LogRow, RunRow, RunState
from loops_tui.health import Finding
from loops_tui.lease_words import coarse, counted
from loops_tui.screens.run_pace import pace_line, waited_group
from loops_tui.screens.run_read import RunView
from loops_tui.screens.run_supervised import trained_line
from loops_tui.screens.runs_text import progress
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, in_room, plain, spread, width_of
from loops_tui.widgets.step_bar import step_bar, step_legend
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import ATTEMPT_STATES, elapsed, number, run_state

NARROW = 110  # columns: below, one finding is said at a time
ENDING_LINES = 3  # for why a run has ended
SHORTEST_BAR = 8  # cells
_ENDED = (AttemptState.DONE, AttemptState.LOST, AttemptState.DISCARDED, AttemptState.CANCELLED)
_NAMES = {AttemptState.PROVISIONING: "sandbox"}
ANSWER_SECONDS = 60.0  # how long a carried-out command's answer stays on the screen


def step_counts(view: RunView) -> dict[str, int]:
    """The attempts of the step in hand (or of an evaluation under way) under the names of the bar, all of them."""
    progress = view.progress
    states = progress.training or progress.evaluating
    counts: dict[str, int] = dict.fromkeys(("done", "grading", "acting", "sampling", "setup"), 0)
    if view.run.info.get("isolation"):
        counts["sandbox"] = 0
    counts["queued"] = 0
    for state, amount in states.items():
        name = "done" if state in _ENDED else _NAMES.get(state, str(state))
        counts[name] = counts.get(name, 0) + amount
    # Groups that are graded and wait for their batch are no longer in flight but belong to the step.
    if not progress.evaluating or progress.training:
        counts["done"] += progress.ready_attempts
    return counts


def header(view: RunView, found: Sequence[Finding], width: int, *, acts: bool = True) -> list[Line]:
    """State, progress, and what is wrong. First where the run stands, then where its step does, then how fast.

    ``acts``: whether keys may change anything.
    """
    run = view.run
    right: list[Span] = [("step ", Tone.DIM), (progress(run), Tone.STRONG)]
    if run.policy_version is not None and not view.supervised:
        right.extend((("   policy ", Tone.DIM), (f"v{run.policy_version}", Tone.PLAIN)))
    seconds = run.seconds(view.now)
    if seconds is not None:
        right.append((f"   {elapsed(seconds)} ", Tone.PLAIN))
    doing = [()] if run.state.final else _doing(view, width, acts)
    first: Line = ((" ", Tone.PLAIN), *run_state(run.state), *doing[0])
    left = in_room([first, *doing[1:]], max(width_of(first), width - width_of(tuple(right)) - 2))
    lines = [spread(left, tuple(right), width)]
    lines.append(trained_line(view, width) if view.supervised else _progress_line(view, width))
    pace = pace_line(view, width)
    if pace:
        lines.append(pace)
    lasting = [finding for finding in found if finding.lasting]
    if not run.state.final and not _asked_before_a_resume(view):
        lasting += _asked(view)
    passing = [finding for finding in found if not finding.lasting]
    shown = [*lasting, *passing[: 2 if width >= NARROW else 1]]
    hidden = len(lasting) + len(passing) - len(shown)
    more = f"  (+{hidden} more, i)" if hidden else ""
    for place, finding in enumerate(shown):
        rest = more if place == len(shown) - 1 else ""
        # Why a run has ended is worth its lines: nothing else moves there any more.
        most = ENDING_LINES if run.state.final and place == 0 else 1
        lines.extend(_finding_lines(finding, rest, width, most))
    return lines


def _asked(view: RunView) -> list[Finding]:
    """What was asked of the run last, and its answer; only a refusal warns."""
    command, words = view.command, asked_words(view.command, view.now)
    if command is None or words is None:
        return []
    refused = command.state in (CommandState.REFUSED, CommandState.FAILED)
    return [Finding(Tone.WARN if refused else Tone.ACCENT, words, lasting=True)]


def _asked_before_a_resume(view: RunView) -> bool:
    """Whether the last answer is of the run's life before: what was asked of it then holds no more."""
    asked_at = 0.0 if view.command is None else view.command.created_at
    return view.run.state is RunState.STARTING or any(at > asked_at for at in view.resumed_at)


def _finding_lines(finding: Finding, rest: str, width: int, most: int) -> list[Line]:
    """A finding in at most so many lines, cut between words; ``rest`` follows on the last of them."""
    room = max(20, width - 4)
    pieces = list(wrap(safe(finding.line, 400), room))
    if len(pieces) > most or width_of(plain(pieces[-1] + rest)) > room:
        pieces = list(wrap(safe(finding.line, 400), room - len(rest) - 2))
    if len(pieces) > most:
        pieces = [*pieces[: most - 1], pieces[most - 1] + " …"]
    mark = " › " if finding.tone is Tone.ACCENT else " ! "  # an answer is no warning
    lines: list[Line] = [
        ((mark if place == 0 else "   ", finding.tone), (piece, finding.tone))
        for place, piece in enumerate(pieces)
    ]
    lines[-1] = (*lines[-1], (rest, Tone.DIM))
    return lines


def _doing(view: RunView, width: int, acts: bool) -> list[Line]:
    """The phase and for how long; what it waits for; what keeps it waiting longest."""
    run, counts = view.run, step_counts(view)
    open_ = sum(counts.values()) - counts["done"]
    group = waited_group(run)
    if group and width < NARROW:
        parts = [plain(f"  waits for {group.partition(' attempt')[0]} left")]
    else:
        parts = [plain(f"  {safe(run.phase, 40)}") if run.phase else ()]
    if view.phase_since is not None and run.state is not RunState.PAUSED:
        parts.append(plain(f" {elapsed(max(0.0, view.now - view.phase_since))}"))
    if run.state is RunState.PAUSED:
        waits = "  waits for P: go on" if acts else "  until it is told to go on"
        return [*(parts if open_ else [()]), plain(waits, Tone.DIM)]
    if run.phase == "sampling" and (open_ or group):
        if not group or width >= NARROW:
            parts.append(plain(f"  waits for {group or counted(open_, 'attempt')}", Tone.DIM))
        oldest = view.progress.oldest
        if oldest is not None and oldest.started_at is not None:
            lasted = view.now - oldest.started_at
            if lasted >= 10:
                word = ATTEMPT_STATES[oldest.state][1]
                place = f"{oldest.group_id} #{oldest.attempt}"
                parts.append(
                    plain(f", longest group {place}, {word}, {coarse(lasted - lasted % 5)}", Tone.DIM)
                )
    elif run.phase in ("training", "publishing"):
        parts.append(plain("  waits for Loops", Tone.DIM))
    return parts


def _progress_line(view: RunView, width: int) -> Line:
    run = view.run
    if run.state.final:
        done = run.step / run.max_steps if run.max_steps else 1.0
        bar = step_bar({"done": round(done * 1000)}, 1000, min(40, width - 30))
        trained = f"  {run.step} of {counted(run.max_steps, 'step')} trained"
        return ((" ", Tone.PLAIN), *bar, (trained, Tone.DIM))
    counts = step_counts(view)
    evaluating = bool(view.progress.evaluating) and not view.progress.training
    total = sum(counts.values())
    if not evaluating:
        total = max(run.group_size * run.groups_per_step, total)
    if not sum(counts.values()):
        waits = f"waiting for the {'next' if view.groups else 'first'} attempts"
        said = "no attempts in flight" if run.state is RunState.PAUSED else waits
        return ((" ", Tone.PLAIN), (said, Tone.DIM))
    what = "evaluated" if evaluating else "attempts"
    done = f"{counts['done']:>{len(str(total))}}/{total}"
    legend, tally = step_legend(counts), f"  {done} {what}  "
    if width - len(tally) - width_of(legend) < 16:
        legend, tally = step_legend(counts, gap=1), f"  {done}  "
    # Left out first is what is none, then what the bar's rest and the tally tell.
    shown = {name: number for name, number in counts.items() if number or name == "done"}
    for known in ((), ("queued",), ("queued", "done")):
        if width - len(tally) - width_of(legend) < 9:
            legend = step_legend({name: shown[name] for name in shown if name not in known}, gap=1)
    room = max(SHORTEST_BAR, min(48, width - len(tally) - width_of(legend) - 1))
    if room + len(tally) + width_of(legend) + 1 > width:
        legend = step_legend(shown, gap=1, width=width - len(tally) - room - 1)
    bar = step_bar(counts, total, room)
    return ((" ", Tone.PLAIN), *bar, (tally, Tone.PLAIN), *legend)


def asked_words(command: CommandRow | None, now: float) -> str | None:
    """A command that is under way, was turned down, or was carried out a moment ago."""
    if command is None:
        return None
    kind = {"stop": "stop after this step", "save": "save a checkpoint"}.get(command.kind, command.kind)
    if command.state in (CommandState.REFUSED, CommandState.FAILED):
        return f"{kind} was {command.state}: {safe(command.answer or 'no reason given', 120)}"
    if command.state is CommandState.DONE:
        fresh = command.answered_at is not None and now - command.answered_at < ANSWER_SECONDS
        return f"{kind}: {safe(command.answer, 120)}" if fresh and command.answer else None
    return f"{kind}: {'asked' if command.state is CommandState.QUEUED else 'under way'}"


# -- log -----------------------------------------------------------------------------------------------------------

_LEVELS = {
    "debug": (" ", Tone.FAINT),
    "info": (" ", Tone.PLAIN),
    "warning": ("!", Tone.WARN),
    "error": ("×", Tone.BAD),
}


LEVELS = ("all", "warning", "error")  # what the log can be narrowed to


def log_line(row: LogRow) -> Line:
    glyph, tone = _LEVELS.get(row.level, (" ", Tone.PLAIN))
    at = time.strftime("%H:%M:%S", time.localtime(row.at))
    return (
        (f"{at} ", Tone.DIM),
        (f"{glyph} ", tone),
        (f"{safe(row.source, 12):<8} ", Tone.DIM),
        (safe(row.text, 1000), tone if tone is not Tone.FAINT else Tone.DIM),
    )


def wrapped_log_line(line: Line, width: int) -> list[Line]:
    """A line of the log in as many lines as it takes, its text below itself."""
    *head, (text, tone) = line
    indent = width_of(tuple(head))
    first, *rest = wrap(text, max(20, width - indent))
    below: list[Line] = [((" " * indent, Tone.PLAIN), (piece, tone)) for piece in rest]
    return [(*head, (first, tone)), *below]


def curve_words(points: Sequence[tuple[float, float]], lower_is_better: bool, room: int) -> str:
    """First, last and best of a curve, shorter where that is too long for ``room`` cells."""
    if not points:
        return ""
    best = (min if lower_is_better else max)(points, key=lambda point: point[1])
    first, last = number(points[0][1]), number(points[-1][1])
    best_words = f"best {number(best[1])} (step {best[0]:.0f})"
    told = f"first {first} · last {last} · {best_words}"
    return told if len(told) <= room else f"{first} → {last} · {best_words}"


def pending(run: RunRow) -> str:
    """What to say where there is no point to plot yet."""
    if run.state in (RunState.CREATED, RunState.STARTING):
        return "the run is starting"
    return "no finished step" if run.state.final else "the first step is under way"
