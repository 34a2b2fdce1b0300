"""A policy that says what a test wrote down, in real attempts with real sandboxes and the episode's own grade."""

from __future__ import annotations

import importlib.util
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.episodes import Episode, Reply, Task, ToolCall
from engine.episodes.runtime import AttemptPlan, AttemptResult, Deadlines, run_attempt
from engine.policy.conversation import ConversationTrace, Sample
from engine.policy.tokens import Completion, Segment
from engine.sandboxes.contract import Sandbox, SandboxSpec
from engine.sandboxes.local.provider import LocalProvider

EXAMPLE = Path(__file__).parents[2] / "examples" / "test_suite_agent"


def example_module() -> ModuleType:
    """The example's episodes."""
    if "suite_episode_under_test" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "suite_episode_under_test", EXAMPLE / "suite_episode.py"
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["suite_episode_under_test"]


def example_tasks(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXAMPLE / name).read_text().splitlines()]


@dataclass(frozen=True)
class Turn:
    """One reply: what it says, and its calls as (name, arguments; a text stands as it is)."""

    text: str = ""
    calls: Sequence[tuple[str, Any]] = ()


class ScriptedModel:
    """Says the turns one after another, then that it is done."""

    def __init__(self, trace: ConversationTrace, turns: Sequence[Turn]) -> None:
        self._trace, self._turns, self._said = trace, turns, 0
        trace.segments.append(Segment())

    def conversation(self) -> ScriptedModel:
        return self

    async def generate(
        self, *, messages: Sequence[Any], tools: Sequence[Any] | None = None, max_tokens: int | None = None
    ) -> Reply:
        turn = self._turns[self._said] if self._said < len(self._turns) else Turn("Done.")
        self._said += 1
        self._trace.segments[0].append_prompt([1, 2])
        self._trace.segments[0].append_reply(Completion([3], [-0.5], "stop", 0))
        self._trace.replies += 1
        calls = [
            ToolCall(f"c{n}", name, text := _text(said), _problem(text))
            for n, (name, said) in enumerate(turn.calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": turn.text}
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        sample = Sample([3], [-0.5], "stop", 0, 2)
        return Reply(turn.text or None, calls, message, False, sample)


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _problem(arguments: str) -> str | None:
    """As the renderer's parser says it."""
    try:
        json.loads(arguments)
    except ValueError:
        return "the arguments are not valid JSON"
    return None


@dataclass(frozen=True)
class _Leased:
    sandbox: Sandbox


class Sandboxes:
    """Sandboxes for attempts, without a journal."""

    def __init__(self, provider: LocalProvider) -> None:
        self._provider = provider
        self.opened = 0

    async def acquire(self, seconds: float) -> _Leased:
        self.opened += 1
        name = f"try-{secrets.token_hex(6)}"
        return _Leased(await self._provider.create(SandboxSpec(name=name, memory_mb=1024)))

    async def release(self, leased: _Leased) -> None:
        await self._provider.release(leased.sandbox.name)


async def attempted(
    episode: type[Episode[Any, Any]],
    value: Any,
    options: Any,
    turns: Sequence[Turn],
    sandboxes: Sandboxes,
    *,
    seconds: float = 60.0,
) -> AttemptResult:
    """One whole attempt: setup, the scripted agent, the episode's own grade."""
    plan = AttemptPlan(
        episode=episode,
        task=Task(value, value.id, 0),
        options=options,
        attempt=0,
        deadlines=Deadlines(60, seconds, 100),
        max_retries=0,
        model=lambda trace, _try, _waiting: ScriptedModel(trace, turns),  # type: ignore[arg-type, return-value]
        sandboxes=sandboxes,
    )
    return await run_attempt(plan)
