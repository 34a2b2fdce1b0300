"""Which weights answered: clients of earlier policies, versions of replies, and publishes that change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from engine.episodes import Task
from engine.episodes.runtime import AttemptResult
from engine.loops.canary import Canary
from engine.loops.errors import SampleFailed
from engine.loops.serving import ServedPolicy
from engine.policy.conversation import ConversationTrace
from engine.policy.tokens import Completion, Segment
from engine.recipes.rl.groups import Group
from engine.recipes.rl.updating import lag_metrics, version_problem
from engine.store.rows import AttemptState


class Client:
    """Stands in for an SDK sampling client: only its end is looked at."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True


async def test_a_client_is_closed_when_the_last_call_that_began_on_it_is_over() -> None:
    served, first, second = ServedPolicy(), Client(), Client()
    await served.serve(first, 0)
    go_on, begun = asyncio.Event(), asyncio.Event()

    async def call() -> int:
        async with served.calling() as client:
            begun.set()
            await go_on.wait()
            assert client.sdk is first
            assert not first.closed
            return client.step

    calling = asyncio.create_task(call())
    await begun.wait()
    await served.serve(second, 1)
    assert (served.version, first.closed) == (1, False)
    go_on.set()
    assert await calling == 0
    assert (first.closed, second.closed) == (True, False)
    async with served.calling() as client:
        assert client.sdk is second


async def test_a_reply_is_counted_in_optimizer_steps_whatever_loops_counts() -> None:
    served = ServedPolicy()
    await served.serve(Client(), 4)  # a resumed run: Loops begins to count anew
    async with served.calling() as old:
        assert served.step_of(old, 1) == 4
        served.begin_publish()
        # Newer weights may answer from now on: what an unknown number means is not learned from such a reply.
        assert served.step_of(old, 2) == 4
        await served.serve(Client(), 5)
        served.end_publish()
        async with served.calling() as new:
            assert served.step_of(new, 2) == 5
            assert served.step_of(new, 1) == 4  # stale weights are seen
            assert served.step_of(new, None) == 5
        assert served.step_of(old, 2) == 5  # the old client, answered by the new weights


async def test_a_publish_that_is_made_again_makes_no_reply_younger_than_it_is() -> None:
    """A server may serve, and count, what it could not say that it had published: old clients meet those weights."""
    served = ServedPolicy()
    await served.serve(Client(), 4)
    async with served.calling() as old:
        served.begin_publish()
        assert served.step_of(old, 2) == 4  # for all one knows, what it has served all along
        await served.serve(Client(), 5)  # as number 3
        served.end_publish()
        async with served.calling() as new:
            assert served.step_of(new, 3) == 5
        assert served.step_of(old, 2) == 4


def group(*versions: list[int], began: int) -> Group:
    """A group whose attempts' replies came from these versions."""
    made = Group(7, Task(object(), "t", 0), 0, len(versions), began, [None] * len(versions))
    for attempt, several in enumerate(versions):
        trace, segment = ConversationTrace(), Segment()
        for version in several:
            segment.append_prompt([1])
            segment.append_reply(Completion([2], [-0.5], "stop", version))
        trace.segments.append(segment)
        made.results[attempt] = AttemptResult(AttemptState.DONE, trace, reward=1.0)
    return made


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ([[3, 3], [3, 4]], None),
        ([[3], []], None),
        ([[2], [3]], "attempt 0 of group 7 with policy version 2; from 3 to 4 were asked for"),
        ([[3], [4, 5]], "attempt 1 of group 7 with policy versions 4 to 5"),
    ],
)
def test_replies_of_other_policies_than_asked_for_are_not_trained_on(
    versions: list[list[int]], problem: str | None
) -> None:
    said = version_problem(group(*versions, began=3), behind=4, delta=1)
    assert (said is None) if problem is None else (problem in str(said))


