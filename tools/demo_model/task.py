"""What a file task is: an instruction, the files it starts from, a hidden check, and ways to go right or wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One tool call, as the policy would write it."""

    name: str
    arguments: Mapping[str, str]


@dataclass(frozen=True)
class FileTask:
    """`traps` are the obvious commands that fail the check: they are what makes attempts disagree."""

    instruction: str
    files: Mapping[str, str]
    check: str
    right: tuple[Call, ...]
    traps: tuple[Call, ...]
    final: str
    look: str | None = None  # the file worth reading first
    output: str | None = None  # the file worth reading afterwards
    must_look: bool = False  # the command depends on what the file says
    family: str = ""


def shell(command: str) -> Call:
    return Call("shell", {"command": command})


def write_file(path: str, content: str) -> Call:
    return Call("write_file", {"path": path, "content": content})


def file_equals(path: str, text: str) -> str:
    """A shell check: `path` holds `text`, up to newlines at its end."""
    return f"[ -f {path} ] && [ \"$(cat {path})\" = '{text}' ]"
