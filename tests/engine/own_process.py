"""``loops-tui`` in a process of its own, as a user starts it, without an account."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

#: A whole run of a test may take this long.
RUN_SECONDS = 240.0


def environment() -> dict[str, str]:
    """This process's variables without those that name a server or an account."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LOOPS_", "BASETEN_"))}
    return {**kept, "HF_HUB_OFFLINE": "1"}


def started(directory: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """A command that has begun in a project directory; its output can be read."""
    return subprocess.Popen(
        [sys.executable, "-m", "loops_tui", *words],
        cwd=directory,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **{"stdin": subprocess.DEVNULL, **options},
    )


def said_until(process: subprocess.Popen[str], words: str) -> list[str]:
    """Everything the process has said on stderr, up to the line with these words; fails where it ends before."""
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:  # ends with the process, at the latest
        said.append(line)
        if words in line:
            return said
    raise AssertionError(f"it never said {words!r}:\n" + "".join(said))


def to_end(directory: Path, *words: str) -> dict[str, Any]:
    """Run a command with ``--json`` to its good end; its value."""
    process = started(directory, *words, "--json")
    try:
        out, err = process.communicate(timeout=RUN_SECONDS)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err
    return json.loads(out)
