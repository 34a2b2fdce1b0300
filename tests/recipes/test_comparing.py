"""Attempts graded against each other: the group's word counts, and a failing comparison costs its group alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.episodes import Episode, Grading, GroupAttempt, Sampling
from engine.episodes.contract import compares, grades
from engine.recipes.rl.comparing import compare
from engine.store.rows import AttemptState
from tests.recipes.test_attempts import Base, attempt, say


class Ranked(Episode[dict, None]):
    """Writes a text of its own length, which only the group can judge."""

    async def run(self, sample: Sampling) -> None:
        say(sample.model)  # type: ignore[arg-type]

    @classmethod
    async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
        return [float(each.attempt) / len(attempts) for each in attempts]


async def results(episode: type[Episode[Any, Any]], count: int = 3) -> list[Any]:
    return [(await attempt(episode))[0] for _ in range(count)]


async def test_the_group_gives_the_rewards_and_nothing_is_kept() -> None:
    assert compares(Ranked)
    assert not grades(Ranked)
    assert not compares(Base)
    group = await results(Ranked)
    assert [result.reward for result in group] == [None] * 3
    assert await compare(group, 5.0) is None
    assert [result.reward for result in group] == [0.0, 1 / 3, 2 / 3]
    assert all(result.episode is None for result in group)
    alone = await results(Base)
    assert await compare(alone, 5.0) is None
    assert [result.reward for result in alone] == [1.0] * 3


async def test_an_attempts_own_grade_is_handed_on_and_lost_attempts_are_left_out() -> None:
    seen: list[float | None] = []

    class Both(Base):
        @classmethod
        async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
            seen.extend(each.reward for each in attempts)
            return [2.0] * len(attempts)

    class Failing(Both):
        async def grade(self, grading: Grading) -> float:
            raise OSError

    group = [*(await results(Both, 2)), *(await results(Failing, 1))]
    assert await compare(group, 5.0) is None
    assert seen == [1.0, 1.0]
    assert [result.state for result in group] == [AttemptState.DONE, AttemptState.DONE, AttemptState.LOST]
    assert all(result.episode is None for result in group)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([1.0], "must return 3 rewards, one for each attempt, not 1 rewards"),
        (None, "not NoneType"),
        ([1.0, float("nan"), 0.0], "finite numbers"),
        ([1.0, "2", 0.0], "finite numbers"),
    ],
)
async def test_a_wrong_answer_loses_the_group(answer: Any, said: str) -> None:
    class Wrong(Ranked):
        @classmethod
        async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
            return answer

    group = await results(Wrong)
    problem = await compare(group, 5.0)
    assert said in (problem or "")
    assert {result.state for result in group} == {AttemptState.LOST}
    assert {result.ending for result in group} == {"grading_failed"}


async def test_a_raise_and_a_deadline_lose_the_group() -> None:
    class Raising(Ranked):
        @classmethod
        async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
            raise ZeroDivisionError("no")

    assert "raised ZeroDivisionError: no" in (await compare(await results(Raising), 5.0) or "")
    assert "took longer than" in (await compare(await results(Slow), 0.01) or "")


class Slow(Ranked):
    @classmethod
    async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
        import asyncio

        await asyncio.Event().wait()
        return []
