"""The Episode contract: what a user writes.

One episode object is one attempt at one task. ``setup`` prepares its environment, ``run`` is the agent, ``grade``
turns what happened into a reward. See ``engine.episodes.runtime`` for what the engine does around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin

from engine.policy.conversation import Model
from engine.sandboxes.contract import Flavour, Sandbox

#: What ``run`` may return: numbers become ``rollout/<key>`` (their mean), texts ``rollout/<key>/<value>`` (a rate).
Metadata = Mapping[str, Any]


class SandboxNotConfigured(Exception):
    """An episode asked for a sandbox although its config names none."""


@dataclass(frozen=True, slots=True)
class Task[TaskT]:
    """One line of the tasks file: its validated ``value``, its id and its 0-based place in the file."""

    value: TaskT
    id: str
    index: int


def _required(sandbox: Sandbox | None, kind: type[Flavour] | None) -> Any:
    if sandbox is None:
        raise SandboxNotConfigured(
            "this episode asks for a sandbox, but the config has no [runtime.config.sandbox] section"
        )
    return sandbox.flavour(kind)


@dataclass(frozen=True, slots=True)
class Setup:
    """Given to ``setup``, before the agent starts."""

    attempt: int
    sandbox: Sandbox | None = None

    def require_sandbox(self, kind: type[Flavour] | None = None) -> Any:
        """The attempt's own sandbox: the provider-neutral :class:`~engine.sandboxes.contract.Sandbox`, or, given a
        provider's marker (``Blaxel``), that provider's flavour of it.

        Raises:
            SandboxNotConfigured: the config has no ``[runtime.config.sandbox]``.
            PermanentError: the config's provider is another one.
        """
        return _required(self.sandbox, kind)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Given to ``run``: the policy to talk to, and the sandbox to work in where the config has one."""

    model: Model
    attempt: int
    sandbox: Sandbox | None = None

    def require_sandbox(self, kind: type[Flavour] | None = None) -> Any:
        """As :meth:`Setup.require_sandbox`."""
        return _required(self.sandbox, kind)


#: Opens a sandbox for as long as its context lasts.
FreshSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]


@dataclass(frozen=True, slots=True)
class Grading:
    """Given to ``grade``. ``timed_out``: the agent's deadline cut ``run``."""

    timed_out: bool
    attempt: int
    sandbox: Sandbox | None = None
    fresh: FreshSandbox | None = None

    def fresh_sandbox(self) -> AbstractAsyncContextManager[Sandbox]:
        """Another sandbox of the config's provider, which nothing of the agent's has ever been in.

        ``async with grading.fresh_sandbox() as sandbox:`` It is leased like the attempt's own, and released at the end.
        Waiting for it is not counted against the deadline of grading; it has one of its own, as the attempt's had.

        Raises:
            SandboxNotConfigured: the config has no ``[runtime.config.sandbox]``.
        """
        if self.fresh is None:
            raise SandboxNotConfigured(
                "this episode grades in a sandbox, but the config has no [runtime.config.sandbox] section"
            )
        return self.fresh()

    def require_execution_sandbox(self, kind: type[Flavour] | None = None) -> Any:
        """The sandbox that the agent worked in, as it left it: what it started may still run.

        Raises as :meth:`Setup.require_sandbox`.
        """
        return _required(self.sandbox, kind)


@dataclass(frozen=True, slots=True)
class GroupAttempt:
    """One attempt of a group, given to ``grade_group``: its episode as it ended, and its own ``grade``, if it has one."""

    attempt: int
    episode: Episode[Any, Any]
    reward: float | None
    timed_out: bool
    ending: str | None


class Episode[TaskT, OptionsT]:
    """Base class of a user's episode.

    ``TaskT`` is the pydantic model of one line of the tasks file, ``OptionsT`` that of
    ``[runtime.config.options]`` (or None). Raise from ``setup`` or ``run`` only when the episode did not happen
    (infrastructure): the attempt is then tried again in a fresh one. Anything the agent did, however badly,
    deserves a reward.

    At its deadline each method is cancelled, and the policy answers ``run`` no more. Code that catches everything must
    raise ``asyncio.CancelledError`` again: otherwise it is left behind after half a minute, and goes on beside the run.
    """

    #: How often a ``grade`` that fails is called again. Above 0 only if grading twice does no harm. One that was left
    #: behind is not.
    grading_retries: ClassVar[int] = 0
    #: How the agent reaches the policy. "direct": through ``sample.model``.
    model_access: ClassVar[str] = "direct"

    def __init__(self, task: Task[TaskT], options: OptionsT) -> None:
        self.task = task
        self.options = options

    async def setup(self, setup: Setup) -> None:
        """Prepare the environment. The default does nothing."""

    async def run(self, sample: Sampling) -> Metadata | None:
        """The agent: talk to ``sample.model`` until done; return metadata worth reporting."""
        raise NotImplementedError(f"{type(self).__name__} does not define run()")

    async def grade(self, grading: Grading) -> float:
        """The reward of what happened, a finite number."""
        raise NotImplementedError(f"{type(self).__name__} does not define grade()")

    @classmethod
    async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
        """The rewards of one group's attempts against each other, one for each, in their order.

        For what cannot be scored alone but can be compared, such as by ranking. Where a class defines it, its word
        counts; ``grade`` may be left out then. The sandboxes are gone: keep in ``self`` what is compared. A raise, or
        numbers that are not finite, lose the group.
        """
        raise NotImplementedError(f"{cls.__name__} does not define grade_group()")


def compares(episode: type[Episode[Any, Any]]) -> bool:
    """Whether a class grades a group's attempts against each other."""
    return episode.grade_group.__func__ is not Episode.grade_group.__func__  # type: ignore[attr-defined]


def grades(episode: type[Episode[Any, Any]]) -> bool:
    """Whether a class grades an attempt by itself."""
    return episode.grade is not Episode.grade


def grades_apart(episode: type[Episode[Any, Any]]) -> bool:
    """Whether a class's own code names ``fresh_sandbox``: an attempt then has two sandboxes while it is graded."""
    functions = [
        value
        for cls in episode.__mro__
        if cls is not Episode and issubclass(cls, Episode)
        for value in vars(cls).values()
        if isinstance(value, FunctionType)
    ]
    codes = [function.__code__ for function in functions]
    for code in codes:  # grows
        if Grading.fresh_sandbox.__name__ in code.co_names:
            return True
        codes.extend(inner for inner in code.co_consts if isinstance(inner, CodeType))
    return False


def type_arguments(episode: type[Episode[Any, Any]]) -> tuple[Any, Any]:
    """The (TaskT, OptionsT) that a class bound, looked up along its bases.

    ``Any`` stands for one left open. ``None`` (or ``NoneType``) as OptionsT means: takes no options.
    """
    bound: dict[Any, Any] = {}
    found: tuple[Any, Any] = (Any, Any)

    def visit(cls: type, arguments: tuple[Any, ...]) -> None:
        nonlocal found
        if cls is Episode:
            if arguments:
                task, options = arguments
                found = (
                    bound.get(task, Any) if isinstance(task, TypeVar) else task,
                    bound.get(options, Any) if isinstance(options, TypeVar) else options,
                )
            return
        parameters = getattr(cls, "__parameters__", ())
        bound.update(zip(parameters, arguments, strict=False))
        for base in getattr(cls, "__orig_bases__", cls.__bases__):
            origin = get_origin(base) or base
            if isinstance(origin, type) and issubclass(origin, Episode):
                visit(origin, get_args(base))

    visit(episode, ())
    return found
