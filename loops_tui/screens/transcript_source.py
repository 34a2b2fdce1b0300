"""A conversation as text to copy: what is stored, character for character, not how it is shown here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.store.rows import TranscriptRow


def turn_source(turn: Mapping[str, Any]) -> str:
    """One turn: its reasoning, its content and its tool calls."""
    parts: list[str] = []
    for name in ("reasoning", "content"):
        value = turn.get(name)
        if isinstance(value, str) and value:
            parts.append(value)
        elif value is not None and not isinstance(value, str):
            parts.append(json.dumps(value, ensure_ascii=False, indent=2))
    calls = turn.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping):
            arguments = call.get("arguments")
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            parts.append(f"{call.get('name')} {written}")
    return "\n".join(parts)


def whole_source(transcript: TranscriptRow) -> str:
    """All turns, each under its role."""
    return "\n\n".join(f"[{turn.get('role')}]\n{turn_source(turn)}" for turn in transcript.turns) + "\n"
