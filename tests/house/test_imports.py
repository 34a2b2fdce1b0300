"""What a quick start must not wait for is not imported by it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("baseten", "transformers", "renderers", "pyarrow", "wandb", "numpy")


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("engine.config", (*HEAVY, "textual", "httpx", "tomlkit")),
        ("engine.project", (*HEAVY, "textual", "httpx", "tomlkit", "sqlite3")),
        ("loops_tui.cli", (*HEAVY, "textual", "httpx", "pydantic")),
        ("engine.store", (*HEAVY, "textual", "pydantic")),
        # What the first paint shows; the Run screen reads more.
        (
            "loops_tui.app, loops_tui.screens.runs",
            (*HEAVY, "pydantic", "tree_sitter", "engine.recipes", "loops_tui.screens.run_read"),
        ),
    ],
)
def test_an_import_stays_light(module: str, forbidden: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*sorted({set(forbidden)!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
