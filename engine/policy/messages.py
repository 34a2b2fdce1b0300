"""What an agent hands to a conversation, looked at before it is rendered.

Chat formats leave out what they do not know, such as an image or a message of a role of their own; the policy would
then be trained on an answer to something that it never saw. So whatever would be lost is refused, by its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.policy.rendering import Message, RenderingError, ToolSpec

ROLES = ("system", "developer", "user", "assistant", "tool")


def checked_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Copies, each with its content as one text: parts of text are joined, as chat templates join them.

    Raises:
        RenderingError: something in them would not reach the policy.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RenderingError('messages must be a list that begins as [{"role": "user", "content": …}]')
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def checked_tools(tools: Sequence[ToolSpec] | None) -> list[ToolSpec]:
    """Copies. Raises RenderingError where one of them names no function."""
    if isinstance(tools, Mapping | str):
        raise RenderingError("tools must be a list of functions")
    for place, tool in enumerate(tools or ()):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RenderingError(
                f'tools[{place}] names no function: write {{"type": "function", "function": {{"name": …}}}}'
            )
    return [dict(tool) for tool in tools or ()]


def checked_max_tokens(max_tokens: int | None) -> int | None:
    """The bound of one reply. Raises RenderingError where no reply could keep it."""
    if max_tokens is None or (type(max_tokens) is int and max_tokens > 0):
        return max_tokens
    raise RenderingError(f"max_tokens must be a whole number from 1 on, not {max_tokens!r}")


def _message(message: Mapping[str, Any], place: str) -> Message:
    if not isinstance(message, Mapping):
        raise RenderingError(
            f'{place} is of type {type(message).__name__}: write {{"role": …, "content": …}}, and of a reply its '
            "native_message"
        )
    role = message.get("role")
    if role not in ROLES:
        raise RenderingError(f"{place} has the role {role!r}, which is none of {', '.join(ROLES)}")
    content, told = message.get("content"), f"{place} ({role})"
    if content is None and role != "assistant":
        raise RenderingError(f"{told} has no content")
    plain = dict(message)
    if role == "developer":  # as in fine-tuning: most chat formats know it as system alone
        plain["role"] = "system"
    if content is not None and not isinstance(content, str):
        plain["content"] = _text(content, told)
    return plain


def _text(content: Any, told: str) -> str:
    """Parts of text, joined."""
    if not isinstance(content, list):
        raise RenderingError(f"{told} has a content of type {type(content).__name__}: write text")
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RenderingError(
                f"{told} holds a part of type {kind!r}, and this version reads and trains on text alone: "
                'write what matters of it as text, {"type": "text", "text": …}'
            )
        texts.append(part["text"])
    return "".join(texts)
