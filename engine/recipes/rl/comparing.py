"""Grading a group's attempts against each other, where the episode does so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial

from engine.episodes.contract import GroupAttempt
from engine.episodes.runtime import MAX_REWARD, AttemptResult
from engine.episodes.user_code import Infrastructure, Log, OneTask, guarded
from engine.store.rows import AttemptState


async def compare(
    results: Sequence[AttemptResult | None],
    seconds: float,
    log: Log = lambda _level, _text: None,
) -> str | None:
    """Give the graded attempts of a group the rewards of ``grade_group``; they are in ``results`` by attempt.

    Returns what went wrong, in one sentence; the attempts are lost then. ``seconds`` bounds the call.

    Raises LoopsUnavailable, CancelledError.
    """
    graded = {
        number: result
        for number, result in enumerate(results)
        if result is not None and result.state is AttemptState.DONE and result.episode is not None
    }
    for result in results:
        if result is not None and result.state is not AttemptState.DONE:
            result.episode = None  # what it holds may be large, and nobody needs it any more
    if not graded:
        return None
    attempts = [
        GroupAttempt(number, result.episode, result.reward, result.timed_out, result.ending)
        for number, result in graded.items()
        if result.episode is not None
    ]
    problem, rewards = None, []
    try:
        call = partial(type(attempts[0].episode).grade_group, attempts)
        with OneTask(log) as code:
            rewards = await guarded(code, call, asyncio.timeout(seconds), seconds, "grade_group()")
        problem = _problem(rewards, len(attempts))
    except Infrastructure as failure:
        problem = str(failure)
    for place, result in enumerate(graded.values()):
        result.episode = None
        if problem is None:
            result.reward = float(rewards[place])
        else:
            result.state, result.reward = AttemptState.LOST, None
            result.error, result.ending = problem, "grading_failed"
    return problem


def _problem(rewards: object, count: int) -> str | None:
    if not isinstance(rewards, list | tuple) or len(rewards) != count:
        found = f"{len(rewards)} rewards" if isinstance(rewards, list | tuple) else type(rewards).__name__
        return f"grade_group() must return {count} rewards, one for each attempt, not {found}"
    for reward in rewards:
        if (
            not isinstance(reward, bool | int | float)
            or not math.isfinite(reward)
            or abs(reward) > MAX_REWARD
        ):
            return f"grade_group() must return finite numbers of at most {MAX_REWARD:g}, not {reward!r}"[:300]
    return None
