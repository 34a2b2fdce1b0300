"""Write the example's tasks: `python make_tasks.py` beside this file. The same files come out every time.

Two kinds: settings that a suite checks (``settings.jsonl``; the shipped demonstration model can reach them with its
tools) and functions with a bug (``bugs.jsonl``; for a model that can write Python). Of each, some are held out.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 11
TRAIN, HELD_OUT = 8, 32
KEYS = ["port", "host", "user", "limit", "level", "cache", "queue", "workers"]
PREFIXES = ["admin", "remote", "old"]
NAMES = ["app", "shop", "mail", "report", "orders", "main"]
WORDS = ["maple", "harbor", "willow", "river", "amber", "cedar", "stone", "ember", "north", "tiger"]

READER = '''"""Read key=value files."""


def read(path):
    """The settings of a file, as texts. Raises ValueError where a key stands twice."""
    found = {}
    with open(path) as file:
        for line in file:
            key, _, value = line.strip().partition("=")
            if key in found:
                raise ValueError(f"{key} stands twice")
            found[key] = value
    return found
'''


def settings_task(rng: random.Random, name: str) -> dict[str, Any]:
    """Change one value; a second key that ends in the wanted one is the trap."""
    path = f"{rng.choice(NAMES)}.conf"
    key, *others = rng.sample(KEYS, 3)

    def value() -> str:
        return str(rng.randint(10, 9999)) if rng.random() < 0.6 else rng.choice(WORDS)

    rows = [
        (key, value()),
        *((other, value()) for other in others),
        (f"{rng.choice(PREFIXES)}_{key}", value()),
    ]
    rng.shuffle(rows)
    new = value()
    while new == dict(rows)[key]:
        new = value()
    wanted = {name: new if name == key else old for name, old in rows}
    kept = {name: old for name, old in wanted.items() if name != key}
    tests = f'''import unittest

from settings import read


class TestSettings(unittest.TestCase):
    def test_{key}(self):
        self.assertEqual(read("{path}").get("{key}"), "{new}")

    def test_nothing_else_changed(self):
        found = read("{path}")
        for key, value in {kept!r}.items():
            self.assertEqual(found.get(key), value)

    def test_no_more_keys(self):
        self.assertEqual(len(read("{path}")), {len(rows)})
'''
    return {
        "id": name,
        "instruction": f"In {path}, change the {key} to {new}. Leave the other settings exactly as they are.",
        "files": {
            path: "".join(f"{name}={old}\n" for name, old in rows),
            "settings.py": READER,
            "tests/__init__.py": "",
            "tests/test_settings.py": tests,
        },
        "expected": 3,
        "passing": 2,
        "protected": ["settings.py"],
    }


def bug(name: str, said: str, code: str, tests: list[str], passing: int) -> dict[str, Any]:
    """A function with a bug. ``tests``: one assertion each."""
    methods = "".join(
        f"\n    def test_{number}(self):\n        {line}\n" for number, line in enumerate(tests, 1)
    )
    suite = f"import unittest\n\nfrom {name} import *\n\n\nclass Test(unittest.TestCase):{methods}"
    return {
        "id": name,
        "instruction": f"The tests of {name}.py fail: {said} Mend it.",
        "files": {f"{name}.py": code, "tests/__init__.py": "", f"tests/test_{name}.py": suite},
        "expected": len(tests),
        "passing": passing,
    }


BUGS = [
    bug(
        "total",
        "the last row is dropped.",
        'def total(rows):\n    return sum(row["amount"] for row in rows[:-1])\n',
        [
            'self.assertEqual(total([{"amount": 1}, {"amount": 2}]), 3)',
            'self.assertEqual(total([{"amount": 5}]), 5)',
            "self.assertEqual(total([]), 0)",
        ],
        1,
    ),
    bug(
        "largest",
        "negative numbers are passed over.",
        "def largest(numbers):\n    best = 0\n    for number in numbers:\n        if number > best:\n"
        "            best = number\n    return best\n",
        [
            "self.assertEqual(largest([1, 3, 2]), 3)",
            "self.assertEqual(largest([-4, -2]), -2)",
            "self.assertEqual(largest([-1]), -1)",
        ],
        1,
    ),
    bug(
        "initials",
        "names with two spaces between them fail.",
        'def initials(name):\n    return "".join(part[0] for part in name.split(" ")).upper()\n',
        [
            'self.assertEqual(initials("ada lovelace"), "AL")',
            'self.assertEqual(initials("ada  lovelace"), "AL")',
            'self.assertEqual(initials(" grace hopper "), "GH")',
        ],
        1,
    ),
    bug(
        "mean",
        "it rounds down, and no numbers at all fail.",
        "def mean(numbers):\n    return sum(numbers) // len(numbers)\n",
        [
            "self.assertEqual(mean([2, 4]), 3)",
            "self.assertEqual(mean([1, 2]), 1.5)",
            "self.assertEqual(mean([]), 0)",
        ],
        1,
    ),
    bug(
        "leap",
        "full centuries are wrong.",
        "def leap(year):\n    return year % 4 == 0\n",
        [
            "self.assertTrue(leap(2024))",
            "self.assertFalse(leap(2023))",
            "self.assertFalse(leap(1900))",
            "self.assertTrue(leap(2000))",
        ],
        3,
    ),
    bug(
        "clamp",
        "the bounds are the wrong way round.",
        "def clamp(value, low, high):\n    return max(high, min(low, value))\n",
        [
            "self.assertEqual(clamp(5, 0, 10), 5)",
            "self.assertEqual(clamp(-5, 0, 10), 0)",
            "self.assertEqual(clamp(50, 0, 10), 10)",
        ],
        1,
    ),
]
HELD_OUT_BUGS = [
    bug(
        "count_words",
        "an empty text has one word.",
        'def count_words(text):\n    return len(text.split(" "))\n',
        [
            'self.assertEqual(count_words("a b"), 2)',
            'self.assertEqual(count_words(""), 0)',
            'self.assertEqual(count_words("a  b"), 2)',
        ],
        1,
    ),
    bug(
        "unique",
        "the order is lost.",
        "def unique(items):\n    return sorted(set(items))\n",
        [
            "self.assertEqual(unique([1, 2, 1]), [1, 2])",
            "self.assertEqual(unique([3, 1, 3]), [3, 1])",
            'self.assertEqual(unique(["b", "a"]), ["b", "a"])',
        ],
        1,
    ),
]


def written(name: str, rows: list[dict[str, Any]]) -> None:
    (HERE / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    rng = random.Random(SEED)
    settings = [settings_task(rng, f"settings_{number}") for number in range(TRAIN + HELD_OUT)]
    written("settings.jsonl", settings[:TRAIN])
    written("settings_heldout.jsonl", settings[TRAIN:])
    written("bugs.jsonl", BUGS)
    written("bugs_heldout.jsonl", HELD_OUT_BUGS)


if __name__ == "__main__":
    main()
