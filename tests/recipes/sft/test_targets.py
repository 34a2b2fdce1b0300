"""What a row teaches, token by token, against a computation of its own with the tokenizer's chat template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from engine.config.local_models import model_directory, shipped_models
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.recipes.sft.rows import Reason, RowRefused, parse_row
from engine.recipes.sft.targets import Sample, samples_of

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")

#: Qwen3's own template in what matters here: earlier turns lose their reasoning once another question follows.
DROPS_REASONING = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last %}{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{%- endif %}
{{- (m.content or '') + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

USER = {"role": "user", "content": "Write 8080 to port.txt."}
SYSTEM = {"role": "system", "content": "Be brief."}
TOOLS = [{"type": "function", "function": {"name": "shell", "description": "Run.", "parameters": {}}}]
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "shell", "arguments": '{"command":"echo 8080 > port.txt"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "exit code 0"}
DONE = {"role": "assistant", "content": "Done."}


def loaded(**kwargs: Any) -> PolicyRenderer:
    directory = model_directory("loops-demo-1m")
    return load_renderer(
        model_name="loops-demo-1m",
        tokenizer_source=str(directory),
        renderer="default",
        template_kwargs=kwargs,
    )


@pytest.fixture(scope="module")
def renderer() -> PolicyRenderer:
    return loaded()


def samples(renderer: PolicyRenderer, *messages: dict[str, Any], tools: Any = None) -> list[Sample]:
    line = json.dumps({"messages": messages, **({"tools": tools} if tools else {})})
    return samples_of(parse_row(line.encode()), renderer, 4096)


def by_template(
    renderer: PolicyRenderer,
    messages: Sequence[dict[str, Any]],
    trained: int,
    tools: Any = None,
    **kwargs: Any,
) -> tuple[str, str]:
    """The text before a turn and the text to learn, from the tokenizer's template alone."""
    plain = [
        {
            **message,
            **(
                {
                    "tool_calls": [
                        {
                            **call,
                            "function": {
                                **call["function"],
                                "arguments": json.loads(call["function"]["arguments"]),
                            },
                        }
                        for call in message["tool_calls"]
                    ]
                }
                if message.get("tool_calls")
                else {}
            ),
        }
        for message in messages
    ]
    write = renderer.tokenizer.apply_chat_template
    before = write(plain[:trained], tools=tools, add_generation_prompt=True, tokenize=False, **kwargs)
    after = write(plain[: trained + 1], tools=tools, tokenize=False, **kwargs)
    assert after.startswith(before)
    return before, after[len(before) :].removesuffix("\n")


def check(renderer: PolicyRenderer, sample: Sample, turns: Sequence[tuple[str, str]]) -> None:
    """The sample's targets are these turns' texts, each in its context, and nothing else."""
    encode = renderer.tokenizer.encode
    expected = [0.0] * len(sample.tokens)
    for before, learned in turns:
        start, text = len(encode(before, add_special_tokens=False)), before + learned
        tokens = encode(text, add_special_tokens=False)
        assert sample.tokens[: len(tokens)] == tokens
        assert tokens[-1] in renderer.stop_token_ids
        expected[start : len(tokens)] = [1.0] * (len(tokens) - start)
    assert sample.weights == expected
    assert sample.weights[-1] == 1.0


def test_one_turn_learns_its_answer_and_its_stop_token(renderer: PolicyRenderer) -> None:
    [sample] = samples(renderer, USER, DONE)
    before, learned = by_template(renderer, [USER, DONE], 1)
    assert learned.endswith("Done.<|im_end|>")
    check(renderer, sample, [(before, learned)])


def test_several_turns_share_a_sample_where_the_template_extends(renderer: PolicyRenderer) -> None:
    messages = [SYSTEM, USER, DONE, {"role": "user", "content": "And 9090?"}, DONE]
    [sample] = samples(renderer, *messages)
    check(renderer, sample, [by_template(renderer, messages, 2), by_template(renderer, messages, 4)])


def test_tool_calls_are_learned_and_tool_results_are_not(renderer: PolicyRenderer) -> None:
    messages = [SYSTEM, USER, CALL, RESULT, DONE]
    [sample] = samples(renderer, *messages, tools=TOOLS)
    turns = [by_template(renderer, messages, place, TOOLS) for place in (2, 4)]
    assert '"arguments": {"command": "echo 8080 > port.txt"}' in turns[0][1]
    check(renderer, sample, turns)


def test_a_turn_of_weight_0_is_context_only(renderer: PolicyRenderer) -> None:
    messages = [USER, {**DONE, "weight": 0}, {"role": "user", "content": "Again."}, {**DONE, "weight": 1}]
    [sample] = samples(renderer, *messages)
    check(renderer, sample, [by_template(renderer, messages, 3)])
    # What comes after the last trained turn teaches nothing and is left out.
    messages = [USER, DONE, {"role": "user", "content": "Again."}, {**DONE, "weight": 0}]
    [sample] = samples(renderer, *messages)
    check(renderer, sample, [by_template(renderer, messages, 1)])


def test_a_weight_between_0_and_1_is_kept(renderer: PolicyRenderer) -> None:
    [sample] = samples(renderer, USER, {**DONE, "weight": 0.25})
    assert set(sample.weights) == {0.0, 0.25}


