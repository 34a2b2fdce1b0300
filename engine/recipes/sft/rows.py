"""One line of a training file: a conversation in OpenAI's fine-tuning format, or tokens with weights.

A line that cannot be trained on is refused with a reason from a short list, so that a report can count them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from engine.config.formats import DoubledKey, single_keys
from engine.policy.rendering import Message, ToolSpec


class Reason(StrEnum):
    """Why a row is not trained on."""

    MALFORMED = "malformed"  # not JSON, or not one of the two formats
    EMPTY = "empty"  # no messages, no tokens
    UNTRAINABLE = "untrainable"  # nothing of it has a weight, or the template does not let it be trained
    TOO_LONG = "too_long"  # longer than [model] max_seq_len


class RowRefused(Exception):
    """A row that is left out; ``detail`` says what is wrong with it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A conversation. ``weights``: one for each message, 0.0 for all but the assistant's trained turns."""

    messages: list[Message]
    tools: list[ToolSpec]
    weights: list[float]


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Tokens as they are. ``weights[i]`` is that of token i as a target; the first one has nothing before it."""

    tokens: list[int]
    weights: list[float]


Weight = Annotated[float, Field(ge=0, le=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _TextPart(_Model):
    type: Literal["text"]
    text: str


class _Function(_Model):
    name: str = Field(min_length=1)
    arguments: str | dict[str, Any]


class _ToolCall(_Model):
    id: str | None = None
    type: Literal["function"] = "function"
    function: _Function


class _ChatMessage(_Model):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_TextPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    weight: Weight | None = None


class _ChatLine(BaseModel):
    """Other fields (an id, a source) are somebody's notes and do not matter."""

    model_config = ConfigDict(extra="ignore", strict=True)

    messages: list[_ChatMessage]
    tools: list[dict[str, Any]] | None = None


