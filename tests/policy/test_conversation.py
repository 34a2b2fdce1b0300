"""What an agent and the trainer rely on: replies keep their tokens, turns extend them, limits hold."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from engine.episodes import ContextWindowExceeded, MalformedToolCall
from engine.policy import conversation as conversation_module
from engine.policy.conversation import AttemptOver
from engine.policy.rendering import RenderingError, load_renderer
from engine.policy.tokens import Completion

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "shell",
            "description": "Run a shell command.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            },
        },
    }
]
CALL = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
USER = {"role": "user", "content": "List the files."}


def says(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def test_a_reply_keeps_the_sampled_tokens_and_logprobs(scripted) -> None:
    model, trace, sampler = scripted("chess<|im_end|>")
    reply = await model.conversation().generate(messages=[USER])
    assert reply.content == "chess"
    assert reply.native_message == {"role": "assistant", "content": "chess"}
    assert not reply.truncated
    (segment,) = trace.segments
    (span,) = segment.spans
    assert segment.tokens[: span.start].tolist() == sampler.prompts[0]
    assert segment.tokens[span.start : span.end].tolist() == sampler.returned[0].tokens
    assert segment.logprobs[span.start : span.end].tolist() == sampler.returned[0].logprobs
    assert set(segment.logprobs[: span.start]) == {0.0}
    assert sampler.asked == [(200, 100)]


async def test_parts_of_text_are_one_text(scripted) -> None:
    parts = [{"type": "text", "text": "List "}, {"type": "text", "text": "the files."}]
    model, trace, sampler = scripted("chess<|im_end|>", "chess<|im_end|>")
    for content in (USER["content"], parts):
        await model.conversation().generate(messages=[{"role": "user", "content": content}])
    assert sampler.prompts[0] == sampler.prompts[1]
    assert trace.turns[0] == trace.turns[2] == USER


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"messages": [USER, says([{"type": "text", "text": "What?"}, {"type": "image_url"}])]}, "messages[1] (user) holds a part of type 'image_url'"),
        ({"messages": [says([{"type": "text"}])]}, "messages[0] (user) holds a part of type 'text'"),
        ({"messages": [says(["List the files."])]}, "messages[0] (user) holds a part of type 'str'"),
        ({"messages": [says({"files": 3})]}, "messages[0] (user) has a content of type dict"),
        ({"messages": [says(None)]}, "messages[0] (user) has no content"),
        ({"messages": [{"role": "human", "content": "List the files."}]}, "messages[0] has the role 'human'"),
        ({"messages": [{"content": "List the files."}]}, "messages[0] has the role None"),
        ({"messages": [USER, None]}, "messages[1] is of type NoneType"),
        ({"messages": []}, "messages must be a list"),
        ({"messages": USER}, "messages must be a list"),
        ({"messages": "List the files."}, "messages must be a list"),
        ({"messages": [USER], "tools": ["shell"]}, "tools[0] names no function"),
        ({"messages": [USER], "tools": [{"type": "function", "function": {}}]}, "tools[0] names no function"),
        ({"messages": [USER], "tools": TOOLS[0]}, "tools must be a list"),
        ({"messages": [USER], "max_tokens": 0}, "max_tokens must be a whole number from 1 on, not 0"),
        ({"messages": [USER], "max_tokens": "5"}, "max_tokens must be a whole number from 1 on, not '5'"),
        ({"messages": [USER], "max_tokens": True}, "max_tokens must be a whole number from 1 on, not True"),
    ],
)  # fmt: skip
async def test_what_would_not_reach_the_policy_is_refused(scripted, given: Any, told: str) -> None:
    """Renderers leave out what they do not know, and the sampler takes any number."""
    model, trace, sampler = scripted("chess<|im_end|>")
    with pytest.raises(RenderingError) as refused:
        await model.conversation().generate(**given)
    assert str(refused.value).startswith(told)
    assert (sampler.prompts, trace.segments) == ([], [])


async def test_a_developer_is_heard_as_the_system(scripted) -> None:
    model, _, sampler = scripted("chess<|im_end|>", "chess<|im_end|>")
    for role in ("system", "developer"):
        await model.conversation().generate(messages=[{"role": role, "content": "Use the tools."}, USER])
    assert sampler.prompts[0] == sampler.prompts[1]
    assert len(sampler.prompts[0]) > 12


async def test_tool_turns_extend_the_same_tokens(scripted) -> None:
    model, trace, sampler = scripted(CALL, CALL, "Done.<|im_end|>")
    conversation = model.conversation()
    messages = [{"role": "system", "content": "Use the tools."}, USER]
    for turn in range(2):
        reply = await conversation.generate(messages=messages, tools=TOOLS)
        (call,) = reply.tool_calls
        assert call.name == "shell"
        assert call.parse() == {"command": "ls"}
        messages.append(reply.native_message)
        messages.append({"role": "tool", "tool_call_id": call.id, "name": "shell", "content": f"file{turn}"})
    final = await conversation.generate(messages=messages, tools=TOOLS)
    assert final.content == "Done."
    (segment,) = trace.segments
    assert len(segment.spans) == 3
    # Each prompt is exactly what came before, sampled tokens included, plus the new messages.
    for span, prompt, completion in zip(segment.spans, sampler.prompts, sampler.returned, strict=True):
        assert segment.tokens[: span.start].tolist() == prompt
        assert segment.tokens[span.start : span.end].tolist() == completion.tokens
    roles = [turn["role"] for turn in trace.turns]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]


async def test_sampled_tokens_survive_although_their_text_tokenizes_otherwise(scripted, renderer) -> None:
    """Tokens that a re-tokenization would merge must train as they were sampled."""
    model, trace, sampler = scripted("xx<|im_end|>", "ok<|im_end|>")
    letters = [token for letter in "chess" for token in renderer.tokenizer.encode(letter)]
    end = renderer.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert renderer.tokenizer.encode("chess") != letters
    original = sampler.sample

    async def spelled(prompt, **settings):
        completion = await original(prompt, **settings)
        if len(sampler.returned) == 1:
            completion.tokens[:] = [*letters, end]
            completion.logprobs[:] = [-0.5] * len(completion.tokens)
        return completion

    sampler.sample = spelled
    conversation = model.conversation()
    reply = await conversation.generate(messages=[USER], tools=TOOLS)
    follow_up = [USER, reply.native_message, {"role": "tool", "name": "shell", "content": "x"}]
    await conversation.generate(messages=follow_up, tools=TOOLS)
    (segment,) = trace.segments
    assert segment.tokens[segment.spans[0].start : segment.spans[0].end].tolist() == [*letters, end]


async def test_a_rewritten_history_starts_a_new_segment(scripted) -> None:
    model, trace, _ = scripted("one<|im_end|>", "two<|im_end|>")
    conversation = model.conversation()
    first = await conversation.generate(messages=[USER])
    changed = [{"role": "user", "content": "Something else."}, first.native_message, USER]
    await conversation.generate(messages=changed)
    assert len(trace.segments) == 2
    assert [len(segment.spans) for segment in trace.segments] == [1, 1]


async def test_other_tools_start_a_new_segment(scripted) -> None:
    model, trace, _ = scripted(CALL, "two<|im_end|>")
    conversation = model.conversation()
    first = await conversation.generate(messages=[USER], tools=TOOLS)
    history = [USER, first.native_message, {"role": "tool", "name": "shell", "content": "a"}]
    await conversation.generate(messages=history, tools=None)
    assert len(trace.segments) == 2


async def test_reply_is_cut_to_the_room_left_and_says_so(scripted) -> None:
    model, _, sampler = scripted("chess chess chess chess<|im_end|>", max_seq_len=22, max_tokens=200)
    reply = await model.conversation().generate(messages=[{"role": "user", "content": "Go."}])
    room = 22 - len(sampler.prompts[0])
    assert sampler.asked[0][0] == room
    assert reply.sample.clamped_from == 200
    assert reply.truncated is (reply.sample.stop_reason == "length")


async def test_no_room_for_a_reply_is_context_window_exceeded(scripted) -> None:
    model, trace, sampler = scripted("never", max_seq_len=16)
    with pytest.raises(ContextWindowExceeded, match="max_seq_len is 16"):
        await model.conversation().generate(messages=[USER, USER, USER])
    assert sampler.prompts == []
    assert trace.segments == []


async def test_truncated_reply_is_told_apart_and_can_be_discarded(scripted) -> None:
    model, trace, _ = scripted("chess chess chess chess<|im_end|>", max_tokens=2)
    conversation = model.conversation()
    reply = await conversation.generate(messages=[USER])
    assert reply.truncated
    assert reply.sample.clamped_from is None
    assert trace.trainable_tokens == 2
    conversation.discard(reply)
    assert trace.trainable_tokens == 0
    assert trace.turns[-1]["sampled"]["discarded"] is True
    with pytest.raises(ValueError, match="this conversation"):
        model.conversation().discard(reply)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '<tool_call>\n{"name": "shell", "arguments": {"command": }}\n</tool_call><|im_end|>',
            "could not be read",
        ),
        ('<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call><|im_end|>', "no tool named 'rm'"),
        (
            '<tool_call>\n{"name": "shell", "arguments": "ls"}\n</tool_call><|im_end|>',
            "must be a JSON object",
        ),
        ('<tool_call>\n{"name": "shell", "argu<|im_end|>', "could not be read"),
    ],
)
async def test_a_malformed_call_reaches_the_agent_as_such(scripted, text: str, problem: str) -> None:
    model, trace, _ = scripted(text, "Sorry.<|im_end|>")
    conversation = model.conversation()
    reply = await conversation.generate(messages=[USER], tools=TOOLS)
    (call,) = reply.tool_calls
    assert call.problem is not None
    assert problem in call.problem
    with pytest.raises(MalformedToolCall):
        call.parse()
    # It can be handed back to the policy, in the same segment.
    result = {"role": "tool", "tool_call_id": call.id, "name": "shell", "content": call.problem}
    await conversation.generate(messages=[USER, reply.native_message, result], tools=TOOLS)
    assert len(trace.segments) == 1


async def test_a_failed_call_leaves_the_conversation_as_it_was(scripted) -> None:
    model, trace, sampler = scripted("one<|im_end|>")
    original = sampler.sample

    async def failing(prompt, **_):
        raise ConnectionError("lost")

    sampler.sample = failing
    conversation = model.conversation()
    with pytest.raises(ConnectionError):
        await conversation.generate(messages=[USER])
    assert trace.segments == []
    sampler.sample = original
    await conversation.generate(messages=[USER])
    assert len(trace.segments) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"tokenizer_source": "/no/such/directory"}, "no such directory"),
        ({"renderer": "qwen99"}, "there is no renderer 'qwen99'"),
        ({"renderer": "llama-3"}, "does not fit"),
        ({"template_kwargs": {"enable_thinkng": True}}, "no setting 'enable_thinkng'"),
    ],
)
def test_a_renderer_that_cannot_be_had_is_one_sentence(renderer, arguments: dict, sentence: str) -> None:
    source = renderer.tokenizer.name_or_path
    with pytest.raises(RenderingError, match=sentence):
        load_renderer(model_name="other", **{"tokenizer_source": source, **arguments})


async def test_what_is_sampled_for_an_attempt_that_is_over_does_not_count(
    scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, trace, sampler = scripted("one<|im_end|>", "two<|im_end|>")
    conversation = model.conversation()
    await conversation.generate(messages=[USER])
    sample = sampler.sample

    async def closing(*args: Any, **named: Any) -> Completion:
        trace.close()
        return await sample(*args, **named)

    monkeypatch.setattr(sampler, "sample", closing)
    monkeypatch.setattr(conversation_module, "REFUSAL_SECONDS", 0.0)
    for _ in range(2):  # under way, and later
        with pytest.raises(AttemptOver, match="the attempt is over"):
            await model.conversation().generate(messages=[USER])
    assert (len(sampler.asked), trace.replies, len(trace.segments)) == (2, 1, 1)


async def test_code_that_tries_again_whatever_it_is_told_does_not_hold_up_the_others(scripted) -> None:
    model, trace, _ = scripted()
    trace.close()
    tries = 0

    async def stubborn() -> None:
        nonlocal tries
        while tries < 1000:
            tries += 1
            with contextlib.suppress(AttemptOver):
                await model.conversation().generate(messages=[USER])

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    assert tries == 1
    task.cancel()
