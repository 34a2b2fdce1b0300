"""The slim tokenizer is the model's own in everything that reaches a token list, and gives nothing away to be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.policy.rendering import PolicyRenderer
from engine.policy.tokenizing import LONG, SHORT, SlimTokenizer

TEXTS = (
    "",
    "\n",
    "assistant\n",
    "a" * SHORT,
    "a" * (SHORT + 1),
    "Naïve café: 1,234 €\t{}</s> <|im_end|> <tool_call>",
    "日本語 🙂 " * (LONG // 4),
)
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
]
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call><|im_end|>'


@pytest.fixture(scope="module")
def slim(renderer: PolicyRenderer) -> SlimTokenizer:
    return SlimTokenizer(renderer.tokenizer)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_are_encoded_as_the_model_does(
    renderer: PolicyRenderer, slim: SlimTokenizer, text: str
) -> None:
    ids = renderer.tokenizer.encode(text, add_special_tokens=False)
    for _ in range(2):  # the second time it may be known
        assert slim.encode(text, add_special_tokens=False) == ids
    assert slim.encode(text) == renderer.tokenizer.encode(text)
    assert slim.decode(ids, skip_special_tokens=False) == renderer.tokenizer.decode(
        ids, skip_special_tokens=False
    )
    for token in ids[:20]:
        assert slim.text_of(token) == renderer.tokenizer.decode([token], skip_special_tokens=False)


def test_what_is_known_cannot_be_changed_from_outside(slim: SlimTokenizer) -> None:
    slim.encode("user\n", add_special_tokens=False).append(-1)
    assert -1 not in slim.encode("user\n", add_special_tokens=False)


def test_a_whole_conversation_has_the_same_tokens(renderer: PolicyRenderer) -> None:
    """With offsets and without: prompts, next turns and parsed replies."""
    from renderers import config_from_name, create_renderer  # slow to import: not for every worker

    config: Any = config_from_name("qwen3")
    with_offsets = create_renderer(renderer.tokenizer, config)
    without = create_renderer(SlimTokenizer(renderer.tokenizer), config)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look.\n\nNow."}]
    each: list[list[Any]] = []
    for one in (with_offsets, without):
        prompt = one.render_ids(messages, tools=TOOLS, add_generation_prompt=True)  # type: ignore[arg-type]
        reply = renderer.tokenizer.encode(CALL, add_special_tokens=False)
        result = {"role": "tool", "name": "look", "content": "nothing\n" * 40}
        bridged = one.bridge_to_next_turn(prompt, reply, [result], tools=TOOLS)  # type: ignore[arg-type,list-item]
        assert bridged is not None
        parsed = one.parse_response(reply, tools=TOOLS, prompt_ids=prompt)  # type: ignore[arg-type]
        each.append([prompt, list(bridged.token_ids), parsed.tool_calls, parsed.content])
    assert each[0] == each[1]


def test_a_tokenizer_that_is_more_than_its_backend_keeps_its_say() -> None:
    """One whose encode is its own is asked itself."""

    class Backend:
        def encode(self, text: str, add_special_tokens: bool) -> Any:
            return type("Encoding", (), {"ids": [1]})

    class Own:
        backend_tokenizer = Backend()
        encode: Callable[..., list[int]] = staticmethod(lambda text, add_special_tokens: [2])

    assert SlimTokenizer(Own()).encode("a text that is longer than those that are kept", False) == [2]


async def test_an_agent_may_change_its_messages_after_a_call(scripted) -> None:
    """What was rendered stays what was rendered: a changed history opens a new segment."""
    model, trace, _ = scripted("one<|im_end|>", "two<|im_end|>")
    conversation = model.conversation()
    user = {"role": "user", "content": "Count."}
    reply = await conversation.generate(messages=[user])
    user["content"] = "Count again."
    await conversation.generate(messages=[user, reply.native_message, {"role": "user", "content": "Go on."}])
    assert len(trace.segments) == 2
