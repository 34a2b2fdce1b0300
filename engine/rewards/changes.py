"""What an agent changed in its own sandbox: the files that it made, changed and deleted, read safely.

The sandbox is the agent's, and nothing in it is believed: its processes are ended first, links are never followed, and
all that comes out is a bounded list of paths with their contents. A lie can only be about those, which
:func:`engine.rewards.suite.run_suite` judges as it judges every other write.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from engine.rewards.protected import Refused
from engine.sandboxes.contract import Exec, Sandbox
from engine.sandboxes.errors import InvalidRequest, SandboxFileError

type Content = str | bytes

_LISTING = resources.files("engine.rewards").joinpath("listing.py").read_text(encoding="utf-8")
_LISTING_BYTES = 2 * 1024 * 1024

#: What running a program leaves behind: never carried over, so it cannot decide anything.
LEFTOVERS: tuple[str, ...] = (
    "__pycache__", "*.pyc", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage", ".git",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChangeLimits:
    """How much an agent may leave. More of it refuses the attempt.

    ``entries``: files and directories in the workspace, changed or not, and ``workspace_bytes`` their sizes in all.
    ``files`` and ``bytes``: what was changed. ``seconds``: how long looking may take. ``skipped``: patterns of names
    that are passed over, in every directory.
    """

    files: int = 100
    bytes: int = 1024 * 1024
    entries: int = 5000
    workspace_bytes: int = 64 * 1024 * 1024
    seconds: float = 30.0
    skipped: tuple[str, ...] = LEFTOVERS


async def collect_changes(
    sandbox: Sandbox, workspace: Mapping[str, Content], limits: ChangeLimits | None = None
) -> dict[str, bytes | None]:
    """The agent's changes, path to content, None for a deleted file. Ends every process of the sandbox.

    Args:
        sandbox: the agent's own, as it left it.
        workspace: the files as the agent got them below the sandbox's working directory, path to content.

    Raises:
        Refused: there is something that nobody should be asked to judge: a link, a pipe, a name that cannot be read,
            or more than ``limits`` allow.
        ProviderError: the sandbox failed, which says nothing about the attempt.
    """
    limits = limits or ChangeLimits()
    await sandbox.kill_all()
    done = await sandbox.exec(
        [
            "python3", "-I", "-S", "-c", _LISTING,
            sandbox.workdir, str(limits.entries), str(limits.workspace_bytes), json.dumps(limits.skipped),
        ],
        cwd="/",
        timeout=limits.seconds,
        max_output=_LISTING_BYTES,
    )  # fmt: skip
    if not done.ok or done.truncated:
        await sandbox.ensure_alive()
        raise Refused(f"the files that were left cannot be listed: {_why(done, limits)}")
    found = _found(done.stdout)
    before = {path: as_bytes(content) for path, content in workspace.items()}
    changed = [
        path for path, digest in found.items() if path not in before or digest != _digest(before[path])
    ]
    if len(changed) > limits.files:
        raise Refused(f"{len(changed)} files were changed, and {limits.files} may be")
    changes = await _contents(sandbox, changed, limits)
    changes.update({path: None for path in before if path not in found})
    return changes


async def _contents(sandbox: Sandbox, paths: list[str], limits: ChangeLimits) -> dict[str, bytes | None]:
    left = limits.bytes
    contents: dict[str, bytes | None] = {}
    for path in paths:
        try:
            content = await sandbox.read(f"{sandbox.workdir}/{path}", max_bytes=max(1, left))
        except (SandboxFileError, InvalidRequest) as error:
            too_large = isinstance(error, SandboxFileError) and error.reason == "too_large"
            what = f"more than {limits.bytes} bytes were changed" if too_large else f"{path} cannot be read"
            raise Refused(what) from error
        left -= len(content)
        if left < 0:
            raise Refused(f"more than {limits.bytes} bytes were changed")
        contents[path] = content
    return contents


def _found(output: str) -> dict[str, str]:
    """Path to SHA-256 of the files that are there. Raises Refused."""
    try:
        told: Any = json.loads(output)
        odd, files = told["odd"], told["files"]
        found = {str(path): str(digest) for path, (digest, _) in files.items()}
        if odd is not None:
            path, what = (str(part) for part in odd)
            raise Refused(f"left {what[:200]}: {path[:200]!r}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused("the files that were left cannot be listed: what their list says is broken") from error
    for path in found:
        parts = path.split("/")
        if not path or not path.isprintable() or "\\" in path or {"", ".", ".."} & set(parts):
            raise Refused(f"left a name with characters that nobody can see: {path[:200]!r}")
    return found


def _why(done: Exec, limits: ChangeLimits) -> str:
    if done.status == "timed_out":
        return f"it takes more than {limits.seconds:g} s"
    if done.truncated:
        return "there are too many"
    said = done.stderr.strip().splitlines()
    return said[-1][:200] if said else f"exit code {done.exit_code}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def as_bytes(content: Content) -> bytes:
    """A file's content as it lies on a disk."""
    return content.encode("utf-8") if isinstance(content, str) else content
