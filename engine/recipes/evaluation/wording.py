"""Sentences about evaluations, for a run's log and for commands."""

from __future__ import annotations

from engine.recipes.evaluation.estimates import Interval, difference
from engine.store.rows import EvalRow


def score_words(row: EvalRow) -> str:
    """An evaluation's mean with its interval: ``0.625 (0.52 to 0.73)``; a dash where nothing was graded."""
    if row.mean is None:
        return "–"
    return interval_words(Interval(row.mean, row.low, row.high))


def interval_words(found: Interval, sign: str = "") -> str:
    """A mean and its interval; ``sign`` "+" shows on which side of zero they are."""
    mean = f"{found.mean:{sign}.3f}"
    if found.low is None or found.high is None:
        return mean
    return f"{mean} ({found.low:{sign}.2f} to {found.high:{sign}.2f})"


def compared(before: EvalRow, after: EvalRow) -> Interval | None:
    """How much better ``after`` is than ``before``, on the tasks that both have."""
    return difference(
        {task: one["mean"] for task, one in before.per_task.items()},
        {task: one["mean"] for task, one in after.per_task.items()},
    )


def begun_line(row: EvalRow) -> str:
    """An evaluation's beginning in one line."""
    each = "" if row.attempts == 1 else f", {row.attempts} attempts each"
    return f"evaluating {row.eval_id}: {_counted(row.tasks, 'held-out task')}{each}"


def ended_line(row: EvalRow) -> str:
    """An evaluation's end in one line."""
    seconds = (row.ended_at or row.created_at) - row.created_at
    if row.error is not None:
        return f"evaluation {row.eval_id} {row.state} after {row.graded} graded attempts: {row.error}"
    parts = [f"mean {score_words(row)} over {_counted(len(row.per_task), 'task')}"]
    parts += [f"pass@{k} {value:.3f}" for k, value in _few(row)]
    parts += [f"{row.lost} lost"] if row.lost else []
    how = (
        ""
        if row.state == "done"
        else f" {row.state} after {row.graded} of {row.tasks * row.attempts} attempts"
    )
    return f"evaluation {row.eval_id}{how}: {', '.join(parts)}, {seconds:.1f} s"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _few(row: EvalRow) -> list[tuple[str, float]]:
    """pass@1, and the largest k."""
    found = sorted(row.pass_at.items(), key=lambda item: int(item[0]))
    return found if len(found) < 2 else [found[0], found[-1]]
