"""The configs of a project and the bundled examples: finding them, and copying an example into the project.

Everything here reads the disk and belongs into a thread. Walks are bounded: a home directory opened by mistake must
not keep the machine busy.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 500
MOST_ENTRIES = 20_000  # looked at, over all directories
DEEPEST = 8
HEAD_BYTES = 32_768  # of a file, to tell whether it is a config

_SKIPPED = frozenset(
    {"node_modules", "__pycache__", "site-packages", "dist", "build", "wandb", "venv", "env"}
)
_NEVER = frozenset({"pyproject.toml", "package.json", "package-lock.json", "tsconfig.json"})
_TOML_SIGN = re.compile(
    r"^\s*(recipe\s*=|\[(runtime|runtime\.config|training|model|compute|sampling)\])", re.MULTILINE
)
_JSON_SIGN = re.compile(r'"(recipe|runtime|training)"\s*:')


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that looks like a config. ``shown`` is its path from the project or the examples, with slashes."""

    path: Path
    shown: str
    bundled: bool
    link: str | None = None  # where it leads, if it is a symbolic link

    @property
    def directory(self) -> str:
        """The part of ``shown`` before the name; "" for the project's own directory."""
        return self.shown.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.shown.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Found:
    """All configs there are. ``cut``: the walk ended early; ``trouble`` says in a sentence what could not be read."""

    files: tuple[ConfigFile, ...] = ()
    cut: bool = False
    trouble: str | None = None


def find_configs(project_dir: Path, *, everything: bool = False) -> Found:
    """The project's configs, then the bundled examples'. ``everything`` takes any TOML and JSON file."""
    from engine.config.bundled import bundled_configs, examples_dir

    root = examples_dir()
    files: list[ConfigFile] = []
    walk = _Walk(project_dir, None if root is None else root.resolve())
    for path in walk.files():
        if everything or looks_like_config(path):
            link = os.readlink(path) if path.is_symlink() else None
            files.append(ConfigFile(path, path.relative_to(project_dir).as_posix(), False, link))
        if len(files) >= MOST_FILES:
            walk.cut = True
            break
    files.sort(key=lambda file: (file.directory.count("/") if file.directory else -1, file.shown))
    files.sort(key=lambda file: file.directory)
    if root is not None:
        files += [
            ConfigFile(path, "/".join(("examples", *path.relative_to(root).parts)), True)
            for path in bundled_configs()
        ]
    return Found(tuple(files), walk.cut, walk.trouble)


class _Walk:
    def __init__(self, root: Path, examples: Path | None) -> None:
        self._root = root
        self._examples = examples  # in a checkout they lie in the project: they are listed once, as examples
        self.cut = False
        self.trouble: str | None = None
        self._looked = 0

    def files(self) -> Iterator[Path]:
        waiting: list[tuple[Path, int]] = [(self._root, 0)]
        while waiting:
            directory, depth = waiting.pop()
            try:
                entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
            except OSError as error:
                if directory == self._root:
                    self.trouble = f"{directory} cannot be read: {error.strerror or error}"
                continue
            if depth and any(entry.name in {"run.json", "pyvenv.cfg"} for entry in entries):
                continue  # a run's own directory (its config.toml is what ran), or an environment
            below: list[tuple[Path, int]] = []
            for entry in entries:
                self._looked += 1
                if self._looked > MOST_ENTRIES:
                    self.cut = True
                    return
                if entry.name.startswith("."):
                    continue
                path = Path(entry.path)
                if _is_directory(entry):
                    if entry.name in _SKIPPED or (
                        self._examples is not None and path.resolve() == self._examples
                    ):
                        continue
                    if depth + 1 >= DEEPEST:
                        self.cut = True
                    else:
                        below.append((path, depth + 1))
                elif path.suffix.lower() in {".toml", ".json"} and entry.name not in _NEVER:
                    yield path
            waiting.extend(reversed(below))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        # A link to a directory could lead anywhere, also back here.
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def looks_like_config(path: Path) -> bool:
    """Whether a file has what only configs have; a link that leads nowhere and an unreadable file count as one."""
    try:
        if not path.is_file():
            return path.is_symlink()
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return True
    return (_JSON_SIGN if path.suffix.lower() == ".json" else _TOML_SIGN).search(head) is not None


class NotCopied(Exception):
    """An example could not be copied; the message is for a person."""


def copy_example(config: Path, project_dir: Path) -> tuple[Path, list[str]]:
    """Copy the example that holds ``config`` into the project, whole; returns the copy of the config and the files.

    Nothing is overwritten: where the directory is taken, the copy gets a number. Raises NotCopied.
    """
    source = config.parent
    target = project_dir / source.name
    number = 2
    while target.exists() or target.is_symlink():
        target = project_dir / f"{source.name}_{number}"
        number += 1
    try:
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("__pycache__", "runs", ".*"), symlinks=False
        )
        # An installed package may be read-only; a copy is for editing.
        for path in (target, *target.rglob("*")):
            path.chmod(path.stat().st_mode | 0o600 | (0o100 if path.is_dir() else 0))
        copied = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    except (OSError, shutil.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NotCopied(f"{source.name} was not copied to {target}: {reason}") from error
    return target / config.name, copied