class _TokenLine(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    input_ids: list[Annotated[int, Field(ge=0)]]
    weights: list[Weight]


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_CHAT: TypeAdapter[_ChatLine] = TypeAdapter(_ChatLine)
_TOKENS: TypeAdapter[_TokenLine] = TypeAdapter(_TokenLine)


def parse_row(line: bytes) -> ChatRow | TokenRow:
    """The row of a line. Raises RowRefused."""
    try:
        # At its own end, an error's column is one of this line.
        fields = json.loads(line.rstrip(b"\r\n"), object_pairs_hook=single_keys)
    except DoubledKey as error:
        raise RowRefused(Reason.MALFORMED, str(error)) from error
    except UnicodeDecodeError as error:
        raise RowRefused(Reason.MALFORMED, "the line is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise RowRefused(
            Reason.MALFORMED, f"the line is not JSON (column {error.colno}): {error.msg}"
        ) from error
    except RecursionError as error:
        raise RowRefused(Reason.MALFORMED, "the line's JSON is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise RowRefused(Reason.MALFORMED, f"the line's JSON cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise RowRefused(Reason.MALFORMED, "the line is no JSON object")
    if _SURROGATE.search(line) and _half_a_character(fields):
        raise RowRefused(Reason.MALFORMED, "the line holds half of a surrogate pair, which is no character")
    if "messages" in fields and "functions" in fields:
        raise RowRefused(
            Reason.MALFORMED, "'functions' are of an older format, and would go unread; write 'tools'"
        )
    if "messages" in fields and "input_ids" in fields:
        raise RowRefused(
            Reason.MALFORMED, "the line has both 'messages' and 'input_ids': which of them is trained?"
        )
    try:
        if "messages" in fields:
            return _chat(_CHAT.validate_python(fields))
        if "input_ids" in fields:
            return _tokens(_TOKENS.validate_python(fields))
    except ValidationError as error:
        raise RowRefused(Reason.MALFORMED, _sentence(error)) from error
    if "functions" in fields or "prompt" in fields:
        raise RowRefused(
            Reason.MALFORMED, "an older format; write 'messages' with 'tools', or 'input_ids' with 'weights'"
        )
    named = ", ".join(repr(name[:40]) for name in list(fields)[:4]) or "nothing"
    raise RowRefused(
        Reason.MALFORMED, f"the line has neither 'messages' nor 'input_ids' with 'weights', but {named}"
    )


def _half_a_character(fields: Any) -> bool:
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _tokens(line: _TokenLine) -> TokenRow:
    if len(line.input_ids) != len(line.weights):
        raise RowRefused(
            Reason.MALFORMED, f"{len(line.input_ids)} input_ids but {len(line.weights)} weights: one for each"
        )
    if not line.input_ids:
        raise RowRefused(Reason.EMPTY, "input_ids is empty")
    if not any(line.weights[1:]):
        raise RowRefused(Reason.UNTRAINABLE, "no token after the first has a weight above 0")
    return TokenRow(line.input_ids, line.weights)


def _chat(line: _ChatLine) -> ChatRow:
    if not line.messages:
        raise RowRefused(Reason.EMPTY, "messages is empty")
    offered = _names(line.tools or [])
    messages: list[Message] = []
    weights: list[float] = []
    called: set[str] = set()
    for place, message in enumerate(line.messages):
        told = f"messages[{place}]"
        if message.role == "assistant":
            plain = _reply(message, told)
            called.update(call.id for call in message.tool_calls or () if call.id)
            for call in message.tool_calls or ():
                if offered and call.function.name not in offered:
                    raise RowRefused(
                        Reason.MALFORMED,
                        f"{told} calls {call.function.name!r}, which is none of the row's tools",
                    )
            weights.append(1.0 if message.weight is None else message.weight)
        else:
            plain = _prompt(message, told, called)
            weights.append(0.0)
        if message.name:
            plain["name"] = message.name
        messages.append(plain)
    if weights[0]:
        raise RowRefused(Reason.UNTRAINABLE, "messages[0] is the assistant's, and nothing asks for it")
    if not any(weights):
        raise RowRefused(Reason.UNTRAINABLE, "no assistant turn has a weight above 0")
    return ChatRow(messages, line.tools or [], weights)


def _names(tools: list[ToolSpec]) -> set[str]:
    """What the tools are called. Raises RowRefused."""
    names: set[str] = set()
    for place, tool in enumerate(tools):
        function = tool.get("function", tool)
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise RowRefused(Reason.MALFORMED, f"tools[{place}] names no function")
        names.add(name)
    return names


def _reply(message: _ChatMessage, told: str) -> Message:
    """A turn of the assistant's. Raises RowRefused."""
    text = message.refusal if message.content is None else _text(message)
    calls = [
        _call(call, f"{told}.tool_calls[{number}]") for number, call in enumerate(message.tool_calls or ())
    ]
    if not (text or calls or message.reasoning_content):
        raise RowRefused(Reason.EMPTY, f"{told} (assistant) says nothing and calls nothing")
    plain: Message = {"role": "assistant", "content": text or ""}
    if calls:
        plain["tool_calls"] = calls
    if message.reasoning_content:
        plain["reasoning_content"] = message.reasoning_content
    return plain


def _prompt(message: _ChatMessage, told: str, called: Collection[str]) -> Message:
    """A turn that the policy only reads; ``called``: ids of the calls before it. Raises RowRefused."""
    if message.tool_calls or message.reasoning_content:
        raise RowRefused(
            Reason.MALFORMED, f"{told} ({message.role}): only the assistant calls tools or reasons"
        )
    if message.weight:
        raise RowRefused(
            Reason.MALFORMED, f"{told} ({message.role}) has a weight: only the assistant's turns are trained"
        )
    if message.content is None:
        raise RowRefused(Reason.MALFORMED, f"{told} ({message.role}) has no content")
    answered = message.tool_call_id if message.role == "tool" else None
    if answered and answered not in called:
        raise RowRefused(Reason.MALFORMED, f"{told} answers {answered!r}, which nothing before it has called")
    role = "system" if message.role == "developer" else message.role
    plain: Message = {"role": role, "content": _text(message)}
    if answered:
        plain["tool_call_id"] = answered
    return plain


def _text(message: _ChatMessage) -> str | None:
    """A message's content as one text."""
    content = message.content
    return "".join(part.text for part in content) if isinstance(content, list) else content


def _call(call: _ToolCall, told: str) -> dict[str, Any]:
    """A call with its arguments as an object: templates write those as the model does, and texts as they came."""
    arguments = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise RowRefused(Reason.MALFORMED, f"{told}: the arguments are not JSON") from error
        if not isinstance(arguments, dict):
            raise RowRefused(Reason.MALFORMED, f"{told}: the arguments must be a JSON object")
    return {
        "id": call.id or "",
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }


def _sentence(error: ValidationError) -> str:
    """The first thing that is wrong, by its place."""
    details = error.errors(include_url=False, include_input=False)
    first = details[0]
    if first["loc"][-1] == "str":  # it is no text; what the other form says of its parts says more
        owner = first["loc"][:-1]
        parts = (
            each
            for each in details
            if each["loc"][: len(owner)] == owner and len(each["loc"]) > len(first["loc"])
        )
        first = next(parts, first)
    place = ""
    for part in first["loc"]:
        # The branches of a union have names of their own that no file knows.
        if isinstance(part, int):
            place += f"[{part}]"
        elif not part.startswith(("list[", "dict[", "function-")) and part not in ("str", "_TextPart"):
            place += f".{part}" if place else part
    if first["type"] == "extra_forbidden":
        older = (
            "; an older format, whose calls are 'tool_calls' now" if place.endswith(".function_call") else ""
        )
        return f"{place} is no field of the format{older}"
    if first["type"] == "literal_error" and "content" in first["loc"]:
        return f"{place}: only parts of type 'text' can be trained on"
    if first["type"] == "model_type":
        return f"{place}: input should be an object"
    return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"