def test_a_conversation_whose_reasoning_is_dropped_later_is_split(renderer: PolicyRenderer) -> None:
    own = loaded()
    own.tokenizer.chat_template = DROPS_REASONING
    first = {"role": "assistant", "content": "8080", "reasoning_content": "The port."}
    second = {"role": "assistant", "content": "9090", "reasoning_content": "The other."}
    messages = [USER, first, {"role": "user", "content": "And then?"}, second]
    one, two = samples(own, *messages)
    check(own, one, [by_template(own, messages, 1)])
    check(own, two, [by_template(own, messages, 3)])
    assert "The port." not in own.tokenizer.decode(two.tokens)
    # Within one answer the reasoning stays, so tool turns share a sample.
    assert len(samples(own, USER, first, {"role": "tool", "content": "ok"}, second)) == 1


def test_template_settings_move_the_border(renderer: PolicyRenderer) -> None:
    own = loaded(enable_thinking=False)
    [sample] = samples(own, USER, DONE)
    before, learned = by_template(own, [USER, DONE], 1, enable_thinking=False)
    assert learned == "Done.<|im_end|>"
    check(own, sample, [(before, learned)])


def test_a_template_that_opens_replies_otherwise_is_refused(renderer: PolicyRenderer) -> None:
    own = loaded()
    own.tokenizer.chat_template = DROPS_REASONING.replace(
        "add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}",
        "add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\nSo: ' }}",
    )
    with pytest.raises(RowRefused, match="does not write this turn the way a reply is opened"):
        samples(own, USER, DONE)


def test_a_stop_token_in_a_text_is_refused(renderer: PolicyRenderer) -> None:
    with pytest.raises(RowRefused, match="holds the model's stop token"):
        samples(renderer, USER, {"role": "assistant", "content": "a<|im_end|>b"})


def test_tokens_are_taken_as_they_are(renderer: PolicyRenderer) -> None:
    line = json.dumps({"input_ids": [5, 6, 7, 8, 9], "weights": [1.0, 0, 1, 0.5, 0]})
    [sample] = samples_of(parse_row(line.encode()), renderer, 10)
    assert (sample.tokens, sample.weights) == ([5, 6, 7, 8], [0.0, 0.0, 1.0, 0.5])


def test_tokens_of_another_tokenizer_are_refused(renderer: PolicyRenderer) -> None:
    last = renderer.last_token_id
    for token, refused in ((last, False), (last + 1, True)):
        line = json.dumps({"input_ids": [5, token], "weights": [0, 1]})
        if not refused:
            assert samples_of(parse_row(line.encode()), renderer, 10)[0].tokens == [5, token]
            continue
        with pytest.raises(RowRefused, match=rf"input_ids\[1\] is {token}, .*last token is {last}"):
            samples_of(parse_row(line.encode()), renderer, 10)


def test_a_row_that_is_too_long_is_refused_with_its_length(renderer: PolicyRenderer) -> None:
    line = json.dumps({"messages": [USER, {"role": "assistant", "content": "word " * 200}]})
    with pytest.raises(RowRefused) as caught:
        samples_of(parse_row(line.encode()), renderer, 64)
    assert caught.value.reason is Reason.TOO_LONG
    assert "max_seq_len is 64" in caught.value.detail


@pytest.mark.parametrize(
    ("line", "reason", "said"),
    [
        (b'{"messages": ', Reason.MALFORMED, "not JSON (column 14)"),
        (b"[1,2\r\n", Reason.MALFORMED, "not JSON (column 5)"),
        (b"[1]", Reason.MALFORMED, "no JSON object"),
        (b'{"input_ids": [' + b"9" * 5000 + b"]}", Reason.MALFORMED, "cannot be read"),
        (b'{"text": "x"}', Reason.MALFORMED, "neither 'messages' nor 'input_ids'"),
        (b'{"prompt": "x", "completion": "y"}', Reason.MALFORMED, "an older format"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', Reason.MALFORMED, "surrogate pair"),
        (b'{"messages": []}', Reason.EMPTY, "messages is empty"),
        (b'{"messages": "x"}', Reason.MALFORMED, "messages: input should be a valid list"),
        (b'{"messages": [{"role": "bot", "content": "x"}]}', Reason.MALFORMED, "messages[0].role"),
        (b'{"messages": [{"role": "user"}]}', Reason.MALFORMED, "messages[0] (user) has no content"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', Reason.UNTRAINABLE, "no assistant turn"),
        (b'{"messages": [{"role": "assistant", "content": ""}]}', Reason.EMPTY, "says nothing"),
        (b'{"messages": [{"role": "user", "content": "x", "wieght": 1}]}', Reason.MALFORMED, "wieght is no field"),
        (b'{"messages": [{"role": "user", "content": "x", "weight": 1}]}', Reason.MALFORMED, "has a weight"),
        (b'{"messages": [{"role": "assistant", "content": "x", "weight": 2}]}', Reason.MALFORMED, "weight"),
        (b'{"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]}', Reason.MALFORMED, "answers 'c'"),
        (
            b'{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}',
            Reason.MALFORMED,
            "tool_calls[0]: the arguments are not JSON",
        ),
        (
            b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}',
            Reason.MALFORMED,
            "messages[0].content",
        ),
        (b'{"input_ids": [1, 2], "weights": [1]}', Reason.MALFORMED, "2 input_ids but 1 weights"),
        (b'{"input_ids": [], "weights": []}', Reason.EMPTY, "input_ids is empty"),
        (b'{"input_ids": [1, 2], "weights": [1, 0]}', Reason.UNTRAINABLE, "no token after the first"),
        (b'{"input_ids": [1, -2], "weights": [1, 1]}', Reason.MALFORMED, "input_ids[1]"),
        (b'{"messages": [{"role": "user", "content": "\xe9"}]}', Reason.MALFORMED, "not UTF-8"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_trained_on_says_why(line: bytes, reason: Reason, said: str) -> None:
    with pytest.raises(RowRefused) as caught:
        parse_row(line)
    assert caught.value.reason is reason
    assert said in caught.value.detail
