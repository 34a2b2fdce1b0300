"""The same requests as an episode: is the call that the model makes exactly the right one?"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict

from engine.episodes import Episode, Grading, Sampling, Task


class Request(BaseModel):
    """One line of the tasks file."""

    model_config = ConfigDict(extra="forbid")

    id: str
    request: str
    tools: list[dict[str, Any]]
    tool: str
    arguments: dict[str, Any]


class CallEpisode(Episode[Request, None]):
    """One reply; its first call is compared with the expected one."""

    def __init__(self, task: Task[Request], options: None) -> None:
        super().__init__(task, options)
        self.reward = 0.0

    async def run(self, sample: Sampling) -> dict[str, Any]:
        wanted = self.task.value
        conversation = sample.model.conversation()
        reply = await conversation.generate(
            messages=[{"role": "user", "content": wanted.request}], tools=wanted.tools
        )
        if not reply.tool_calls:
            return {"termination_reason": "truncated" if reply.truncated else "no_call", "right_tool": 0.0}
        call = reply.tool_calls[0]
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = None
        right_tool = call.name == wanted.tool
        if right_tool and arguments == wanted.arguments:
            self.reward = 1.0
        # Part of the way: the right tool with wrong arguments teaches more than no call at all.
        elif right_tool:
            self.reward = 0.2
        return {"termination_reason": "called", "right_tool": float(right_tool)}

    async def grade(self, grading: Grading) -> float:
        return self.reward
