"""Trying weights out: talk to a checkpoint or a base model, or let it attempt one task. Nothing of it trains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config.sampling import SamplingSettings as SamplingTable
from engine.episodes.contract import Task
from engine.episodes.runtime import AttemptPlan, AttemptResult, run_attempt
from engine.hosting.errors import BadRequest, HostingError
from engine.hosting.weights import (
    WeightsAsked,
    WeightsInHand,
    require_episode,
    weights_in_hand,
    while_loops_lives,
)
from engine.loops.errors import LoopsError
from engine.loops.sampling import SamplingSettings
from engine.policy.conversation import (
    ContextWindowExceeded,
    Conversation,
    ConversationTrace,
    Model,
    ReplyLimits,
)
from engine.policy.rendering import Message, RenderingError
from engine.recipes.evaluation.plan import held_out_tasks
from engine.recipes.rl.comparing import compare
from engine.recipes.rl.parts import deadlines_of
from engine.store.rows import AttemptState

if TYPE_CHECKING:
    from engine.project import Project

__all__ = ["Said", "Trial", "TrialAttempt", "TrialSampling", "WeightsAsked", "open_trial"]


@dataclass(frozen=True, slots=True)
class TrialSampling:
    """How replies are sampled; None: as the config's ``[sampling]`` says. ``seed`` None: other replies each time."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """One reply of the weights. ``tool_calls`` as in a transcript's turn; nothing is run of them here."""

    text: str
    reasoning: str | None
    tokens: int
    prompt_tokens: int
    truncated: bool
    tool_calls: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TrialAttempt:
    """One attempt at a task: what was said, and how it was graded. ``turns`` as in ``TranscriptRow``."""

    task_id: str
    state: str
    reward: float | None
    ending: str | None
    error: str | None
    turns: list[dict[str, Any]]
    metadata: dict[str, Any]
    seconds: float


class Trial:
    """Weights that can be talked to (``say``) and set to a task (``attempt``). Made by ``open_trial``.

    Attributes:
        name: whose weights these are, in words.
    """

    def __init__(self, weights: WeightsInHand, sampling: TrialSampling, system: str | None) -> None:
        self._weights = weights
        self.name = weights.name
        self._system = system
        self.use(sampling)
        self.forget()

    def use(self, sampling: TrialSampling) -> None:
        """Sample so from the next reply on."""
        config = self._weights.project.config
        chosen = SamplingTable.model_validate({}) if config.recipe == "sft" else config.sampling

        def or_else[T](given: T | None, configured: T) -> T:
            return configured if given is None else given

        self._seed = sampling.seed
        self._limits = ReplyLimits(config.model.max_seq_len, or_else(sampling.max_tokens, chosen.max_tokens))
        self._weights.sampler.use_sampling(
            SamplingSettings(
                or_else(sampling.temperature, chosen.temperature),
                or_else(sampling.top_p, chosen.top_p),
                or_else(sampling.top_k, chosen.top_k),
                list(chosen.stop) or self._weights.renderer.stop_token_ids,
            )
        )

    def forget(self) -> None:
        """Begin a new conversation."""
        self._trace = ConversationTrace()
        self._conversation: Conversation | None = None
        self._messages: list[Message] = []
        if self._system is not None:
            self._messages.append({"role": "system", "content": self._system})

    async def say(self, text: str) -> Said:
        """Say something and wait for the reply.

        Raises HostingError: the conversation has no room left, or Loops failed; the conversation is as before.
        """
        if self._conversation is None:
            self._conversation = self._model(self._trace, 1).conversation()
        messages = [*self._messages, {"role": "user", "content": text}]
        try:
            reply = await while_loops_lives(
                self._weights.endpoint,
                self._conversation.generate(messages=messages, max_tokens=self._limits.max_tokens),
            )
        except (LoopsError, ContextWindowExceeded, RenderingError) as error:
            raise HostingError(str(error)) from error
        if reply.native_message is not None:
            self._messages = [*messages, reply.native_message]
        return Said(
            reply.content or "",
            reply.reasoning,
            len(reply.sample.tokens),
            reply.sample.prompt_tokens,
            reply.truncated,
            list(self._trace.turns[-1].get("tool_calls") or ()),
        )

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The conversation so far, as a transcript's turns."""
        return self._trace.turns

    async def attempt(
        self,
        task: int,
        *,
        held_out: bool = False,
        changed: Callable[[AttemptState], None] = lambda _: None,
        log: Callable[[str, str], None] = lambda _level, _text: None,
    ) -> TrialAttempt:
        """Let the weights attempt task number ``task`` (from 0) of the config's tasks, or of its held-out ones.

        Raises HostingError, ConfigError: there is no such task, or Loops failed.
        """
        weights = self._weights
        plan = await asyncio.to_thread(self._plan, task, held_out, log)
        try:
            result = await while_loops_lives(weights.endpoint, run_attempt(plan, changed=changed, log=log))
            await compare([result], plan.deadlines.grading, log)  # an episode that only compares; alone, here
        except LoopsError as error:
            raise HostingError(str(error)) from error
        return _attempted(plan.task, result)

    def _plan(self, number: int, held_out: bool, log: Callable[[str, str], None]) -> AttemptPlan:
        project, sandboxes = self._weights.project, self._weights.sandboxes
        episode, task = project.episode(), _task(project, number, held_out)
        return AttemptPlan(
            episode=episode.cls,
            task=task,
            options=episode.options,
            attempt=0,
            deadlines=deadlines_of(project),
            max_retries=0,
            model=self._model,
            sandboxes=None if sandboxes is None else sandboxes.source(number, 0, log),
        )

    def _model(
        self, trace: ConversationTrace, tried: int, waiting: Callable[[bool], None] = lambda _: None
    ) -> Model:
        seed = self._seed
        return Model(
            sampler=self._weights.sampler,
            renderer=self._weights.renderer,
            limits=self._limits,
            trace=trace,
            seed=lambda call: None if seed is None else seed + call,
            waiting=waiting,
        )


