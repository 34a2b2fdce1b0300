"""Write the example's data: `python make_data.py` beside this file. The same files come out every time.

Requests in a few wordings, answered with a call of one of four tools and then with a short confirmation. No request that
is held out is ever trained on.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 7
TRAIN, VALIDATION, HELD_OUT, REQUESTS = 600, 100, 64, 96


def tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    tool("set_timer", "Start a timer.", minutes="integer"),
    tool("add_item", "Add to a list.", list="string", item="string"),
    tool("send", "Send a text.", to="string", text="string"),
    tool("light", "Switch a light.", room="string", on="boolean"),
]
NAMES = [
    "maple",
    "harbor",
    "willow",
    "river",
    "amber",
    "cedar",
    "stone",
    "ember",
    "north",
    "coral",
    "delta",
    "olive",
]
ITEMS = ["milk", "rope", "salt", "paper", "lamp", "tea", "nails", "soap", "rice", "tape", "glue", "bread"]
LISTS = ["shop", "camp", "home", "work"]
ROOMS = ["hall", "kitchen", "attic", "cellar", "office", "garage"]
TEXTS = ["on my way", "call me", "all done", "see you", "need help", "good luck"]


def request(rng: random.Random) -> tuple[str, str, dict[str, Any], str]:
    """A request, the tool and the arguments that serve it, and what to say afterwards."""
    kind = rng.randrange(4)
    if kind == 0:
        minutes = rng.randint(1, 90)
        asked = rng.choice(
            ["Set a timer for {} minutes.", "Remind me in {} minutes.", "Wake me after {} minutes."]
        )
        return asked.format(minutes), "set_timer", {"minutes": minutes}, f"Timer: {minutes} minutes."
    if kind == 1:
        item, to = rng.choice(ITEMS), rng.choice(LISTS)
        asked = rng.choice(["Put {0} on the {1} list.", "Add {0} to {1}.", "We need {0}, note it under {1}."])
        return asked.format(item, to), "add_item", {"list": to, "item": item}, f"Added {item} to {to}."
    if kind == 2:
        name, text = rng.choice(NAMES), rng.choice(TEXTS)
        asked = rng.choice(["Tell {0}: {1}.", "Text {0} that says {1}.", "Send {1} to {0}."])
        return asked.format(name, text), "send", {"to": name, "text": text}, f"Sent to {name}."
    room, on = rng.choice(ROOMS), rng.random() < 0.5
    word = "on" if on else "off"
    asked = rng.choice(["Turn {1} the light in the {0}.", "Light {1} in the {0}, please.", "{0} light {1}."])
    return asked.format(room, word), "light", {"room": room, "on": on}, f"The {room} light is {word}."


def row(asked: str, name: str, arguments: dict[str, Any], said: str) -> dict[str, Any]:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return {
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
            {"role": "assistant", "content": said},
        ],
    }


def task(name: str, asked: str, tool_name: str, arguments: dict[str, Any], _: str) -> dict[str, Any]:
    return {"id": name, "request": asked, "tools": TOOLS, "tool": tool_name, "arguments": arguments}


def main() -> None:
    rng = random.Random(SEED)
    seen: set[str] = set()
    found: list[tuple[str, str, dict[str, Any], str]] = []
    # These first, so that nothing held out is ever trained on.
    while len(found) < VALIDATION + HELD_OUT + REQUESTS:
        candidate = request(rng)
        if candidate[0] not in seen:
            seen.add(candidate[0])
            found.append(candidate)
    train: list[tuple[str, str, dict[str, Any], str]] = []
    while len(train) < TRAIN:
        candidate = request(rng)
        if candidate[0] not in seen:
            train.append(candidate)
    write("train.jsonl", [row(*each) for each in train])
    write("validation.jsonl", [row(*each) for each in found[:VALIDATION]])
    write(
        "heldout.jsonl",
        [task(f"heldout_{n:02}", *each) for n, each in enumerate(found[VALIDATION:][:HELD_OUT])],
    )
    write("requests.jsonl", [task(f"request_{n:02}", *each) for n, each in enumerate(found[-REQUESTS:])])


def write(name: str, rows: list[dict[str, Any]]) -> None:
    (HERE / name).write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
