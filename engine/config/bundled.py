"""The examples that come with the package: in a checkout the repository's own, in an installed one a copy inside it."""

from __future__ import annotations

import os
from pathlib import Path

_ENGINE = Path(__file__).resolve().parent.parent


def examples_dir() -> Path | None:
    """The directory that holds the bundled examples, or None where the package came without them."""
    # The cookbook's guide copies them from there: "$COOKBOOK_DIR/bundled/examples/…".
    installed = _ENGINE / "stand_ins" / "loops_cookbook" / "bundled" / "examples"
    for candidate in (installed, _ENGINE.parent / "examples"):
        if candidate.is_dir():
            return candidate
    return None


def bundled_path(path: Path) -> Path | None:
    """The bundled file that a relative path such as ``examples/in_process_direct/train.toml`` names, or None."""
    root = examples_dir()
    if (
        root is None
        or path.is_absolute()
        or not path.parts
        or path.parts[0] != "examples"
        or ".." in path.parts
    ):
        return None
    candidate = root.joinpath(*path.parts[1:])
    return candidate if os.path.exists(candidate) else None


def bundled_configs() -> list[Path]:
    """Every bundled config, as absolute paths in order of their names."""
    root = examples_dir()
    return sorted(root.glob("*/*.toml")) if root is not None else []
