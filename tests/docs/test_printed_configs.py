"""The configs, the programs and the library's code that the documents print: each is used as it stands there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.config import catalog
from engine.config.linting import lint
from engine.config.local_models import shipped_models
from engine.store import Store
from engine.store.rows import RunState
from tests.docs.commands import PAGES, ROOT

CONFIGS = [
    (page, text)
    for page in PAGES
    if page.is_file()
    for text in re.findall(r"^ *```toml\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
]
LIBRARY = ROOT / "examples" / "library" / "README.md"


@pytest.mark.parametrize(("page", "text"), CONFIGS, ids=[page.parent.name + page.name for page, _ in CONFIGS])
def test_a_printed_config_is_right(page: Path, text: str, tmp_path: Path) -> None:
    text = inspect.cleandoc(text)
    table = tomllib.loads(text)
    if "recipe" in table:
        for name in ("ask_episode.py", "tasks.jsonl", "train.jsonl", "validation.jsonl"):
            (tmp_path / name).touch()
        linted = lint(text, tmp_path / "train.toml", working_dir=tmp_path, environ={})
        assert [str(finding) for finding in linted.findings] == []
        return
    for key, value in leaves(table):
        setting = catalog.setting(key, "rl") or catalog.setting(key, "sft")
        assert setting is not None, f"{page.name}: there is no key {key}"
        assert value is not None


def leaves(table: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        key = f"{before}{name}"
        if isinstance(value, dict):
            found += leaves(value, f"{key}.")
        else:
            found.append((key, value))
    return found


@pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
@pytest.mark.timeout(300)
def test_the_notebook_and_the_program_beside_it_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook's cell on a loop that runs already, and meanwhile the other program's thread with a loop of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BASETEN_LOOPS_SCOPE", raising=False)
    cell, beside = re.findall(r"```python\n(.*?)```", LIBRARY.read_text(), re.DOTALL)
    assert "await project.train()" in cell
    told: dict[str, Any] = {}

    async def notebook() -> None:
        other: dict[str, Any] = {}
        exec(compile(beside, str(LIBRARY), "exec"), other)  # begins to train in its thread
        cells = compile(cell, str(LIBRARY), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        await eval(cells, told)
        await asyncio.to_thread(other["training"].join, 120)

    asyncio.run(notebook())
    told["project"].close()
    assert (told["outcome"].state, told["outcome"].steps) == (RunState.DONE, 5)
    with Store.open(tmp_path) as store:
        runs = store.reader().runs()
    assert sorted((run.state, run.step) for run in runs) == [(RunState.DONE, 2), (RunState.DONE, 5)]
    assert json.loads((Path(runs[0].run_dir) / "run.json").read_text())
