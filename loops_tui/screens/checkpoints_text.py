"""What the Checkpoints screen says: pure functions from rows to lines."""

from __future__ import annotations

from collections.abc import Sequence

from engine.store.rows import CheckpointState, EvalRow, RunRow
from loops_tui.checkpoint_words import kind_words, score_of, size_words, state_words, why_words
from loops_tui.lease_words import NOT_KNOWN, coarse
from loops_tui.screens.checkpoints_read import CheckpointEntry
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, plain
from loops_tui.widgets.virtual_table import Cells, Column
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import ago, number, run_state, signed

_EVAL_CELLS = 16

COLUMNS = (
    Column("state", "state", 9),
    Column("name", "checkpoint", 11),
    Column("run", "run", 12, flex=5, most=30),
    Column("why", "why", 14, flex=1, most=22, drop=5),
    Column("step", "step", 5, right=True, drop=6),
    Column("score", "score", 9, right=True),
    Column("eval", "evaluation", _EVAL_CELLS, drop=1),
    Column("size", "size", 9, right=True, drop=2),
    Column("policy", "policy", 6, right=True, drop=7),
    Column("age", "age", 7, right=True),
    Column("id", "run id", 20, drop=8),
)

BILLING_COLUMNS = (
    Column("loops", "Loops run", 16, flex=1, most=30),
    Column("run", "run", 14, flex=2, most=34),
    Column("state", "state", 13),
    Column("scope", "scope", 10, drop=1),
    Column("since", "bills for", 9, right=True),
    Column("id", "run id", 20, drop=2),
)

STATES = {
    CheckpointState.SAVING: ("◐", Tone.INFO),
    CheckpointState.SAVED: ("✓", Tone.GOOD),
    CheckpointState.FAILED: ("×", Tone.BAD),
    CheckpointState.DELETED: ("–", Tone.DIM),
}


def checkpoint_cells(entry: CheckpointEntry) -> Cells:
    row, run = entry.row, entry.run
    glyph, tone = STATES[row.state]
    quiet = Tone.PLAIN if entry.saved else Tone.DIM
    state = (
        "saving" if row.state is CheckpointState.SAVING else "gone" if tone is Tone.DIM else state_words(row)
    )
    return (
        plain(f"{glyph} {state}", tone),
        plain(safe(row.name, 40), Tone.STRONG if entry.last else quiet),
        plain(safe(run.name if run is not None else NOT_KNOWN, 60), quiet),
        plain(safe(why_words(row), 40), Tone.DIM),
        plain(str(row.step), quiet),
        _score(entry),
        eval_words(entry.measured, _EVAL_CELLS) if entry.evals else plain(NOT_KNOWN, Tone.DIM),
        plain(size_words(row.size_bytes), quiet),
        plain(NOT_KNOWN if row.policy_version is None else f"v{row.policy_version}", Tone.DIM),
        plain(coarse(entry.now - (row.saved_at or row.created_at)), Tone.DIM),
        plain(safe(row.run_id, 40), Tone.DIM),
    )


def _score(entry: CheckpointEntry) -> Line:
    """The reward, or of fine-tuning the loss, which must not be taken for one."""
    quiet = Tone.PLAIN if entry.saved else Tone.DIM
    what, value = score_of(entry.row, entry.recipe)
    if what == "reward" or value is None:
        return plain(number(value), quiet)
    return (("loss ", Tone.DIM), (number(value), quiet))


def eval_words(row: EvalRow | None, room: int) -> Line:
    """The mean and its interval: ``0.61 (0.54–0.68)``; less exact bounds where ``room`` cells do not hold them."""
    if row is None:
        return plain("running", Tone.INFO)
    mean = number(row.mean)
    spans: list[Span] = [(mean, Tone.STRONG)]
    if row.low is not None and row.high is not None:
        bounds = (f" ({row.low:.{digits}f}–{row.high:.{digits}f})" for digits in (2, 1, 0))
        spans.append((next((told for told in bounds if len(mean + told) <= room), " (wide)"), Tone.DIM))
    return tuple(spans)


