"""An agent with two tools in a sandbox of its own, graded on the files it leaves.

Nothing here names a provider: the same episode runs on local sandboxes and on Blaxel, as the config says.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.episodes import (
    ContextWindowExceeded,
    Episode,
    Grading,
    MalformedToolCall,
    Sampling,
    Setup,
    ToolCall,
)

WORKDIR = "/work"
SYSTEM = "You work in a directory of files. Use the tools, then answer briefly."


def _tool(name: str, description: str, parameters: list[str]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string"} for parameter in parameters},
                "required": parameters,
            },
        },
    }


TOOLS = [
    _tool("shell", "Run a shell command.", ["command"]),
    _tool("write_file", "Write a file.", ["path", "content"]),
]


class FileTask(BaseModel):
    """One line of the dataset: files to start from, what to do, and a check that exits 0 when it is done.

    The agent sees the files and the instruction, never the check.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    instruction: str
    files: dict[str, str] = Field(default_factory=dict)
    check: str


class ToolOptions(BaseModel):
    """The agent's own limits, validated at check."""

    model_config = ConfigDict(extra="forbid")

    max_turns: int = Field(12, ge=1)
    command_timeout_seconds: float = Field(20, gt=0)
    max_output_chars: int = Field(2000, ge=1)


class ToolEpisode(Episode[FileTask, ToolOptions]):
    grading_retries = 1  # the check only reads, so it is safe to run again

    async def setup(self, setup: Setup) -> None:
        await setup.require_sandbox().write_tree(self.task.value.files, WORKDIR)

    async def run(self, sample: Sampling) -> dict[str, Any]:
        sandbox = sample.require_sandbox()
        conversation = sample.model.conversation()
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": self.task.value.instruction},
        ]
        calls = malformed = 0

        def ended(reason: str, turns: int) -> dict[str, Any]:
            return {
                "termination_reason": reason,
                "turns": turns,
                "calls": calls,
                "malformed_calls": malformed,
            }

        for turn in range(1, self.options.max_turns + 1):
            try:
                reply = await conversation.generate(messages=messages, tools=TOOLS)
            except ContextWindowExceeded:  # the conversation outgrew max_seq_len
                return ended("context_overflow", turn - 1)
            # A cut reply trains with the episode's reward. To leave one out that the conversation's end cut
            # (``reply.sample.clamped_from is not None``), call ``conversation.discard(reply)`` before ending.
            if reply.truncated:
                return ended("truncated", turn)
            if reply.native_message is None:
                return ended("unusable_reply", turn)
            messages.append(reply.native_message)
            if not reply.tool_calls:
                return ended("completed", turn)
            for call in reply.tool_calls:  # in order: a later call may read an earlier one's file
                calls += 1
                try:
                    result = await self.call(sandbox, call)
                except MalformedToolCall as mistake:  # the policy's mistake: it is told, and nothing is run
                    malformed += 1
                    result = {"error": str(mistake)}
                messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "name": call.name or "",
                        "content": json.dumps(result),
                    }
                )
        return ended("max_turns", self.options.max_turns)

    async def call(self, sandbox: Any, call: ToolCall) -> dict[str, Any]:
        """Carry out one tool call. A command that fails or takes too long is a result, not an error."""
        arguments = call.parse()
        wanted = {"shell": ["command"], "write_file": ["path", "content"]}[call.name or ""]
        if sorted(arguments) != sorted(wanted) or not all(isinstance(arguments[key], str) for key in wanted):
            raise MalformedToolCall(f"{call.name} takes {' and '.join(wanted)}, as text")
        if call.name == "write_file":
            return await self.write(sandbox, arguments["path"], arguments["content"])
        done = await sandbox.exec(
            arguments["command"], timeout=self.options.command_timeout_seconds, merge_stderr=True
        )
        output = done.output[: self.options.max_output_chars]
        if done.status == "timed_out":
            return {"error": "the command took too long", "output": output}
        return {"exit_code": done.exit_code, "output": output}

    async def write(self, sandbox: Any, path: str, content: str) -> dict[str, Any]:
        """Write one file below the working directory."""
        from engine.sandboxes.errors import InvalidRequest, SandboxFileError

        try:
            await sandbox.write_tree({path.removeprefix(f"{WORKDIR}/"): content}, WORKDIR)
        except (InvalidRequest, SandboxFileError) as refused:
            return {"error": str(refused)}
        return {"written": path}

    async def grade(self, grading: Grading) -> float:
        sandbox = grading.require_execution_sandbox()
        # What the agent left running could still change the files, or the check's answer.
        await sandbox.kill_all()
        checked = await sandbox.exec(self.task.value.check, cwd=WORKDIR, timeout=30)
        if checked.status == "completed" and checked.exit_code == 0:
            return 1.0
        await sandbox.ensure_alive()  # a failed check says something only about a living sandbox
        return 0.0
