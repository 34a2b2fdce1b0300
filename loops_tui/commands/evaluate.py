"""``evaluate``: a run's held-out tasks attempted by its weights, and all its evaluations side by side."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.output import DONE, FAILED, Output, UsageError, columns, open_project_store
from loops_tui.commands.printed import to_draw_on
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.store.rows import EvalRow

_SAY_SECONDS = 5.0


def evaluate(
    ref: str, out: Output, *, checkpoint: str | None, base: bool, overrides: Sequence[str], only_list: bool
) -> int:
    """Evaluate, and show the run's evaluations side by side. 0: all tasks were graded as far as they could be."""
    from engine.hosting.evaluate import evaluate as evaluate_run

    if checkpoint is not None and base:
        raise UsageError("name a checkpoint or --base, not both")
    with open_project_store() as store:
        run_id = store.reader().run(ref).run_id
    row: EvalRow | None = None
    if not only_list:
        with _progress(out) as progress:
            row = asyncio.run(
                evaluate_run(
                    Path.cwd(),
                    run_id,
                    checkpoint=checkpoint,
                    base=base,
                    overrides=overrides,
                    told=out.note,
                    progress=progress,
                )
            )
    with open_project_store() as store:
        rows = store.reader().evals(run_id)
    out.value(value(row) if row is not None else [value(one) for one in rows])
    if not out.as_json:
        for line in table(rows):
            out.line(line)
        for line in comparison(rows):
            out.note(line)
    return DONE if row is None or row.state == "done" else FAILED


@contextmanager
def _progress(out: Output) -> Iterator[Callable[[str], None]]:
    """A line that is drawn over on a terminal, a line every few seconds elsewhere."""
    said, terminal = time.monotonic(), sys.stderr.isatty()

    def show(text: str) -> None:
        nonlocal said
        if terminal:
            print(f"\r\x1b[K{safe(text, 200)}", end="", file=to_draw_on(sys.stderr), flush=True)
        elif time.monotonic() - said >= _SAY_SECONDS:
            said = time.monotonic()
            out.note(text)

    try:
        yield show
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=to_draw_on(sys.stderr), flush=True)


def value(row: EvalRow) -> dict[str, Any]:
    """The JSON value of an evaluation."""
    return {
        "run": row.run_id,
        "eval": row.eval_id,
        "target": row.target,
        "checkpoint": row.checkpoint,
        "step": row.step,
        "state": row.state,
        "why": row.why,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
        "tasks": row.tasks,
        "attempts": row.attempts,
        "graded": row.graded,
        "lost": row.lost,
        "mean": row.mean,
        "low": row.low,
        "high": row.high,
        "pass_at": row.pass_at,
        "per_task": row.per_task,
        "sampling": row.sampling,
        "error": row.error,
    }


def table(rows: Sequence[EvalRow]) -> list[str]:
    """A run's evaluations side by side, the base model first, then by step."""
    from engine.recipes.evaluation.wording import score_words

    if not rows:
        return ["no evaluations yet"]
    ordered = sorted(rows, key=_place)
    most = sorted({int(k) for row in ordered for k in row.pass_at})
    shown = list(dict.fromkeys([*most[:1], *most[-1:]]))
    heads = ["EVAL", "WEIGHTS", "STATE", "TASKS", "MEAN (95 %)", *(f"PASS@{k}" for k in shown), "LOST", "WHY"]
    cells = [heads]
    for row in ordered:
        passes = ["–" if str(k) not in row.pass_at else f"{row.pass_at[str(k)]:.3f}" for k in shown]
        attempts = f"{row.tasks}" if row.attempts == 1 else f"{row.tasks} x {row.attempts}"
        cells.append(
            [
                row.eval_id,
                _weights(row),
                row.state,
                attempts,
                score_words(row),
                *passes,
                str(row.lost),
                row.why,
            ]
        )
    return columns(cells)


def comparison(rows: Sequence[EvalRow]) -> list[str]:
    """What the weights that were evaluated last gained over the first ones, task by task."""
    from engine.recipes.evaluation.wording import compared, interval_words

    graded = sorted((row for row in rows if row.mean is not None), key=_place)
    if len(graded) < 2:
        return []
    first, last = graded[0], graded[-1]
    found = compared(first, last)
    if found is None:
        return []
    words = f"{last.eval_id} against {first.eval_id}, paired by task: {interval_words(found, '+')}"
    if found.low is not None and found.high is not None and found.low <= 0 <= found.high:
        words += "; the tasks do not tell them apart"
    return [words]


def _place(row: EvalRow) -> tuple[int, float]:
    return (-1 if row.step is None else row.step, row.created_at)


def _weights(row: EvalRow) -> str:
    if row.checkpoint is not None:
        return row.checkpoint
    return "base model" if row.step is None else f"step {row.step}"
