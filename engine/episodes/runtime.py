"""What the engine does around one attempt: deadlines, retries, grading, and a record of all of it.

An attempt ends in one of four ways: graded (DONE), lost (infrastructure failed and the retries are spent), discarded
(nothing to train on), or cancelled. None of them raises: one failed attempt never fails a run. Only what makes every
later attempt futile (``LoopsUnavailable``) and cancellation pass through.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.episodes.contract import Episode, Grading, Sampling, Setup, Task, compares, grades
from engine.episodes.fresh import FreshSandboxes, SandboxSource
from engine.episodes.places import Places, Unlimited
from engine.episodes.user_code import (
    Infrastructure,
    Log,
    OneTask,
    guarded,
    infrastructure,
    passes_through,
    raised,
    within,
)
from engine.loops.errors import one_line
from engine.policy.conversation import ContextWindowExceeded, ConversationTrace, Model
from engine.rewards.scored import Reward
from engine.sandboxes.contract import Sandbox
from engine.store.rows import AttemptState

#: A larger reward is a grader's mistake: sums and squares of a group must stay exact enough to compare.
MAX_REWARD = 1e9
#: What is kept of a metadata key and of a text, in characters: each text becomes a metric's name.
MAX_METADATA_KEY, MAX_METADATA_TEXT = 80, 200

#: Metadata that comes from the reward itself: its parts, each under this prefix, and why it is what it is.
PART, REASON = "reward_part/", "reward_reason"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that each part of an attempt may take. A deadline of ``run`` is no error: the attempt is graded."""

    setup: float
    agent: float
    grading: float
    provision: float = 300.0


@dataclass(slots=True)
class AttemptResult:
    """What an attempt left. ``reward`` is a finite number iff ``state`` is DONE, and ``episode`` is None or compared.

    ``timeline``: phase → [first start, last end, total seconds], times in Unix seconds.
    """

    state: AttemptState
    trace: ConversationTrace
    reward: float | None = None
    ending: str | None = None
    timed_out: bool = False
    tries: int = 1
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    timeline: dict[str, list[float]] = field(default_factory=dict)
    started_at: float = 0.0
    ended_at: float = 0.0
    #: Kept only where its class compares a group's attempts: ``reward`` is None until that was done.
    episode: Episode[Any, Any] | None = None


class AttemptClock:
    """Which phase an attempt is in, and how long each took; tells a listener of every change."""

    def __init__(self, changed: Callable[[AttemptState], None]) -> None:
        self._changed = changed
        self._phase: AttemptState | None = None
        self._since = 0.0
        self.timeline: dict[str, list[float]] = {}

    @property
    def phase(self) -> AttemptState | None:
        return self._phase

    def enter(self, phase: AttemptState | None) -> None:
        """End the phase so far and begin another (None: only end it)."""
        if phase == self._phase:
            return
        now = time.time()
        if self._phase is not None:
            entry = self.timeline.setdefault(self._phase.value, [self._since, now, 0.0])
            entry[1] = now
            entry[2] += now - self._since
        self._phase, self._since = phase, now
        if phase is not None:
            self._changed(phase)


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """All that is fixed about an attempt before it starts.

    ``sandboxes`` is None for an episode without one. ``model`` makes the policy's face for one try: it is given the
    trace to write into, the try's number and the waiting listener. The deadlines do not count waiting for ``places``.
    """

    episode: type[Episode[Any, Any]]
    task: Task[Any]
    options: Any
    attempt: int
    deadlines: Deadlines
    max_retries: int
    model: Callable[[ConversationTrace, int, Callable[[bool], None]], Model]
    sandboxes: SandboxSource[Any] | None = None
    places: Places = field(default_factory=Unlimited)


async def run_attempt(
    plan: AttemptPlan,
    *,
    changed: Callable[[AttemptState], None] = lambda _: None,
    log: Log = lambda _level, _text: None,
) -> AttemptResult:
    """Run one attempt to its end, trying again where its infrastructure failed.

    Args:
        changed: called on every change of phase.
        log: called with a level and a text for what a person should be able to find later.

    Raises:
        LoopsUnavailable: Loops cannot serve the run any more.
        asyncio.CancelledError: the caller cancelled it.
    """
    clock = AttemptClock(changed)
    started = time.time()
    error = ""
    for number in range(1, plan.max_retries + 2):
        trace, code = ConversationTrace(), OneTask(log)
        try:
            result = await _with_sandbox(plan, number, code=code, trace=trace, clock=clock, log=log)
        except Infrastructure as failure:
            error = str(failure)
            last = number == plan.max_retries + 1
            log("warning", f"try {number} failed{'; no retries left' if last else ', trying again'}: {error}")
            continue
        finally:
            clock.enter(None)
            trace.close()
            code.close()
        break
    else:
        result = AttemptResult(
            AttemptState.LOST,
            ConversationTrace(),
            error=error,
            ending="infrastructure",
            tries=plan.max_retries + 1,
        )
    result.timeline = clock.timeline
    result.started_at, result.ended_at = started, time.time()
    return result


async def _with_sandbox(
    plan: AttemptPlan,
    number: int,
    *,
    code: OneTask,
    trace: ConversationTrace,
    clock: AttemptClock,
    log: Log,
) -> AttemptResult:
    """One try in a sandbox of its own, which is released however the try ends."""
    if plan.sandboxes is None:
        return await _one_try(plan, number, None, code=code, trace=trace, clock=clock, log=log)
    clock.enter(AttemptState.PROVISIONING)
    with infrastructure("creating the sandbox"):
        leased = await plan.sandboxes.acquire(plan.deadlines.provision)
    try:
        return await _one_try(plan, number, leased.sandbox, code=code, trace=trace, clock=clock, log=log)
    finally:
        clock.enter(None)
        await plan.sandboxes.release(leased)


