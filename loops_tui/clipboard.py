"""Copying text out of the app, and saying honestly what became of it.

Inside tmux with its default settings an OSC 52 sequence of a program goes nowhere, but tmux's own buffer works.
Elsewhere OSC 52 is sent to the terminal, which never answers whether it took it. A text too large for either goes to
a file.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OSC52_LIMIT = 100_000  # encoded bytes; tmux and several terminals drop more without a word
TMUX_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of a text."""

    said: str
    ok: bool = True


async def copy_text(text: str, file: Path, send_osc52: Callable[[str], None]) -> Copied:
    """Copy ``text`` by the best way there is; ``file`` takes what fits no other way. Never raises."""
    size = _size(text)
    refused = ""
    if os.environ.get("TMUX") and shutil.which("tmux"):
        problem = await asyncio.to_thread(_to_tmux, text)
        if problem is None:
            return Copied(f"{size} are in tmux's buffer (prefix ] pastes)")
        refused = f" (tmux did not take them: {problem})"
    if len(base64.b64encode(text.encode("utf-8", "replace"))) <= OSC52_LIMIT:
        send_osc52(text)
        return Copied(
            f"{size} were sent to the terminal; if it takes OSC 52, they are in its clipboard{refused}"
        )
    saved = await save_text(text, file)
    if not saved.ok:
        return saved
    return Copied(f"{size} are too many for a terminal's clipboard; they are in {file}{refused}")


async def save_text(text: str, file: Path) -> Copied:
    """Write ``text`` to a file of this user alone. Never raises."""
    try:
        await asyncio.to_thread(_to_file, text, file)
    except OSError as error:
        return Copied(f"{file} cannot be written: {error.strerror or error}", ok=False)
    return Copied(f"{_size(text)} are in {file}")


def _size(text: str) -> str:
    return f"{len(text):,} character{'' if len(text) == 1 else 's'}"


def _to_tmux(text: str) -> str | None:
    """Load tmux's buffer, and through it the outer terminal's clipboard. A sentence where it did not work."""
    try:
        done = subprocess.run(
            ["tmux", "load-buffer", "-w", "-"],
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TMUX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip() or "tmux refused"


def _to_file(text: str, file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as handle:
        handle.write(text)
