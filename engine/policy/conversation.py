"""Token-exact conversations between an agent and the policy.

An agent speaks in messages; the policy in tokens. A conversation keeps both: each reply's tokens stay as sampled, and
a next turn adds only the new messages' tokens to them. Nothing sampled is ever decoded and tokenized again.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from engine.policy.messages import checked_max_tokens, checked_messages, checked_tools
from engine.policy.rendering import Message, ParsedReply, PolicyRenderer, ToolSpec
from engine.policy.tokens import Completion, Sampler, Segment, Span
from engine.policy.turns import turn_of_loop

#: Characters whose tokens take some ten milliseconds to find.
LONG = 4_000
#: A refused call takes so long: code that tries again and again, whatever it is told, must not hold up the others.
REFUSAL_SECONDS = 1.0


class ContextWindowExceeded(Exception):
    """The conversation has no room left for another reply (``[model] max_seq_len``)."""


class AttemptOver(Exception):
    """The attempt is over (its deadline, or its end): code of its own that goes on gets nothing more."""


class MalformedToolCall(Exception):
    """A tool call cannot be carried out as written. The message is meant to be handed back to the policy."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of a reply. ``arguments`` is the JSON text as the policy wrote it.

    ``problem`` is None for a well-formed call; otherwise it says what is wrong, in words for the policy.
    """

    id: str
    name: str | None
    arguments: str
    problem: str | None = None

    def parse(self) -> dict[str, Any]:
        """The arguments as an object.

        Raises:
            MalformedToolCall: the call is malformed; never returns ``{}`` in its place.
        """
        if self.problem is not None:
            raise MalformedToolCall(self.problem)
        value = json.loads(self.arguments)
        if not isinstance(value, dict):
            raise MalformedToolCall("the arguments must be a JSON object")
        return value


@dataclass(frozen=True, slots=True)
class Sample:
    """The exact tokens behind a reply.

    ``clamped_from``: the ``max_tokens`` asked for, where the room left in the conversation was smaller; else None.
    """

    tokens: list[int]
    logprobs: list[float]
    stop_reason: str
    policy_version: int | None
    prompt_tokens: int
    clamped_from: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the policy answered. ``native_message`` is the assistant message to append to the messages."""

    content: str | None
    tool_calls: list[ToolCall]
    native_message: Message | None
    truncated: bool
    sample: Sample
    reasoning: str | None = None


@dataclass(slots=True)
class ConversationTrace:
    """What one attempt said and sampled, over all its conversations.

    ``turns`` has the shape of ``TranscriptRow.turns``; ``segments`` become datums. ``truncated``: whether any reply was.
    """

    segments: list[Segment] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    tools: list[ToolSpec] = field(default_factory=list)
    replies: int = 0
    truncated: bool = False
    prompt_tokens: int = 0  # tokens the sampler had to read, summed over calls
    closed: bool = False

    def close(self) -> None:
        """Nothing more is sampled into it: later calls, and those that are under way, raise AttemptOver."""
        self.closed = True

    @property
    def sampled_tokens(self) -> int:
        return sum(segment.sampled_tokens for segment in self.segments)

    @property
    def trainable_tokens(self) -> int:
        return sum(segment.trainable_tokens for segment in self.segments)

    def forget_text(self) -> None:
        """The transcript is handed over: what only it needs leaves memory, long before the tokens are trained on."""
        self.turns, self.tools = [], []

    @property
    def versions(self) -> list[int]:
        """Policy versions of all replies that told theirs."""
        return [
            span.policy_version
            for segment in self.segments
            for span in segment.spans
            if span.policy_version is not None
        ]


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """``max_seq_len`` bounds a whole conversation, ``max_tokens`` one reply (None: the room left). In tokens."""

    max_seq_len: int
    max_tokens: int | None


