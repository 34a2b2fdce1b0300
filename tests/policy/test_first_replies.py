"""One call for a group's first replies: who gets what, who waits for it, and what a failure or a cancellation does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from engine.loops.errors import SampleFailed
from engine.policy.first_replies import FirstReplies
from engine.policy.tokens import Completion, Sampler

PROMPT, OTHER = [1, 2, 3], [1, 2, 4]
GROUP, SIZE, SEED = 7, 3, 11


@dataclass
class Calls:
    """A sampler that answers when ``answer`` is set, with the seed and the place in the call as tokens."""

    many: list[tuple[list[int], int, int | None]] = field(default_factory=list)
    alone: list[int | None] = field(default_factory=list)
    answer: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False
    cancelled: int = 0

    async def sample_many(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        max_tokens: int,
        seed: int | None,
        affinity_key: str | None,
    ) -> list[Completion]:
        self.many.append((list(prompt), count, seed))
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise SampleFailed("the sampler is busy")
        return [Completion([seed or 0, place], [-0.5, -0.5], "stop", 0) for place in range(count)]

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        self.alone.append(seed)
        return Completion([seed or 0], [-0.5], "stop", 0)


class Group:
    """Three attempts of one group, each with a seed of its own for later calls."""

    def __init__(self) -> None:
        self.calls, self.version = Calls(), 0
        self.told: list[str] = []
        self.replies = FirstReplies(self.calls, lambda: self.version, self.told.append)
        self.samplers: list[Sampler] = [
            self.replies.of(GROUP, SIZE, attempt, SEED, self.calls) for attempt in range(SIZE)
        ]

    def ask(self, attempt: int, prompt: list[int] = PROMPT, max_tokens: int = 9) -> asyncio.Task[list[int]]:
        async def asking() -> list[int]:
            sampler = self.samplers[attempt]
            reply = await sampler.sample(
                prompt, max_tokens=max_tokens, seed=100 + attempt, affinity_key="group"
            )
            return reply.tokens

        return asyncio.create_task(asking())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_attempts_of_a_group_share_one_call_in_whatever_order_they_come() -> None:
    group = Group()
    early = [group.ask(2), group.ask(0)]
    await settle()
    assert group.calls.many == [(PROMPT, SIZE, SEED)]  # made at once, for all of them
    group.calls.answer.set()
    assert [await task for task in early] == [[SEED, 2], [SEED, 0]]
    assert await group.ask(1) == [SEED, 1]  # comes when the others have long been answered
    assert (len(group.calls.many), group.calls.alone) == (1, [])


async def test_later_replies_and_other_limits_are_calls_of_their_own() -> None:
    group = Group()
    group.calls.answer.set()
    assert await group.ask(0) == [SEED, 0]
    assert await group.ask(0) == [100]
    assert await group.ask(1, max_tokens=5) == [101]
    assert len(group.calls.many) == 1


async def test_a_reply_of_an_older_policy_is_not_taken() -> None:
    group = Group()
    group.calls.answer.set()
    assert await group.ask(0) == [SEED, 0]
    group.version = 1
    assert await group.ask(1) == [101]


async def test_where_prompts_differ_sharing_is_given_up_and_said_once() -> None:
    group = Group()
    group.calls.answer.set()
    assert await group.ask(0) == [SEED, 0]
    assert await group.ask(1, OTHER) == [101]
    assert await group.ask(2, OTHER) == [102]
    assert len(group.told) == 1
    sampler = group.replies.of(GROUP + 1, SIZE, 0, SEED, group.calls)
    await sampler.sample(PROMPT, max_tokens=9, seed=5, affinity_key=None)
    assert (len(group.calls.many), group.calls.alone) == (1, [101, 102, 5])


async def test_a_failure_reaches_each_attempt_that_waits_and_nobody_else() -> None:
    group = Group()
    group.calls.fails = True
    waiting = [group.ask(0), group.ask(1)]
    await settle()
    group.calls.answer.set()
    for task in waiting:
        with pytest.raises(SampleFailed):
            await task
    group.calls.fails = False
    assert await group.ask(2) == [SEED, 2]
    assert len(group.calls.many) == 2


async def test_an_attempt_that_is_cancelled_takes_the_call_from_nobody() -> None:
    group = Group()
    first, second = group.ask(0), group.ask(1)
    await settle()
    first.cancel()
    await settle()
    group.calls.answer.set()
    assert await second == [SEED, 1]
    assert group.calls.cancelled == 0


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled() -> None:
    group = Group()
    tasks = [group.ask(0), group.ask(1)]
    await settle()
    for task in tasks:
        task.cancel()
    await settle()
    assert group.calls.cancelled == 1
    group.calls.answer.set()
    assert await group.ask(2) == [SEED, 2]


async def test_an_ended_group_leaves_nothing() -> None:
    group = Group()
    group.calls.answer.set()
    await group.ask(0)
    group.replies.forget(GROUP)
    assert not group.replies._shared