def billing_cells(run: RunRow, now: float) -> Cells:
    # A run at work bills rightly; one that has ended should be looked at.
    tone = Tone.WARN if run.state.final else Tone.PLAIN
    return (
        plain(safe(run.loops_run_id or NOT_KNOWN, 60), Tone.STRONG),
        plain(safe(run.name, 60)),
        run_state(run.state),
        plain(safe(run.scope, 20), Tone.DIM),
        plain(NOT_KNOWN if run.loops_since is None else coarse(now - run.loops_since), tone),
        plain(safe(run.run_id, 40), Tone.DIM),
    )


def details(entry: CheckpointEntry | None, width: int, height: int) -> list[Line]:
    """The checkpoint under the cursor, what is wrong with it first."""
    if entry is None:
        return []
    row, run = entry.row, entry.run
    lines: list[Line] = []
    if row.error:
        tone = STATES[row.state][1]
        pieces = list(wrap(safe(row.error, 600), max(20, width - 2)))[:2]
        lines.extend(
            (("! " if place == 0 else "  ", tone), (piece, tone)) for place, piece in enumerate(pieces)
        )
    gap: Span = ("   ", Tone.PLAIN)
    who: Line = run_state(run.state) if run is not None else plain("its run is not in the store", Tone.DIM)
    lines.append((
        (safe(row.name, 40), Tone.STRONG), gap,
        ("of ", Tone.DIM), (safe(run.name if run is not None else row.run_id, 40), Tone.PLAIN), gap, *who,
        (f"  {safe(row.run_id, 40)}", Tone.DIM),
    ))  # fmt: skip
    when = ago(entry.now - (row.saved_at or row.created_at))
    lines.append((
        (f"after step {row.step}", Tone.PLAIN),
        (f" of {run.max_steps}" if run is not None and run.max_steps else "", Tone.DIM), gap,
        (f"{safe(why_words(row), 40)}, {when}", Tone.DIM), gap, ("holds ", Tone.DIM), (kind_words(row), Tone.PLAIN),
    ))  # fmt: skip
    what, value = score_of(row, entry.recipe)
    if value is not None:
        lines.append(((f"{what} ", Tone.DIM), (number(value, 3), Tone.PLAIN), (" in its step", Tone.DIM)))
    lines.extend(_eval_lines(entry))
    if entry.last and run is not None and run.state.final:
        lines.append(plain("a resume of its run goes on from here", Tone.DIM))
    for label, path in (("sampler ", row.sampler_path), ("trainer ", row.trainer_path)):
        if path:
            lines.append(((label, Tone.DIM), (safe(path, max(20, width - 9)), Tone.PLAIN)))
    return lines[:height]


def _eval_lines(entry: CheckpointEntry) -> list[Line]:
    if not entry.evals:
        words = (
            "not evaluated"
            if entry.has_eval
            else "not evaluated: its config names no held-out tasks ([eval])"
        )
        return [plain(words, Tone.DIM)]
    row = entry.measured
    if row is None:
        last = entry.evals[0]
        return [plain(safe(last.error, 200) if last.error else f"evaluation {last.state}", Tone.WARN)]
    spans: list[Span] = [("evaluated ", Tone.DIM), *eval_words(row, 80)]
    if entry.base is not None and entry.base.mean is not None and row.mean is not None:
        spans.extend(
            (
                (f"  {signed(row.mean - entry.base.mean)} over the base model's ", Tone.DIM),
                (number(entry.base.mean), Tone.PLAIN),
            )
        )
    for k, value in row.pass_at.items():
        spans.extend((("   pass@" + safe(str(k), 6) + " ", Tone.DIM), (number(value), Tone.PLAIN)))
    spans.append((f"   {row.tasks} tasks × {row.attempts}", Tone.DIM))
    if row.lost:
        spans.append((f", {row.lost} lost", Tone.WARN))
    return [tuple(spans)]


EMPTY: Sequence[Line] = (
    plain("No checkpoints yet in this project.", Tone.STRONG),
    (),
    (("  [output] checkpoint_every = 5", Tone.ACCENT), ("   saves one every five steps", Tone.DIM)),
    plain("  One is saved at the end of a run, too, and whenever a live run is asked", Tone.DIM),
    plain("  for it.", Tone.DIM),
)
