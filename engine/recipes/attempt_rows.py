"""Attempts as rows of the store, whoever ran them: a run's own step, or an evaluation."""

from __future__ import annotations

from engine.episodes.runtime import AttemptResult
from engine.store.rows import AttemptRow, TranscriptRow


def set_result(row: AttemptRow, result: AttemptResult) -> None:
    """Tell an attempt's row how it ended."""
    trace = result.trace
    versions = trace.versions
    row.state, row.tries, row.reward = result.state, result.tries, result.reward
    row.turns, row.prompt_tokens, row.sampled_tokens = (
        trace.replies,
        trace.prompt_tokens,
        trace.sampled_tokens,
    )
    row.segments = len(trace.segments)
    row.version_min = min(versions) if versions else None
    row.version_max = max(versions) if versions else None
    row.ending, row.timed_out, row.error = result.ending, result.timed_out, result.error
    row.started_at, row.ended_at = result.started_at, result.ended_at
    row.timeline, row.metadata = dict(result.timeline), dict(result.metadata)


def transcript_of(row: AttemptRow, task_id: str, result: AttemptResult, trace: str) -> TranscriptRow | None:
    """An attempt's conversation; None where nothing was said or ``[output] trace`` keeps none of it."""
    kept = trace == "full" or (trace == "samples" and row.attempt == 0)
    if not kept or not result.trace.turns:
        return None
    return TranscriptRow(
        run_id=row.run_id,
        group_id=row.group_id,
        attempt=row.attempt,
        task_id=task_id,
        reward=result.reward,
        ending=result.ending,
        turns=result.trace.turns,
        tools=result.trace.tools,
        metadata=dict(result.metadata),
    )
