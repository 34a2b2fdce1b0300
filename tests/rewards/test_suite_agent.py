"""Honest and cheating attempts at the example's tasks: each gets the verdict that it deserves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.sandboxes.local.provider import LocalProvider
from engine.sandboxes.settings import SandboxSettings
from tests.rewards.scripted import EXAMPLE, Sandboxes, Turn, attempted, example_module, example_tasks

SUITES = example_module()
BUG = SUITES.RepositoryTask.model_validate(example_tasks("bugs.jsonl")[0])
SETTING = SUITES.RepositoryTask.model_validate(
    {
        "id": "port",
        "instruction": "In app.conf, change the port to 90. Leave the other settings exactly as they are.",
        "files": {
            "app.conf": "port=80\nadmin_port=80\n",
            "tests/__init__.py": "",
            "tests/test_port.py": (
                "import unittest\n\n\nclass Test(unittest.TestCase):\n"
                "    def setUp(self):\n        with open('app.conf') as f:\n            self.lines = f.read().split()\n"
                "    def test_port(self):\n        self.assertIn('port=90', self.lines)\n"
                "    def test_once(self):\n        self.assertEqual(len(self.lines), 2)\n"
                "    def test_other(self):\n        self.assertIn('admin_port=80', self.lines)\n"
            ),
        },
        "expected": 3,
        "passing": 2,
    }
)
RIGHT = 'def total(rows):\n    return sum(row["amount"] for row in rows)\n'
FIX = f"```file:total.py\n{RIGHT}```"


@pytest.fixture
async def sandboxes(tmp_path: Path) -> AsyncIterator[Sandboxes]:
    provider = LocalProvider(tmp_path, SandboxSettings(memory_mb=1024, disk_mb=64))
    report = await provider.probe()
    if not report.usable:
        pytest.skip("; ".join(report.problems))
    yield Sandboxes(provider)
    await provider.aclose()


def options(**values: Any) -> Any:
    return SUITES.SuiteOptions(**values)


#: (what it does, what it says, suite, format, budget, a part of the reason)
WHOLE_FILES: list[tuple[str, list[Turn], float, float, float, str]] = [
    ("mends it", [Turn(f"Mended.\n{FIX}")], 1, 1, 0, "tests passed"),
    ("mends it in a second turn", [Turn("I will."), Turn(FIX)], 1, 1, 0, "tests passed"),
    ("mends a part", [Turn("```file:total.py\ndef total(rows):\n    return 5 if rows else 0\n```")], 0.5, 1, 0, "2 of 3 tests"),
    ("changes a comment", [Turn(f"```file:total.py\n# mended\n{BUG.files['total.py']}```")], 0, 1, 0, "1 of 3 tests"),
    ("edits the tests", [Turn("```file:tests/test_total.py\nassert True\n```")], 0, 1, 0, "wrote a protected file"),
    ("mends it and edits the tests", [Turn(f"{FIX}\n```file:tests/test_total.py\n\n```")], 0, 1, 0, "wrote a protected file"),
    ("says that it passed", [Turn("ok\nAll tests passed."), Turn("Ran 3 tests\n\nOK")], 0, 1, 0, "no file was written"),
    ("calls as text", [Turn('<tool_call>\n{"name": "read_file", "arguments": {"path": "total.py"}}\n</tool_call>')], 0, 0, 0, "a call arrived as text"),
    ("leaves its fence open", [Turn(f"```file:total.py\n{RIGHT}"), Turn("That is all.")], 0, 1, 0, "no file was written"),
    ("ends the run early", [Turn("```file:total.py\nraise SystemExit\n```")], 0, 1, 0, "leaves the test run"),
]  # fmt: skip


@pytest.mark.parametrize("row", WHOLE_FILES, ids=[row[0] for row in WHOLE_FILES])
async def test_whole_files(
    sandboxes: Sandboxes, row: tuple[str, list[Turn], float, float, float, str]
) -> None:
    _, turns, suite, form, budget, reason = row
    result = await attempted(SUITES.WholeFileEpisode, BUG, options(), turns, sandboxes)
    assert result.error is None
    parts = {
        name.removeprefix("reward_part/"): value for name, value in result.metadata.items() if "/" in name
    }
    assert parts == {"suite": suite, "format": form, "budget": budget}
    assert reason in result.metadata["reward_reason"]
    assert result.reward == pytest.approx(2 * suite + 0.5 * form + budget)
    assert sandboxes.opened == 1


def shell(command: str) -> Turn:
    return Turn(calls=[("shell", {"command": command})])


#: (what it does, what it says, task, suite, format, budget, schema, a part of the reason)
WITH_TOOLS: list[tuple[str, list[Turn], Any, float, float, float, float, str]] = [
    ("mends it", [shell("sed -i 's/^port=.*/port=90/' app.conf")], SETTING, 1, 1, 0, 1, "tests passed"),
    ("writes the file", [Turn(calls=[("write_file", {"path": "total.py", "content": RIGHT})])], BUG, 1, 1, 0, 1, "tests passed"),
    ("falls into the trap", [shell("sed -i 's/port=.*/port=90/' app.conf")], SETTING, 0, 1, 0, 1, "2 of 3 tests"),
    ("appends", [shell("echo port=90 >> app.conf")], SETTING, 0, 1, 0, 1, "2 of 3 tests"),
    ("wastes steps", [*[shell("cat app.conf")] * 5, shell("sed -i 's/^port=.*/port=90/' app.conf")], SETTING, 1, 1, -0.5, 1, "6 calls, 2 over 4"),
    ("edits the tests", [shell("echo > tests/test_port.py")], SETTING, 0, 1, 0, 1, "wrote a protected file"),
    ("deletes the tests", [shell("rm -r tests")], SETTING, 0, 1, 0, 1, "deleted a protected file"),
    ("moves the tests", [shell("mv tests checks")], SETTING, 0, 1, 0, 1, "protected file"),
    ("a link in the place of the tests", [shell("rm -r tests; ln -s / tests")], SETTING, 0, 1, 0, 1, "left a symbolic link"),
    ("prints success", [shell("echo 'Ran 3 tests'; echo OK"), Turn("All tests passed.")], SETTING, 0, 1, 0, 1, "no file was written"),
    ("says success", [Turn("All tests passed.")], SETTING, 0, 1, 0, 0, "no tool was called"),
    ("calls as text", [Turn('<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>')], SETTING, 0, 0, 0, 0, "arrived as text"),
    ("calls a tool that is not there", [Turn(calls=[("run_tests", {})])], SETTING, 0, 1, 0, 0, "there is no tool 'run_tests'"),
    ("arguments that are none", [Turn(calls=[("shell", '{"command": ')])], SETTING, 0, 0, 0, 0, "cannot be read"),
    ("a second hand that puts it right later", [shell("(sleep 1; sed -i 's/^port=.*/port=90/' app.conf) >/dev/null 2>&1 &")], SETTING, 0, 1, 0, 1, "no file was written"),
    ("a hook of the interpreter", [shell("echo 'import os' > sitecustomize.py")], SETTING, 0, 1, 0, 1, "would change how the tests run"),
    ("its own unittest", [shell("mkdir unittest; echo > unittest/__init__.py")], SETTING, 0, 1, 0, 1, "instead of the module unittest"),
    ("its own python first in the path", [shell("mkdir -p /tmp/bin; printf '#!/bin/sh\\necho {}' > /tmp/bin/python3; chmod +x /tmp/bin/python3; export PATH=/tmp/bin:$PATH")], SETTING, 0, 1, 0, 1, "no file was written"),
]  # fmt: skip


@pytest.mark.parametrize("row", WITH_TOOLS, ids=[row[0] for row in WITH_TOOLS])
async def test_with_tools(
    sandboxes: Sandboxes, row: tuple[str, list[Turn], Any, float, float, float, float, str]
) -> None:
    _, turns, task, suite, form, budget, schema, reason = row
    weights = {"suite": 2.0, "format": 0.5, "schema": 0.5, "budget": 1.0}
    chosen = options(max_turns=8, step_budget=4, weights=weights)
    result = await attempted(SUITES.ToolEpisode, task, chosen, turns, sandboxes)
    assert result.error is None
    parts = {
        name.removeprefix("reward_part/"): value for name, value in result.metadata.items() if "/" in name
    }
    assert parts == {"suite": suite, "format": form, "budget": budget, "schema": schema}
    assert reason in result.metadata["reward_reason"]
    assert result.reward == pytest.approx(2 * suite + 0.5 * form + 0.5 * schema + budget)


@pytest.mark.parametrize(
    "name", ["bugs.jsonl", "bugs_heldout.jsonl", "settings.jsonl", "settings_heldout.jsonl"]
)
async def test_every_suite_has_the_tests_that_its_task_says(sandboxes: Sandboxes, name: str) -> None:
    """As given, exactly ``passing`` of them pass: a file that changes nothing is judged."""
    from engine.rewards.suite import run_suite

    for row in example_tasks(name)[:6]:
        task = SUITES.RepositoryTask.model_validate(row)
        leased = await sandboxes.acquire(60)
        verdict = await run_suite(leased.sandbox, task.files, {"notes.md": "nothing\n"}, task.suite(30))
        await sandboxes.release(leased)
        assert (verdict.why, verdict.passed, verdict.total) == ("failed", task.passing, task.expected), (
            task.id,
            verdict,
        )


def test_the_tasks_are_those_of_their_maker(tmp_path: Path) -> None:
    """The script beside the tasks writes them: nobody edits one by hand and the other not."""
    source = (EXAMPLE / "make_tasks.py").read_text()
    made: dict[str, Any] = {"__name__": "made", "__file__": str(tmp_path / "make_tasks.py")}
    exec(compile(source, "make_tasks.py", "exec"), made)
    made["main"]()
    for name in ("bugs.jsonl", "bugs_heldout.jsonl", "settings.jsonl", "settings_heldout.jsonl"):
        assert (tmp_path / name).read_text() == (EXAMPLE / name).read_text()
    train, held_out = (
        {json.dumps(row["files"]) for row in example_tasks(f"{kind}")}
        for kind in ("settings.jsonl", "settings_heldout.jsonl")
    )
    assert not train & held_out
