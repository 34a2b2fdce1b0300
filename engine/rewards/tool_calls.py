"""Rewards on the form of tool calls: did they arrive as calls, do their arguments fit, were there too many?"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from engine.rewards.attempt import Call, calls_of, text_of
from engine.rewards.functions import RewardFunction
from engine.rewards.scored import Reward

#: What a call looks like that no parser took, by model family: markup that only belongs between special tokens.
LEAKED: Mapping[str, tuple[str, ...]] = {
    "qwen, hermes": ("<tool_call>", "</tool_call>"),
    "qwen coder, llama 3": ("<function=", "</function>"),
    "llama 3": ("<|python_tag|>",),
    "mistral": ("[TOOL_CALLS]",),
    "gpt-oss": ("<|channel|>commentary", "<|call|>"),
    "deepseek": ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜DSML｜"),
    "glm": ("<arg_key>", "<arg_value>"),
    "kimi": ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    "minimax": ("<minimax:tool_call>",),
    "lm studio": ("[TOOL_REQUEST]",),
    "claude": ("<tool_use>", "<invoke name="),
}
_BARE_CALL = re.compile(r"\{\s*\"name\"\s*:\s*\"[A-Za-z0-9_.-]+\"\s*,\s*\"(?:arguments|parameters)\"\s*:")


def leaked_call(text: str) -> str | None:
    """The mark of a tool call in visible text and the family it is of, as a sentence; None where there is none."""
    for family, marks in LEAKED.items():
        for mark in marks:
            if mark in text:
                return f"a call arrived as text: {mark} ({family})"
    if _BARE_CALL.search(text):
        return "a call arrived as text: a bare JSON object with a name and arguments"
    return None


def tool_call_format(value: float = 1.0) -> RewardFunction:
    """``value`` where every call arrived as a call that can be read, 0 otherwise. No call at all is no failure."""

    def score(attempt: Any, _: Mapping[str, Any]) -> Reward:
        leaked = leaked_call(text_of(attempt))
        if leaked is not None:
            return Reward(0.0, reason=leaked)
        broken = next((call for call in calls_of(attempt) if call.problem), None)
        if broken is not None:
            return Reward(
                0.0, reason=f"a call of {broken.name or 'no tool'} cannot be read: {broken.problem}"
            )
        return Reward(value)

    return RewardFunction("tool_call_format_reward", score)


def schema_valid(
    tools: Sequence[Mapping[str, Any]] | None = None, value: float = 1.0, *, allow_unknown: bool = False
) -> RewardFunction:
    """The share of the calls whose tool exists and whose arguments fit its JSON Schema, times ``value``.

    ``tools`` may also be a column ``tools`` of the data set. An argument that the schema does not name counts as an
    error, as it does where the call is executed; ``allow_unknown`` leaves that to the schema alone. 0 without a call.

    Raises:
        ValueError: a tool's own schema is not valid.
    """

    def score(attempt: Any, columns: Mapping[str, Any]) -> Reward:
        declared = columns.get("tools") or tools or ()
        if isinstance(declared, str):
            declared = json.loads(declared)
        calls = calls_of(attempt)
        if not calls:
            return Reward(0.0, reason="no tool was called")
        problems = [(call, call_problem(call, declared, allow_unknown=allow_unknown)) for call in calls]
        good = sum(problem is None for _, problem in problems)
        first = next((f"{call.name}: {problem}" for call, problem in problems if problem is not None), "")
        return Reward(value * good / len(calls), reason=first)

    return RewardFunction("schema_valid_reward", score)


def call_problem(
    call: Call, tools: Sequence[Mapping[str, Any]], *, allow_unknown: bool = False
) -> str | None:
    """What is wrong with a call, in one sentence; None where its tool would take it.

    Raises:
        ValueError: the tool's own schema is not valid.
    """
    schemas = {str(_function(tool).get("name")): _function(tool).get("parameters") or {} for tool in tools}
    if call.name not in schemas:
        return f"there is no tool {call.name!r}"
    if call.arguments is None:
        return call.problem
    validator = _validator(json.dumps(schemas[call.name], sort_keys=True), allow_unknown)
    error = min(validator.iter_errors(dict(call.arguments)), key=lambda found: len(found.path), default=None)
    if error is None:
        return None
    place = ".".join(str(part) for part in error.absolute_path)
    return f"{place}: {error.message}"[:300] if place else error.message[:300]


def step_budget(max_steps: int = 8, penalty: float = 0.25) -> RewardFunction:
    """0 within ``max_steps`` calls, ``-penalty`` for each one beyond.

    A brake, not a target: a reward for being short teaches a model to answer without looking. Calls that arrived as
    text count as well, or leaving a call as text would be the way around it.
    """

    def score(attempt: Any, _: Mapping[str, Any]) -> Reward:
        steps = len(calls_of(attempt)) or len(_BARE_CALL.findall(text_of(attempt)))
        over = max(0, steps - max_steps)
        return Reward(-penalty * over, reason=f"{steps} calls, {over} over {max_steps}" if over else "")

    return RewardFunction("step_budget_reward", score)


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


@lru_cache(maxsize=512)
def _validator(schema: str, allow_unknown: bool) -> Validator:
    parsed = json.loads(schema)
    if not allow_unknown and isinstance(parsed, dict) and "properties" in parsed:
        parsed.setdefault("additionalProperties", False)
    if isinstance(parsed, dict):
        parsed.setdefault("type", "object")
    kind = validator_for(parsed, default=Draft202012Validator)
    try:
        kind.check_schema(parsed)
    except SchemaError as error:
        raise ValueError(f"a tool's parameters are no valid JSON Schema: {error.message}") from error
    return kind(parsed)