@asynccontextmanager
async def open_trial(
    project_dir: Path,
    asked: WeightsAsked,
    *,
    sampling: TrialSampling | None = None,
    system: str | None = None,
    with_sandboxes: bool = False,
    task: tuple[int, bool] | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Trial]:
    """Open weights to try; the sampler, and what an attempt leased, are released when the block ends.

    ``with_sandboxes``: for ``Trial.attempt`` of an episode that has a sandbox. ``task``: the number of the task that
    will be attempted and whether it is a held-out one; where there is none, nothing is opened. ``told`` hears what is
    opened, what it costs, and what could not be released.

    Raises UnknownRun, CheckpointUnknown, HostingError, ConfigError or StoreError, each with one sentence.
    """

    def ready(project: Project) -> None:
        if task is not None:
            _task(project, *task)

    async with weights_in_hand(
        project_dir, asked, purpose="try", with_sandboxes=with_sandboxes, ready=ready, told=told
    ) as weights:
        yield Trial(weights, sampling or TrialSampling(), system)


def _task(project: Project, number: int, held_out: bool) -> Task[Any]:
    """Task number ``number`` of the config. Blocks. Raises BadRequest where there is none, ConfigError."""
    require_episode(project)
    if not held_out:
        tasks = [Task(task.value, task.id, task.index) for task in project.tasks()]
    elif project.rl.eval is None:
        raise BadRequest("the config has no [eval], and so no held-out tasks")
    else:
        tasks = held_out_tasks(project.rl.eval, project.episode().task_type)
    if not 0 <= number < len(tasks):
        raise BadRequest(f"there is no task {number}; there are {len(tasks)}, from 0 on")
    return tasks[number]


def _attempted(task: Task[Any], result: AttemptResult) -> TrialAttempt:
    return TrialAttempt(
        task.id,
        str(result.state),
        result.reward,
        result.ending,
        result.error,
        result.trace.turns,
        result.metadata,
        result.ended_at - result.started_at,
    )
