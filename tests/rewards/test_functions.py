"""Rewards on form: they agree with the standard, with the renderer's parser, and with the guide's table."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from engine.config.local_models import model_directory, shipped_models
from engine.policy.rendering import load_renderer
from engine.rewards import (
    Call,
    Reward,
    call_problem,
    calls_of,
    exact_answer,
    files_written,
    normalised_answer,
    numeric_answer,
    partial_credit,
    schema_valid,
    step_budget,
    text_of,
    tool_call_format,
    weighted,
    weighted_sum,
)
from engine.rewards.suite import Suite, run_suite
from tests.rewards.conftest import WORKSPACE, FreshSandbox

READ_FILE = {
    "type": "function",
    "function": {
        "name": "read_file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def attempt(content: str, *calls: tuple[str, Any]) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ]
    return [message]


FIXED = '```file:app.py\ndef total(rows):\n    return sum(r["amount"] for r in rows)\n```'
TABLE = [
    ("a correct fix, one call", attempt(f"Fixed.\n{FIXED}", ("read_file", {"path": "app.py"})), (1, 1, 0, 2.5)),
    ("a correct fix, no call", attempt(FIXED), (1, 1, 0, 2.5)),
    ("twelve reads", attempt(f"Checking.\n{FIXED}", *[("read_file", {"path": "app.py"})] * 12), (1, 1, -1, 1.5)),
    ("edits the tests", attempt("```file:tests.py\nassert True\n```", ("read_file", {"path": "t"})), (0, 1, 0, 0.5)),
    ("prints success", attempt("ok\nAll tests passed."), (0, 1, 0, 0.5)),
    (
        "a call as text",
        attempt('<tool_call>\n{"name": "read_file", "arguments": {"path": "app.py"}}\n</tool_call>'),
        (0, 0, 0, 0.0),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
async def test_the_guides_table(
    fresh_sandbox: FreshSandbox, said: list[dict[str, Any]], expected: tuple[float, float, float, float]
) -> None:
    suite = Suite(kind="script", target="tests.py", seconds=60)
    async with fresh_sandbox() as sandbox:
        verdict = await run_suite(sandbox, WORKSPACE, files_written(text_of(said)), suite)
    parts = {
        "tests": verdict.reward(),
        "format": tool_call_format().one(said),
        "budget": step_budget(8).one(said),
    }
    total = weighted(parts, {"tests": 2.0, "format": 0.5})
    assert (*total.parts.values(), total) == expected
    assert schema_valid([READ_FILE]).one(said) == (1.0 if calls_of(said) else 0.0)


def test_schema_agrees_with_the_standard_on_generated_calls() -> None:
    """1,000 calls of 250 generated tools: the reward is that of the standard, unknown arguments refused or not."""
    rng = random.Random(5)
    kinds: list[dict[str, Any]] = [
        {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
        {"type": "integer", "minimum": 0, "maximum": 9},
        {"type": "number", "exclusiveMinimum": 1},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True},
        {"enum": ["a", 1, None]},
        {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]},
        {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        {"const": "fixed"},
        {"$ref": "#/$defs/name"},
    ]
    values: list[Any] = [
        "a",
        "abc",
        "A",
        "",
        0,
        5,
        12,
        1.5,
        True,
        None,
        [1, 2],
        [1, 1],
        ["a"],
        {"x": 1},
        {},
        "fixed",
    ]
    good = 0
    for _ in range(250):
        names = rng.sample("abcdef", rng.randint(1, 4))
        schema = {
            "type": "object",
            "properties": {name: rng.choice(kinds) for name in names},
            "required": [name for name in names if rng.random() < 0.4],
            "$defs": {"name": {"type": "string", "minLength": 3}},
        }
        tool = {"type": "function", "function": {"name": "t", "parameters": schema}}
        calls = [
            {name: rng.choice(values) for name in rng.sample("abcdef", rng.randint(0, 4))} for _ in range(4)
        ]
        for allow, strict in ((True, schema), (False, {**schema, "additionalProperties": False})):
            standard = jsonschema.Draft202012Validator(strict)
            for arguments in calls:
                ours = call_problem(Call("t", arguments), [tool], allow_unknown=allow) is None
                theirs = standard.is_valid(arguments)
                assert ours == theirs, (schema, arguments)
                good += theirs
    assert good > 100  # both verdicts occur


@pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
def test_format_agrees_with_the_renderers_parser_on_generated_replies() -> None:
    """1,000 replies, many of them damaged: where the parser finds a problem or leaves markup, the reward is 0."""
    renderer = load_renderer(
        model_name="loops-demo-1m", tokenizer_source=str(model_directory("loops-demo-1m"))
    )
    rng = random.Random(6)
    prompt = renderer.open([{"role": "user", "content": "Go."}], [READ_FILE])
    good = 0
    for _ in range(1000):
        call = json.dumps(
            {"name": rng.choice(["read_file", "write"]), "arguments": {"path": rng.choice("ab")}}
        )
        text = f"Well.\n<tool_call>\n{call}\n</tool_call>" if rng.random() < 0.8 else "Just words."
        if rng.random() < 0.5:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(["", "}", "x", '"', "<"]) + text[at + rng.randint(0, 2) :]
        tokens = [*renderer.tokenizer.encode(text, add_special_tokens=False), renderer.stop_token_ids[0]]
        parsed = renderer.parse(tokens, prompt, None)
        message = {
            "role": "assistant",
            "content": parsed.content,
            "tool_calls": [
                {"function": {"name": c.name, "arguments": c.arguments}, "problem": c.problem}
                for c in parsed.tool_calls
            ],
        }
        sound = all(c.problem is None for c in parsed.tool_calls)
        leaks = (
            "<tool_call>" in parsed.content
            or "</tool_call>" in parsed.content
            or '"arguments":' in parsed.content
        )
        reward = tool_call_format().one([message])
        assert reward == float(sound and not leaks), text
        good += reward == 1.0
    assert 100 < good < 950


def test_functions_are_called_as_trl_calls_them() -> None:
    function = schema_valid()
    completions = [attempt("", ("read_file", {"path": "a"})), attempt("", ("read_file", {}))]
    assert function(completions=completions, prompts=["p", "q"], tools=[[READ_FILE], [READ_FILE]]) == [
        1.0,
        0.0,
    ]
    assert function(completions=completions, tools=[json.dumps([READ_FILE])] * 2) == [1.0, 0.0]
    assert function.__name__ == "schema_valid_reward"
    assert exact_answer()(completions=["4", " 5 "], answer=["4", "6"]) == [1.0, 0.0]
    both = weighted_sum({exact_answer(): 2.0, tool_call_format(): 0.5})
    assert both(completions=["4", "<tool_call>"], answer="4") == [2.5, 0.0]
    assert both.one("4", answer="4").parts == {"exact_answer_reward": 1.0, "tool_call_format_reward": 1.0}


def test_broken_arguments_are_never_taken_for_none() -> None:
    [call] = calls_of(attempt("", ("read_file", '{"path": ')))
    assert call.arguments is None
    assert "not JSON" in (call.problem or "")
    assert call_problem(call, [READ_FILE]) == call.problem
    assert call_problem(Call("other", {}), [READ_FILE]) == "there is no tool 'other'"
    assert "'path' is a required property" in (call_problem(Call("read_file", {}), [READ_FILE]) or "")
    assert "unexpected" in (call_problem(Call("read_file", {"path": "a", "x": 1}), [READ_FILE]) or "")


def test_answers() -> None:
    assert normalised_answer().one("The  Chess-Game!", answer="chess game") == 1.0
    assert normalised_answer().one("", answer="the") == 0.0
    assert exact_answer().one("b", answer=["a", "b"]) == 1.0
    assert numeric_answer().one("It is 1,200.50, so 1,201.", answer="1201") == 1.0
    assert numeric_answer().one("none", answer=3).reason == "no number in the answer"
    assert partial_credit(0.25, 2.0) == 0.5
    with pytest.raises(ValueError, match="between 0 and 1"):
        partial_credit(1.5)
    with pytest.raises(ValueError, match="needs the column 'answer'"):
        exact_answer().one("x")


def test_a_sum_that_is_no_number_and_a_weight_for_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="no finite number"):
        weighted({"a": float("inf")})
    with pytest.raises(ValueError, match="given for b"):
        weighted({"a": 1.0}, {"b": 2.0})
    assert weighted({"a": Reward(0.5, reason="why")}).reason == "a: why"


def test_a_file_may_hold_fences_and_the_last_one_of_a_path_counts() -> None:
    text = "```file:a.md\nuse ```code``` here\n```\nthen\n```file: a.md \nlast\n```\n```file:b\n```"
    assert files_written(text) == {"a.md": "last\n", "b": ""}