async def _one_try(
    plan: AttemptPlan,
    number: int,
    sandbox: Sandbox | None,
    *,
    code: OneTask,
    trace: ConversationTrace,
    clock: AttemptClock,
    log: Log,
) -> AttemptResult:
    with infrastructure(f"{plan.episode.__name__}()"):
        episode = plan.episode(plan.task, plan.options)

    def queued() -> None:
        clock.enter(AttemptState.QUEUED)

    clock.enter(AttemptState.SETUP)
    seconds, setup = plan.deadlines.setup, Setup(plan.attempt, sandbox)
    await guarded(code, lambda: episode.setup(setup), asyncio.timeout(seconds), seconds, "setup()")

    model = plan.model(
        trace,
        number,
        lambda waiting: clock.enter(AttemptState.SAMPLING if waiting else AttemptState.ACTING),
    )
    ending, metadata = None, None
    deadline = asyncio.timeout(None)
    try:
        async with plan.places.sampling(queued):
            clock.enter(AttemptState.ACTING)
            deadline = asyncio.timeout(plan.deadlines.agent)
            sample = Sampling(model, plan.attempt, sandbox)
            metadata = await within(code, lambda: episode.run(sample), deadline, "run()", trace.close)
    except ContextWindowExceeded:
        ending = "context_overflow"
    except BaseException as error:
        if passes_through(error):
            raise
        if not deadline.expired():
            raise Infrastructure(raised("run()", error)) from error
    timed_out = deadline.expired()
    ending = "timed_out" if timed_out else ending

    result = AttemptResult(AttemptState.DONE, trace, timed_out=timed_out, tries=number)
    result.metadata = _plain_metadata(metadata, log)
    reason = result.metadata.get("termination_reason")
    result.ending = ending or (str(reason) if reason is not None else "completed")
    if trace.replies == 0:
        # Nothing was sampled, so there is nothing to train on and no policy to blame: grading it would only
        # move the group's mean.
        result.state, result.ending = AttemptState.DISCARDED, ending or "no_reply"
        return result

    async with plan.places.grading(queued):
        clock.enter(AttemptState.GRADING)
        if compares(plan.episode):
            result.episode = episode
            if not grades(plan.episode):
                return result
        reward, problem = await _grade(plan, episode, timed_out, sandbox, code=code, log=log)
    if isinstance(reward, Reward):
        result.metadata.update(_told_by(reward))
    if problem is not None:
        result.state, result.error, result.ending = AttemptState.LOST, problem, "grading_failed"
    elif trace.trainable_tokens == 0:
        result.state, result.ending = AttemptState.DISCARDED, "all_replies_discarded"
        result.reward = None if reward is None else float(reward)
    else:
        result.reward = None if reward is None else float(reward)
    return result


def _told_by(reward: Reward) -> dict[str, Any]:
    """What a reward says of itself, as metadata."""
    told: dict[str, Any] = {
        f"{PART}{one_line(name, MAX_METADATA_KEY)}": value
        for name, value in reward.parts.items()
        if math.isfinite(value)
    }
    if reward.reason:
        told[REASON] = one_line(reward.reason, MAX_METADATA_TEXT)
    return told


async def _grade(
    plan: AttemptPlan,
    episode: Episode[Any, Any],
    timed_out: bool,
    sandbox: Sandbox | None,
    *,
    code: OneTask,
    log: Log,
) -> tuple[float | None, str | None]:
    """The reward, or what was wrong with grading. A grader that returns no finite number has failed too."""
    problem, source, deadlines = "", plan.sandboxes, plan.deadlines
    for number in range(1, episode.grading_retries + 2):
        deadline = asyncio.timeout(deadlines.grading)
        fresh = None if source is None else FreshSandboxes(source, deadlines.provision, deadline)
        grading = Grading(timed_out, plan.attempt, sandbox, None if fresh is None else fresh.open)
        grade = partial(episode.grade, grading)
        try:
            reward = await guarded(code, grade, deadline, deadlines.grading, "grade()")
        except Infrastructure as failure:
            problem = str(failure)
        else:
            if isinstance(reward, (bool, int, float)) and abs(reward) <= MAX_REWARD:  # NaN is not
                return reward if isinstance(reward, Reward) else float(reward), None
            problem = f"grade() must return a finite number of at most {MAX_REWARD:g}, not {reward!r}"[:300]
        finally:
            if fresh is not None:
                await fresh.close()
        beside = code.left_behind and number <= episode.grading_retries
        if beside:
            problem += "; it has not let go, so it is not called again beside that"
        log("warning", f"grading failed (call {number} of {episode.grading_retries + 1}): {problem}")
        if beside:
            break
    return None, problem


def _plain_metadata(metadata: Any, log: Log) -> dict[str, Any]:
    """Only what can be reported: numbers, texts, booleans. The rest is named once in the log."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        log(
            "warning",
            f"run() must return a mapping or None; what it returned ({type(metadata).__name__}) is dropped",
        )
        return {}
    plain: dict[str, Any] = {}
    for key, value in metadata.items():
        name = one_line("".join(c if c.isprintable() else "?" for c in str(key)), MAX_METADATA_KEY)
        if isinstance(value, str):
            plain[name] = one_line(value, MAX_METADATA_TEXT)
        elif isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
            plain[name] = value
        elif value is not None:
            log("warning", f"metadata {key!r} is {type(value).__name__}, not a number or text: dropped")
    return plain
