"""What a project remembers of its use of Blaxel, in ``.loops/blaxel.json``.

``mark`` is a random label of all its sandboxes: two projects in directories of the same name, on two machines but in
one workspace, must never take each other's for their own. ``workspace`` and ``url`` say where they are: a sandbox that
one workspace does not have may still run in another.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.sandboxes.errors import PermanentError
from engine.store.errors import StoreError
from engine.store.schema import STORE_DIRECTORY, prepare_directory

_FILE = "blaxel.json"


@dataclass(frozen=True, slots=True)
class Memory:
    """``url``: None means Blaxel's own service."""

    mark: str
    workspace: str
    url: str | None


def recall(project_dir: Path) -> Memory | None:
    """None where the project has never used Blaxel. Raises PermanentError for a file that cannot be read."""
    path = project_dir / STORE_DIRECTORY / _FILE
    try:
        table = json.loads(path.read_text("utf-8"))
        return Memory(str(table["mark"]), str(table["workspace"]), table.get("url"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PermanentError(
            f"{path} cannot be read ({error}); it says which Blaxel sandboxes are this project's"
        ) from error


def remember(project_dir: Path, workspace: str, url: str | None) -> Memory:
    """Note where sandboxes are made from now on; the mark stays what it was. Raises PermanentError."""
    try:
        known = recall(project_dir)
        memory = Memory(known.mark if known is not None else secrets.token_hex(8), workspace, url)
        if memory == known:
            return memory
        directory = prepare_directory(project_dir)
        fresh = directory / f"{_FILE}.{secrets.token_hex(4)}"
        try:
            with open(fresh, "x", encoding="utf-8") as file:
                json.dump(asdict(memory), file)
                file.flush()
                os.fsync(file.fileno())
            if known is not None:
                os.replace(fresh, directory / _FILE)
            else:
                with contextlib.suppress(FileExistsError):  # two processes' first time: one mark for both
                    os.link(fresh, directory / _FILE)
        finally:
            fresh.unlink(missing_ok=True)
        return recall(project_dir) or memory
    except OSError as error:
        raise PermanentError(f"{project_dir / STORE_DIRECTORY} cannot be written: {error}") from error
    except StoreError as error:
        raise PermanentError(str(error)) from error
