"""Repositories with a bug and a test suite: the suite is the verdict, in a sandbox that nothing else has been in.

Two agents for the same tasks: :class:`WholeFileEpisode` answers with whole files in fences, :class:`ToolEpisode` works
in a sandbox of its own. What both are worth is said in :func:`judged`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.episodes import (
    ContextWindowExceeded,
    Episode,
    Grading,
    MalformedToolCall,
    Sampling,
    Setup,
    Task,
    ToolCall,
)
from engine.rewards import (
    Reward,
    files_written,
    schema_valid,
    step_budget,
    text_of,
    tool_call_format,
    weighted,
)
from engine.rewards.suite import Suite, Verdict, judge_sandbox, run_suite
from engine.sandboxes.errors import InvalidRequest, SandboxFileError


class RepositoryTask(BaseModel):
    """One line of the tasks: a small repository, what is wrong with it, and how many tests its suite has.

    ``tests`` are in ``files`` as well: the agent may read them, and an attempt that changes one is worth nothing.
    ``passing``: how many of them pass before anything is changed. ``protected``: patterns of other paths that nobody
    may touch.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    instruction: str
    files: dict[str, str]
    tests: str = "tests"
    expected: int = Field(ge=1)
    passing: int = Field(0, ge=0)
    protected: list[str] = Field(default_factory=list)

    def suite(self, seconds: float) -> Suite:
        """How it is judged; ``seconds`` bound the test run."""
        return Suite(
            kind="unittest",
            target=self.tests,
            expected=self.expected,
            passing=self.passing,
            protected=self.protected,
            seconds=seconds,
            cpu_seconds=max(1, round(seconds)),
            memory_mb=256,
        )


class SuiteOptions(BaseModel):
    """Both agents' limits and what each part of the reward weighs, validated at check."""

    model_config = ConfigDict(extra="forbid")

    max_turns: int = Field(6, ge=1)
    command_timeout_seconds: float = Field(10, gt=0)
    max_output_chars: int = Field(2000, ge=1)
    suite_seconds: float = Field(30, gt=0)
    step_budget: int = Field(8, ge=1)
    weights: dict[str, float] = Field(default_factory=lambda: {"suite": 2.0, "format": 0.5, "budget": 1.0})


def judged(
    verdict: Verdict,
    messages: Sequence[Mapping[str, Any]],
    options: SuiteOptions,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Reward:
    """The outcome dominates, the form is a hint, and too many steps are a brake; every part stays visible.

    Parts: ``suite`` (the share of the tests to be mended that were), ``format``, ``budget``, and with tools
    ``schema``. A part without a weight counts nothing.
    """
    said = list(messages)
    parts: dict[str, float] = {
        "suite": verdict.reward(partial=True),
        "format": tool_call_format().one(said),
        "budget": step_budget(options.step_budget).one(said),
    }
    if tools:
        parts["schema"] = schema_valid(tools).one(said)
    weights = {name: options.weights.get(name, 0.0) for name in parts}
    return weighted(parts, weights)


class WholeFileEpisode(Episode[RepositoryTask, SuiteOptions]):
    """Shows the files and asks for whole ones back, each in a fence of its own; a second turn where there was none."""

    # grading_retries stays 0: the sandbox is fresh once.

    def __init__(self, task: Task[RepositoryTask], options: SuiteOptions) -> None:
        super().__init__(task, options)
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": _question(task.value)}]

    async def run(self, sample: Sampling) -> dict[str, Any]:
        conversation = sample.model.conversation()
        turns = min(self.options.max_turns, 2)
        for turn in range(1, turns + 1):
            try:
                reply = await conversation.generate(messages=self.messages)
            except ContextWindowExceeded:
                return {"termination_reason": "context_overflow", "turns": turn - 1}
            if reply.native_message is None:
                return {"termination_reason": "unusable_reply", "turns": turn}
            self.messages.append(reply.native_message)
            if reply.truncated:  # graded on what it said all the same: a file whose fence was cut is none
                return {"termination_reason": "truncated", "turns": turn}
            if files_written(text_of(self.messages)):
                return {"termination_reason": "completed", "turns": turn}
            self.messages.append({"role": "user", "content": "There was no file. " + _PROTOCOL})
        return {"termination_reason": "no_file", "turns": turns}

    async def grade(self, grading: Grading) -> float:
        """In the attempt's own sandbox: it is fresh, this agent has run nothing in it."""
        task = self.task.value
        verdict = await run_suite(
            grading.require_execution_sandbox(),
            task.files,
            files_written(text_of(self.messages)),
            task.suite(self.options.suite_seconds),
        )
        return judged(verdict, self.messages, self.options)


_PROTOCOL = (
    "Answer with every file that you change, whole, each in a fence that names it:\n"
    "```file:path/to/file.py\n(the whole file)\n```"
)


def _question(task: RepositoryTask) -> str:
    files = "\n".join(f"```file:{path}\n{content}```" for path, content in task.files.items())
    return f"{task.instruction}\n\n{files}\n\nThe tests may not be changed. {_PROTOCOL}"


SYSTEM = "You work in a directory of files. Use the tools, then answer briefly."


def _tool(name: str, description: str, parameters: list[str]) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": parameters}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _tool("shell", "Run a shell command.", ["command"]),
    _tool("write_file", "Write a file.", ["path", "content"]),
]


