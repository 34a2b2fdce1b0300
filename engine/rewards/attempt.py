"""Reading an attempt: its visible text, its tool calls, the files it wrote in fences.

An attempt is what TRL hands a reward function for one completion (a text, a message, or a list of messages in
OpenAI's format), or the assistant messages that an Episode collected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: A whole file in a fence of its own: ```file:src/app.py … ```. The closing fence stands at the start of a line, so
#: a file may hold fences of its own inside a line.
_FILE_FENCE = re.compile(r"^```file:([^\n`]+)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that arrived as a call. ``arguments`` is None where they cannot be read; ``problem`` says why.

    Arguments that are broken are never taken for ``{}``: running a tool with none is not what the model asked for.
    """

    name: str
    arguments: Mapping[str, Any] | None
    problem: str | None = None


def text_of(attempt: Any) -> str:
    """What the attempt says, without its structured calls: texts of all its assistant messages, a line between."""
    return "\n".join(text for message in messages_of(attempt) if (text := _content(message.get("content"))))


def calls_of(attempt: Any) -> list[Call]:
    """The structured tool calls, in order. A call that arrived as visible text is no call."""
    calls: list[Call] = []
    for message in messages_of(attempt):
        for call in message.get("tool_calls") or ():
            if isinstance(call, Mapping):
                calls.append(_call(call))
    return calls


def files_written(text: str) -> dict[str, str]:
    """The files that a text writes, path to content; where a path is written twice, the last one counts."""
    return {path.strip(): body for path, body in _FILE_FENCE.findall(text) if path.strip()}


def messages_of(attempt: Any) -> Iterator[Mapping[str, Any]]:
    """The assistant's messages of an attempt; a text counts as one."""
    if isinstance(attempt, str):
        yield {"role": "assistant", "content": attempt}
    elif isinstance(attempt, Mapping):
        if attempt.get("role", "assistant") == "assistant":
            yield attempt
    elif isinstance(attempt, list | tuple):
        for message in attempt:
            if isinstance(message, Mapping) and message.get("role", "assistant") == "assistant":
                yield message


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _call(call: Mapping[str, Any]) -> Call:
    function = call.get("function")
    said: Mapping[str, Any] = function if isinstance(function, Mapping) else call
    name, arguments = str(said.get("name") or ""), said.get("arguments")
    problem = call.get("problem")
    if problem:
        return Call(name, None, str(problem))
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return Call(name, None, f"the arguments are not JSON: {error}")
    if not isinstance(arguments, Mapping):
        return Call(name, None, "the arguments are no JSON object")
    return Call(name, arguments)
