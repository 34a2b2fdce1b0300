"""A transcript that never happened: an episode with two tools, and the tokens of its replies."""

from __future__ import annotations

import json
import random
from typing import Any


def transcript_turns(task: str, solved: bool, version: int, rng: random.Random) -> list[dict[str, Any]]:
    """A short episode with tools."""
    first = {"command": "grep -c ERROR app.log"}
    second = {"path": "count.txt", "content": "17\n" if solved else "grep -c ERROR app.log"}
    return [
        {
            "role": "system",
            "content": "You work in a directory with files. Use the tools; answer when you are done.",
        },
        {"role": "user", "content": task},
        {
            "role": "assistant",
            "reasoning": "I should look at the file first. Counting matching lines is what grep -c does.",
            "content": "",
            "tool_calls": [{"id": "c1", "name": "shell", "arguments": json.dumps(first)}],
            "sampled": _sampled('<tool_call>{"name":"shell"}</tool_call>', version, rng),
        },
        {"role": "tool", "tool_call_id": "c1", "name": "shell", "content": "17\n[exit status 0]"},
        {
            "role": "assistant",
            "content": "There are 17 lines." if solved else None,
            "tool_calls": [{"id": "c2", "name": "write_file", "arguments": json.dumps(second)}],
            "sampled": _sampled(
                'There are 17 lines. <tool_call>{"name":"write_file"}</tool_call>', version, rng
            ),
        },
        {"role": "tool", "tool_call_id": "c2", "name": "write_file", "content": "wrote count.txt"},
        {
            "role": "assistant",
            "content": "Done: count.txt holds the number of lines with ERROR.",
            "sampled": _sampled("Done: count.txt holds the number of lines with ERROR.", version, rng),
        },
    ]


def _sampled(text: str, version: int, rng: random.Random) -> dict[str, Any]:
    """What a reply's tokens looked like: one for every few characters."""
    texts: list[str] = []
    rest = text
    while rest:
        size = rng.choice((2, 3, 4, 5))
        texts.append(rest[:size])
        rest = rest[size:]
    logprobs = [
        -abs(round(rng.gauss(0, 0.5), 4)) if rng.random() < 0.85 else -round(rng.uniform(1, 4), 4)
        for _ in texts
    ]
    return {
        "tokens": [rng.randrange(4096) for _ in texts],
        "texts": texts,
        "logprobs": logprobs,
        "policy_version": version,
        "stop_reason": "stop",
        "segment": 0,
        "truncated": False,
        "discarded": False,
    }
