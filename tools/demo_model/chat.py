"""The fixed parts of a conversation: system prompts, tool schemas, and the renderer that turns messages into ids.

Several wordings of each, so that a project may choose its own.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

SYSTEM_PROMPTS: list[str | None] = [
    "You work in a directory of files. Use the tools, then answer briefly.",
    "You are an agent in a Linux sandbox. Do the task with the tools, then say what you did.",
    "Complete the task with the tools. Reply without a tool call when you are done.",
    "You are a careful assistant. The files are in /work.",
    None,
]
_SHELL_TEXTS = [
    "Run a shell command.",
    "Run a shell command in the working directory.",
    "Run a command in the sandbox and return its output.",
]
_WRITE_TEXTS = ["Write a file.", "Write text to a file.", "Create or replace a file with the given content."]


def _tool(name: str, text: str, parameters: list[str]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": text,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string"} for parameter in parameters},
                "required": parameters,
            },
        },
    }


def tools(shell_text: str = _SHELL_TEXTS[0], write_text: str = _WRITE_TEXTS[0]) -> list[dict[str, Any]]:
    return [
        _tool("shell", shell_text, ["command"]),
        _tool("write_file", write_text, ["path", "content"]),
    ]


def tool_names() -> dict[str, set[str]]:
    return {"shell": {"command"}, "write_file": {"path", "content"}}


def opening(rng: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A system prompt (or none) and a wording of the tool schemas."""
    system = rng.choice(SYSTEM_PROMPTS)
    messages = [] if system is None else [{"role": "system", "content": system}]
    return messages, tools(rng.choice(_SHELL_TEXTS), rng.choice(_WRITE_TEXTS))


def load_renderer(tokenizer_dir: Path) -> tuple[Any, Any]:
    """The tokenizer and the Qwen3 renderer with thinking off, as real runs build them."""
    from renderers import Qwen3RendererConfig, create_renderer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    return tokenizer, create_renderer(tokenizer, Qwen3RendererConfig(enable_thinking=False))


def prefix_ids(renderer: Any, system: list[dict[str, Any]], schemas: list[dict[str, Any]]) -> list[int]:
    """The ids before the first user message. Every episode with this opening starts with them."""
    user = [{"role": "user", "content": "x"}]
    whole = renderer.render_ids(system + user, tools=schemas)
    return list(whole[: len(whole) - len(renderer.render_ids(user))])