class ToolEpisode(Episode[RepositoryTask, SuiteOptions]):
    """Works with two tools in a sandbox of its own; what it changed there is judged in another."""

    grading_retries = 1  # reading what was left and running it elsewhere changes nothing

    def __init__(self, task: Task[RepositoryTask], options: SuiteOptions) -> None:
        super().__init__(task, options)
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": task.value.instruction},
        ]

    async def setup(self, setup: Setup) -> None:
        await setup.require_sandbox().write_tree(self.task.value.files)

    async def run(self, sample: Sampling) -> dict[str, Any]:
        sandbox = sample.require_sandbox()
        conversation = sample.model.conversation()
        for turn in range(1, self.options.max_turns + 1):
            try:
                reply = await conversation.generate(messages=self.messages, tools=TOOLS)
            except ContextWindowExceeded:
                return {"termination_reason": "context_overflow", "turns": turn - 1}
            if reply.native_message is None:
                return {"termination_reason": "unusable_reply", "turns": turn}
            self.messages.append(reply.native_message)
            if reply.truncated:
                return {"termination_reason": "truncated", "turns": turn}
            if not reply.tool_calls:
                return {"termination_reason": "completed", "turns": turn}
            for call in reply.tool_calls:
                content = json.dumps(await self._carried_out(sandbox, call))
                answer = {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "name": call.name or "",
                    "content": content,
                }
                self.messages.append(answer)
        return {"termination_reason": "max_turns", "turns": self.options.max_turns}

    async def _carried_out(self, sandbox: Any, call: ToolCall) -> dict[str, Any]:
        """The result of one call. A mistake of the policy's is told to it, and nothing is run."""
        wanted = {"shell": ["command"], "write_file": ["content", "path"]}.get(call.name or "")
        try:
            arguments = call.parse()
            if (
                wanted is None
                or sorted(arguments) != wanted
                or not all(isinstance(value, str) for value in arguments.values())
            ):
                return {
                    "error": f"{call.name} takes {' and '.join(wanted or ['nothing: there is no such tool'])}"
                }
            if call.name == "write_file":
                await sandbox.write_tree({arguments["path"].removeprefix("/work/"): arguments["content"]})
                return {"written": arguments["path"]}
        except (MalformedToolCall, InvalidRequest, SandboxFileError) as refused:
            return {"error": str(refused)}
        done = await sandbox.exec(
            arguments["command"], timeout=self.options.command_timeout_seconds, merge_stderr=True
        )
        output = done.output[: self.options.max_output_chars]
        if done.status == "timed_out":
            return {"error": "the command took too long", "output": output}
        return {"exit_code": done.exit_code, "output": output}

    async def grade(self, grading: Grading) -> float:
        task = self.task.value
        verdict = await judge_sandbox(
            grading.require_execution_sandbox(),
            grading.fresh_sandbox,
            task.files,
            task.suite(self.options.suite_seconds),
        )
        return judged(verdict, self.messages, self.options, TOOLS)