def test_an_attempt_that_crossed_too_many_publishes_is_not_trained_on() -> None:
    assert version_problem(group([3, 4], began=3), behind=5, delta=1) is None
    assert "versions 3 to 5" in str(version_problem(group([3, 4, 5], began=3), behind=5, delta=1))


def test_ages_are_counted() -> None:
    assert lag_metrics([0, 2, 2, 0, 1]) == {
        "lag/mean": 1.0,
        "lag/max": 2.0,
        "lag/groups/0": 2.0,
        "lag/groups/1": 1.0,
        "lag/groups/2": 2.0,
    }


class Answers:
    """Stands in for a session: the logprobs that it tells, one list a call."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[list[int]] = []

    async def prompt_logprobs(self, tokens: Sequence[int]) -> Any:
        self.asked.append(list(tokens))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def look(*answers: Any, gradients: Sequence[float | None]) -> tuple[list[dict[str, float]], list[str]]:
    """What a canary told after each update, and what it said, where the session answers so.

    At first it asks twice; here both times with the same answer.
    """
    first = answers[:1] if isinstance(answers[0], list) else ()
    return await look_twice(*first, *answers, gradients=gradients)


async def look_twice(
    *answers: Any, gradients: Sequence[float | None]
) -> tuple[list[dict[str, float]], list[str]]:
    """The same with an answer of its own for each time that it asks."""
    said: list[str] = []
    session = Answers(*answers)
    canary = Canary(session, lambda level, text: said.append(f"{level} {text}"))  # type: ignore[arg-type]
    told: list[dict[str, float]] = []
    for place, gradient in enumerate(gradients):
        await canary.before_first([place] * 50)
        told.append(await canary.after_publish(place + 1, gradient))
    assert all(tokens == [0] * 32 for tokens in session.asked)
    assert not session.answers
    return told, said


async def test_a_publish_that_changes_nothing_is_warned_of_once() -> None:
    told, said = await look([None, -1.0], [None, -1.1], [None, -1.1], [None, -1.1], gradients=[1.0, 1.0, 1.0])
    assert [metrics["canary/changed"] for metrics in told] == [1.0, 0.0, 0.0]
    assert len(said) == 1
    assert said[0].startswith("warning after update 2 the sampler answers a fixed prompt exactly as before")


async def test_an_update_without_a_gradient_need_not_change_anything() -> None:
    assert await look([None, -1.0], [None, -1.0], gradients=[0.0]) == ([{}], [])


async def test_a_look_that_fails_once_is_bad_luck() -> None:
    failed = SampleFailed("no room just now")
    told, said = await look(
        [None, -1.0], failed, [None, -1.1], [None, -1.2], failed, failed, [None, -1.3], gradients=[1.0] * 6
    )
    # After a failed look there is nothing to compare the next one with.
    assert told == [{}, {}, {"canary/changed": 1.0, "canary/moved": pytest.approx(0.1)}, {}, {}, {}]
    assert said == []


async def test_what_a_sampler_varies_by_itself_is_no_change() -> None:
    """Rounding depends on what is computed beside: other logprobs do not show that other weights serve."""
    told, said = await look_twice(
        [None, -1.0, -2.0], [None, -1.0, -2.01], [None, -1.01, -2.0], [None, -1.3, -2.0], gradients=[1.0, 1.0]
    )
    assert told[0] == {"canary/moved": pytest.approx(0.01)}
    assert told[1] == {"canary/moved": pytest.approx(0.29), "canary/changed": 1.0}
    assert len(said) == 1
    assert "differ by up to 1.0e-02 under the same weights" in said[0]


@pytest.mark.parametrize(
    "answers",
    [[None], [SampleFailed("no prompt logprobs here")] * 3, [[None, -1.0], *[SampleFailed("gone")] * 3]],
)
async def test_a_sampler_that_cannot_tell_is_left_alone(answers: list[object]) -> None:
    told, said = await look(*answers, gradients=[1.0] * 5)
    assert told == [{}] * 5
    assert len(said) == 1
    assert said[0].startswith("info this sampler cannot be checked")
