"""One attempt: what its author may rely on when things go wrong."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from engine.episodes import Episode, Grading, Sampling, Setup, Task, user_code
from engine.episodes.contract import grades_apart
from engine.episodes.fresh import SandboxSource
from engine.episodes.runtime import AttemptPlan, AttemptResult, Deadlines, run_attempt
from engine.loops.errors import LoopsUnavailable
from engine.policy.conversation import ConversationTrace
from engine.policy.tokens import Completion, Segment
from engine.recipes.rl.metrics import rollout_metrics
from engine.rewards import Reward, weighted
from engine.store.rows import AttemptState


def say(trace: ConversationTrace) -> None:
    """Stand in for one reply of the policy."""
    segment = Segment()
    segment.append_prompt([1, 2])
    segment.append_reply(Completion([3], [-0.5], "stop", 0))
    trace.segments.append(segment)
    trace.replies += 1


class Base(Episode[dict, None]):
    async def run(self, sample: Sampling) -> Any:
        say(sample.model)  # type: ignore[arg-type] - the plan below hands the trace over as the model
        return None

    async def grade(self, grading: Grading) -> float:
        return 1.0


async def attempt(
    episode: type[Episode[Any, Any]],
    *,
    retries: int = 0,
    setup: float = 60.0,
    agent: float = 60.0,
    grading: float = 60.0,
    sandboxes: SandboxSource[Any] | None = None,
) -> tuple[AttemptResult, list[AttemptState], list[str]]:
    states: list[AttemptState] = []
    said: list[str] = []
    plan = AttemptPlan(
        episode,
        Task({}, "t", 0),
        None,
        0,
        Deadlines(setup, agent, grading),
        retries,
        lambda trace, _try, _waiting: trace,  # type: ignore[arg-type, return-value]
        sandboxes,
    )
    result = await run_attempt(
        plan, changed=states.append, log=lambda level, text: said.append(f"{level} {text}")
    )
    return result, states, said


async def test_graded_attempt() -> None:
    class Good(Base):
        async def run(self, sample: Sampling) -> dict[str, Any]:
            await super().run(sample)
            return {"termination_reason": "completed", "calls": 3}

    result, states, _ = await attempt(Good)
    assert (result.state, result.reward, result.ending) == (AttemptState.DONE, 1.0, "completed")
    assert result.metadata == {"termination_reason": "completed", "calls": 3}
    assert states == [AttemptState.SETUP, AttemptState.ACTING, AttemptState.GRADING]
    assert set(result.timeline) == {"setup", "acting", "grading"}


async def test_infrastructure_failure_is_retried_in_a_fresh_episode() -> None:
    made: list[Episode[Any, Any]] = []

    class Flaky(Base):
        def __init__(self, task: Task[dict], options: None) -> None:
            super().__init__(task, options)
            made.append(self)

        async def run(self, sample: Sampling) -> None:
            await super().run(sample)
            if len(made) < 3:
                raise ConnectionError("sandbox lost")

    result, _, said = await attempt(Flaky, retries=2)
    assert (result.state, result.tries, len(made)) == (AttemptState.DONE, 3, 3)
    assert result.trace.replies == 1  # nothing of the failed tries is trained on
    assert len(said) == 2
    assert "ConnectionError: sandbox lost (line" in said[0]


async def test_spent_retries_lose_the_attempt_and_name_the_line() -> None:
    class Broken(Base):
        async def setup(self, setup: Setup) -> None:
            raise RuntimeError("no disk")

    result, _, _ = await attempt(Broken, retries=1)
    assert result.state is AttemptState.LOST
    assert result.tries == 2
    assert "setup() raised RuntimeError: no disk (line" in (result.error or "")
    assert "test_attempts.py" in (result.error or "")


async def test_the_agents_deadline_is_graded_not_failed() -> None:
    seen: list[bool] = []

    class Slow(Base):
        async def run(self, sample: Sampling) -> None:
            await super().run(sample)
            await asyncio.Event().wait()

        async def grade(self, grading: Grading) -> float:
            seen.append(grading.timed_out)
            return 0.25

    result, _, _ = await attempt(Slow, agent=0.01)
    assert (result.state, result.reward, result.ending) == (AttemptState.DONE, 0.25, "timed_out")
    assert seen == [True]


@pytest.mark.parametrize("turns", [1, 2])
async def test_an_agent_that_catches_everything_is_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(user_code, "LET_GO_SECONDS", 0.01)

    class Deaf(Base):
        async def run(self, sample: Sampling) -> dict[str, Any]:
            await super().run(sample)
            for _ in range(turns):
                with contextlib.suppress(BaseException):
                    await asyncio.Event().wait()
            return {"termination_reason": "completed"}

    result, _, _ = await asyncio.wait_for(attempt(Deaf, agent=0.01), 120)
    assert (result.state, result.timed_out, result.ending) == (AttemptState.DONE, True, "timed_out")


async def test_what_an_agent_makes_of_its_deadline_is_no_failure() -> None:
    class Wrapping(Base):
        async def run(self, sample: Sampling) -> None:
            await super().run(sample)
            try:
                await asyncio.Event().wait()
            except BaseException as error:
                raise RuntimeError("the tool failed") from error

    result, _, said = await attempt(Wrapping, retries=2, agent=0.01)
    assert (result.state, result.tries, result.ending) == (AttemptState.DONE, 1, "timed_out")
    assert said == []


async def test_a_deadline_before_any_reply_discards() -> None:
    class Mute(Base):
        async def run(self, sample: Sampling) -> None:
            await asyncio.Event().wait()

    result, _, _ = await attempt(Mute, agent=0.01)
    assert (result.state, result.reward) == (AttemptState.DISCARDED, None)


async def test_the_agents_own_timeout_error_is_infrastructure() -> None:
    class Own(Base):
        async def run(self, sample: Sampling) -> None:
            raise TimeoutError("tool took too long")

    result, _, _ = await attempt(Own)
    assert result.state is AttemptState.LOST
    assert "tool took too long" in (result.error or "")


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "1.0", None])
async def test_a_reward_that_is_no_finite_number_is_a_graders_error(reward: Any) -> None:
    class Bad(Base):
        async def grade(self, grading: Grading) -> float:
            return reward

    result, _, _ = await attempt(Bad)
    assert result.state is AttemptState.LOST
    assert "finite number" in (result.error or "")


async def test_grading_is_retried_only_as_often_as_the_episode_allows() -> None:
    calls: list[int] = []

    class Grumpy(Base):
        grading_retries = 2

        async def grade(self, grading: Grading) -> float:
            calls.append(1)
            if len(calls) < 3:
                raise OSError("judge away")
            return 0.5

    result, _, _ = await attempt(Grumpy)
    assert (result.reward, len(calls)) == (0.5, 3)


async def test_a_stuck_grader_has_a_deadline() -> None:
    class Stuck(Base):
        async def grade(self, grading: Grading) -> float:
            await asyncio.Event().wait()
            return 1.0

    result, _, _ = await attempt(Stuck, grading=0.01)
    assert result.state is AttemptState.LOST
    assert "took longer than" in (result.error or "")


async def test_loops_gone_ends_more_than_the_attempt() -> None:
    class Gone(Base):
        async def run(self, sample: Sampling) -> None:
            raise LoopsUnavailable("the server is gone")

    with pytest.raises(LoopsUnavailable):
        await attempt(Gone, retries=5)


async def test_cancelling_is_never_swallowed() -> None:
    entered = asyncio.Event()

    class Waiting(Base):
        async def run(self, sample: Sampling) -> None:
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(attempt(Waiting, retries=5))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_asking_for_a_sandbox_without_one_says_what_to_add() -> None:
    class NeedsBox(Base):
        async def setup(self, setup: Setup) -> None:
            setup.require_sandbox()

    result, _, _ = await attempt(NeedsBox)
    assert "[runtime.config.sandbox]" in (result.error or "")


async def test_metadata_that_cannot_be_reported_is_dropped_aloud() -> None:
    class Odd(Base):
        async def run(self, sample: Sampling) -> dict[str, Any]:
            await super().run(sample)
            return {"ok": True, "nan": float("nan"), "list": [1], "none": None}

    result, _, said = await attempt(Odd)
    assert result.metadata == {"ok": True}
    assert len(said) == 2


@pytest.mark.parametrize("raised", [SystemExit(4), KeyboardInterrupt(), asyncio.CancelledError("mine")])
async def test_an_episode_that_wants_out_costs_its_attempt_alone(raised: BaseException) -> None:
    class Leaving(Base):
        async def run(self, sample: Sampling) -> None:
            raise raised

    result, _, _ = await attempt(Leaving, retries=1)
    assert (result.state, result.tries) == (AttemptState.LOST, 2)
    assert f"run() raised {type(raised).__name__}" in (result.error or "")


async def test_a_reward_too_large_to_compare_is_a_graders_error() -> None:
    class Huge(Base):
        async def grade(self, grading: Grading) -> float:
            return -1e308

    result, _, _ = await attempt(Huge)
    assert result.state is AttemptState.LOST
    assert "at most 1e+09" in (result.error or "")


async def test_metadata_is_bounded_and_printable() -> None:
    class Big(Base):
        async def run(self, sample: Sampling) -> dict[str, Any]:
            await super().run(sample)
            return {"\x1b[2Jkey": "x" * 5_000_000}

    result, _, _ = await attempt(Big)
    ((key, value),) = result.metadata.items()
    assert key.isprintable()
    assert len(value) <= 200


async def test_a_rewards_parts_and_its_reason_are_kept() -> None:
    class Parts(Base):
        async def grade(self, grading: Grading) -> float:
            return weighted(
                {"tests": Reward(0.5, reason="1 of 2 tests passed"), "format": 1.0},
                {"tests": 2.0, "format": 0.25},
            )

    result, _, _ = await attempt(Parts)
    assert result.reward == 1.25
    assert type(result.reward) is float
    assert result.metadata == {
        "reward_part/tests": 0.5,
        "reward_part/format": 1.0,
        "reward_reason": "tests: 1 of 2 tests passed",
    }
    metrics = rollout_metrics([result])
    assert metrics["reward/part/tests"] == 0.5
    assert not any("reason" in name for name in metrics)


async def test_grading_in_a_fresh_sandbox_needs_one_in_the_config() -> None:
    class Fresh(Base):
        async def grade(self, grading: Grading) -> float:
            async with grading.fresh_sandbox():
                return 1.0

    result, _, _ = await attempt(Fresh)
    assert result.state is AttemptState.LOST
    assert "[runtime.config.sandbox]" in (result.error or "")


class Crowded:
    """Makes a second sandbox only once there is room, which takes longer than grading may."""

    def __init__(self, grading: float) -> None:
        self.grading, self.asked = grading, 0

    async def acquire(self, seconds: float) -> Any:
        self.asked += 1
        if self.asked > 1:
            room = asyncio.Event()
            asyncio.get_running_loop().call_later(4 * self.grading, room.set)
            await room.wait()
        return SimpleNamespace(sandbox=None)

    async def release(self, leased: Any) -> None:
        pass


async def test_waiting_for_a_sandbox_to_grade_in_is_not_grading() -> None:
    class Fresh(Base):
        async def grade(self, grading: Grading) -> float:
            async with grading.fresh_sandbox():
                return 1.0

    class Hanging(Base):
        async def grade(self, grading: Grading) -> float:
            async with grading.fresh_sandbox():
                await asyncio.Event().wait()
            return 1.0

    result, _, _ = await attempt(Fresh, grading=0.5, sandboxes=Crowded(0.5))
    assert (result.state, result.reward) == (AttemptState.DONE, 1.0)
    result, _, _ = await attempt(Hanging, grading=0.5, sandboxes=Crowded(0.1))
    assert (result.state, result.error) == (AttemptState.LOST, "grade() took longer than 0.5 s")


def test_a_class_that_grades_apart_is_known_by_its_code() -> None:
    class Apart(Base):
        async def grade(self, grading: Grading) -> float:
            async def elsewhere() -> float:
                async with grading.fresh_sandbox():
                    return 1.0

            return await elsewhere()

    class Derived(Apart):
        pass

    assert (grades_apart(Base), grades_apart(Apart), grades_apart(Derived)) == (False, True, True)
