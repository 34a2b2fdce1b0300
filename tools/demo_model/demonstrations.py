"""Demonstrations of the file tasks: 35-50 % go right, the rest fall into the task's trap.

A policy that always imitated success would leave reinforcement learning nothing to do, and one that never succeeds
gives it nothing to reinforce. Tool results are what the commands really print. Most are JSON objects, as an episode
that sends `json.dumps(result)` makes them, the others plain text, so that the policy reads both.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from .families import right_share
from .task import Call, FileTask, shell

JSON_SHARE = 0.7
LOOK_SHARE, CHECK_SHARE = 0.5, 0.2


def run_own_command(folder: Path, command: str) -> tuple[int, str]:
    """Run a command that this package wrote. Never one that a model wrote: see `sandbox.py` for those."""
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=10,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    return done.returncode, done.stdout.decode("utf8", "replace").replace("/bin/bash: line 1: ", "")


def result_text(call: Call, exit_code: int, output: str, as_json: bool) -> str:
    """The tool message for a call, in one of the two forms."""
    if call.name == "write_file":
        path, size = call.arguments["path"], len(call.arguments["content"])
        return json.dumps({"written": path}) if as_json else f"wrote {size} bytes"
    if as_json:
        return json.dumps({"exit_code": exit_code, "output": output})
    text = output.rstrip("\n")
    return text or ("(no output)" if exit_code == 0 else f"(exit code {exit_code})")


def _prints_nothing(command: str) -> bool:
    return ">" in command or " -i " in command or command.startswith("cp ")


def place_files(task: FileTask, folder: Path) -> None:
    for name, text in task.files.items():
        (folder / name).write_text(text)


class _Workplace:
    """The task's directory, made only when a command has to run for its output."""

    def __init__(self, task: FileTask, all_run: bool) -> None:
        self._task, self._all_run = task, all_run
        self._held: tempfile.TemporaryDirectory[str] | None = None

    def call(self, call: Call) -> tuple[int, str]:
        command = call.arguments.get("command")
        if self._held is None and not self._all_run:
            if command is None or _prints_nothing(command):
                return 0, ""
            if command == f"cat {self._task.look}":
                return 0, self._task.files[str(self._task.look)]
        if self._held is None:
            self._held = tempfile.TemporaryDirectory()
            place_files(self._task, Path(self._held.name))
        folder = Path(self._held.name)
        if command is None:
            (folder / call.arguments["path"]).write_text(call.arguments["content"])
            return 0, ""
        return run_own_command(folder, command)

    def close(self) -> None:
        if self._held is not None:
            self._held.cleanup()


def _call_message(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dict(call.arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def demonstrate(task: FileTask, rng: random.Random) -> list[dict[str, Any]]:
    """The messages of one episode, from the instruction to the final reply (no system message)."""
    goes_right = rng.random() < right_share(task.family)
    act = rng.choice(task.right if goes_right else task.traps)
    must_look = task.must_look or (act.name == "write_file" and goes_right)
    calls = [act]
    if task.look and (must_look or rng.random() < LOOK_SHARE):
        calls.insert(0, shell(f"cat {task.look}"))
    checks = task.output is not None and rng.random() < CHECK_SHARE
    if checks:
        calls.append(shell(f"cat {task.output}"))
    as_json, keeps_newline = rng.random() < JSON_SHARE, rng.random() < 0.5
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.instruction}]
    workplace = _Workplace(task, all_run=checks)
    try:
        for call in calls:
            exit_code, output = workplace.call(call)
            output = output if keeps_newline else output.rstrip("\n")
            messages.append(_call_message(call))
            messages.append({"role": "tool", "content": result_text(call, exit_code, output, as_json)})
    finally:
        workplace.close()
    messages.append({"role": "assistant", "content": task.final if rng.random() < 0.7 else "Done."})
    return messages