class Model:
    """The policy as an attempt sees it.

    Args:
        seed: gives the n-th call of this attempt its sampling seed, or None for a random one.
        affinity_key: keeps one attempt's calls on one sampler replica, where the server offers that.
        waiting: called with True when a reply is waited for and with False when it is there.
    """

    def __init__(
        self,
        *,
        sampler: Sampler,
        renderer: PolicyRenderer,
        limits: ReplyLimits,
        trace: ConversationTrace,
        seed: Callable[[int], int | None] = lambda _: None,
        affinity_key: str | None = None,
        waiting: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._sampler = sampler
        self._renderer = renderer
        self._limits = limits
        self._trace = trace
        self._seed = seed
        self._affinity_key = affinity_key
        self._waiting = waiting
        self._calls = 0

    def conversation(self) -> Conversation:
        """A new, empty conversation. An attempt may hold several."""
        return Conversation(self)

    async def _complete(self, prompt: Sequence[int], max_tokens: int) -> Completion:
        if self._trace.closed:
            await refuse()
        call = self._calls
        self._calls += 1
        self._trace.prompt_tokens += len(prompt)
        self._waiting(True)
        try:
            return await self._sampler.sample(
                prompt, max_tokens=max_tokens, seed=self._seed(call), affinity_key=self._affinity_key
            )
        finally:
            if not self._trace.closed:
                self._waiting(False)


async def refuse() -> NoReturn:
    """Raises AttemptOver, in a while."""
    await asyncio.sleep(REFUSAL_SECONDS)
    raise AttemptOver("the attempt is over: nothing more is done for it")


class Conversation:
    """One growing exchange. Not for concurrent ``generate`` calls: open a second conversation instead."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._segment: Segment | None = None
        self._messages: list[Message] = []  # as of the last reply, the reply included
        self._tools: list[ToolSpec] = []
        self._spans: dict[int, Span] = {}  # by id() of the reply's sample
        self._samples: list[Sample] = []  # keeps those ids alive
        self._turns: dict[int, dict[str, Any]] = {}

    async def generate(
        self,
        *,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] | None = None,
        max_tokens: int | None = None,
    ) -> Reply:
        """Ask the policy for the next reply.

        ``messages`` is the whole conversation so far in OpenAI's format, replies as their ``native_message``.

        Raises:
            ContextWindowExceeded: no room for even one more token; nothing was sampled.
            RenderingError: the chat template does not take these messages, or would leave something out.
            AttemptOver: the attempt's deadline is over, or the attempt is.
        """
        model, trace = self._model, self._model._trace
        given, offered, asked = (
            checked_messages(messages),
            checked_tools(tools),
            checked_max_tokens(max_tokens),
        )
        await turn_of_loop()
        known = len(self._messages) if given[: len(self._messages)] == self._messages else 0
        prompt, extends = await self._next_prompt(given, known, offered)

        limits = model._limits
        room = limits.max_seq_len - len(prompt)
        if room < 1:
            raise ContextWindowExceeded(
                f"the conversation is {len(prompt)} tokens long and max_seq_len is {limits.max_seq_len}"
            )
        wanted = asked if asked is not None else limits.max_tokens
        clamped_from = wanted if wanted is not None and wanted > room else None
        completion = await model._complete(prompt, room if wanted is None else min(wanted, room))

        await turn_of_loop()
        if trace.closed:
            await refuse()
        # Only now, with a reply in hand, does the conversation move on: a failed call leaves it as it was.
        if extends and self._segment is not None:
            self._segment.append_prompt(prompt[len(self._segment.tokens) :])
        else:
            self._segment = Segment()
            trace.segments.append(self._segment)
            self._segment.append_prompt(prompt)
        span = self._segment.append_reply(completion)
        parsed = model._renderer.parse(completion.tokens, prompt, offered)
        sample = Sample(
            completion.tokens,
            completion.logprobs,
            completion.stop_reason,
            completion.policy_version,
            len(prompt),
            clamped_from,
        )
        reply = _reply(parsed, sample, trace.replies)
        self._record(given[known:], offered, reply, span)
        # Copies, for the agent may change its own; only of what is new, for a conversation grows.
        self._messages = [*self._messages[:known], *copy.deepcopy(given[known:])]
        if reply.native_message is not None:
            self._messages.append(copy.deepcopy(reply.native_message))
        self._tools = offered
        return reply

    def discard(self, reply: Reply) -> None:
        """Drop a reply of this conversation from training: the policy neither gains nor loses by it.

        Raises:
            ValueError: the reply is not one of this conversation's.
        """
        span = self._spans.get(id(reply.sample))
        if span is None:
            raise ValueError("discard() takes a reply that this conversation generated")
        span.trained = False
        self._turns[id(reply.sample)]["sampled"]["discarded"] = True

    async def _next_prompt(
        self, messages: list[Message], known: int, tools: list[ToolSpec]
    ) -> tuple[list[int], bool]:
        """The prompt of the next call, and whether it extends the segment so far, whose ``known`` messages lead."""
        renderer, segment, new = self._model._renderer, self._segment, messages[known:]
        if segment is not None and known and tools == self._tools and new:
            reply = segment.spans[-1]
            prompt, completion = segment.tokens[: reply.start], segment.tokens[reply.start :]
            extended = await _rendered(new, renderer.extend, prompt, completion, new, tools)
            if extended is not None:
                return extended, True
        return await _rendered(messages, renderer.open, messages, tools), False

    def _record(self, messages: list[Message], tools: list[ToolSpec], reply: Reply, span: Span) -> None:
        """Add to the transcript what is new: these messages, and the reply."""
        trace = self._model._trace
        for message in messages:
            turn = {
                key: message[key] for key in ("role", "content", "name", "tool_call_id") if key in message
            }
            if message.get("tool_calls"):
                turn["tool_calls"] = [_plain_call(call) for call in message["tool_calls"]]
            trace.turns.append(turn)
        for tool in tools:
            if tool not in trace.tools:
                trace.tools.append(tool)
        turn = {
            "role": "assistant",
            "content": reply.content,
            "sampled": {
                "tokens": list(reply.sample.tokens),
                "logprobs": list(reply.sample.logprobs),
                "texts": self._model._renderer.token_texts(reply.sample.tokens),
                "policy_version": reply.sample.policy_version,
                "stop_reason": reply.sample.stop_reason,
                "segment": len(trace.segments) - 1,
                "truncated": reply.truncated,
                "discarded": False,
            },
        }
        if reply.reasoning:
            turn["reasoning"] = reply.reasoning
        if reply.tool_calls:
            turn["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments, "problem": call.problem}
                for call in reply.tool_calls
            ]
        trace.turns.append(turn)
        trace.replies += 1
        trace.truncated = trace.truncated or reply.truncated
        self._samples.append(reply.sample)
        self._spans[id(reply.sample)] = span
        self._turns[id(reply.sample)] = turn


async def _rendered[**P, T](
    messages: Sequence[Message], render: Callable[P, T], *arguments: P.args, **named: P.kwargs
) -> T:
    """``render(…)``; in a thread where these messages are so long that the event loop would notice."""
    if sum(len(content) for message in messages if isinstance(content := message.get("content"), str)) < LONG:
        return render(*arguments, **named)
    return await asyncio.to_thread(render, *arguments, **named)


def _plain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call.get("id"), "name": function.get("name"), "arguments": text, "problem": None}


def _reply(parsed: ParsedReply, sample: Sample, number: int) -> Reply:
    calls = [
        ToolCall(call.id or f"call_{number}_{index}", call.name, call.arguments, call.problem)
        for index, call in enumerate(parsed.tool_calls)
    ]
    message: Message = {"role": "assistant", "content": parsed.content}
    if parsed.reasoning:
        message["reasoning_content"] = parsed.reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name or "", "arguments": call.arguments},
            }
            for call in calls
        ]
    # A reply that is neither text nor a call cannot be put back into a chat: the episode sees None and ends.
    usable = bool(parsed.content.strip() or calls or parsed.reasoning)
    return Reply(
        content=parsed.content or None,
        tool_calls=calls,
        native_message=message if usable else None,
        truncated=sample.stop_reason == "length",
        sample=sample,
        reasoning=parsed.reasoning,
    )
