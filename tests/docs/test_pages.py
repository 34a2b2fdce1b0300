"""What the documents say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from engine.config import catalog
from engine.project import load
from loops_tui.cli import app
from tests.docs.commands import PAGES
from tools import settings_docs

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))

pytestmark = pytest.mark.skipif(not DOCS, reason="the documents are not here")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_page_of_settings_is_made_from_the_code() -> None:
    told = "run `uv run python -m tools.settings_docs`"
    assert settings_docs.TARGET.read_text() == settings_docs.page(), told


def test_every_page_is_listed_and_links_lead_somewhere() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in DOCS:
        assert page.name == "README.md" or f"({page.name})" in index
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_options_and_settings_that_are_named_are_there(page: Path) -> None:
    text = re.sub(
        r"^ *```(?:python|text|toml)\n.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    recipes = ("rl", "sft")
    keys = {*re.findall(r"--set '?([\w.]+)=", text)}
    keys |= {f"{table}.{key}" for table, key in re.findall(r"`\[([\w.]+)\] (\w+)", text)}
    assert {key for key in keys if not any(catalog.setting(key, recipe) for recipe in recipes)} == set()
    tables = {table.name for recipe in recipes for table in catalog.tables(recipe)}
    assert {*re.findall(r"`\[([\w.]+)\]`", text)} - tables == set()

    text = re.sub(r"uv run python .*", "", text)  # another program's options
    if page.name not in ("benchmarks.md", "building.md"):
        root = typer.main.get_command(app)
        commands = [root, *getattr(root, "commands", {}).values()]
        options = {name for command in commands for option in command.params for name in option.opts}
        assert {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)} - options == set()


def test_the_episode_of_its_page_loads(tmp_path: Path) -> None:
    [episode] = blocks(ROOT / "docs" / "episodes.md", "python")
    (tmp_path / "file_episode.py").write_text(episode)
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "instruction": "?", "files": {}, "check": "true"}\n')
    (tmp_path / "train.toml").write_text(
        'recipe = "rl"\n[runtime.config]\ntasks = "tasks.jsonl"\nepisode = "file_episode:FileEpisode"\n'
        '[runtime.config.sandbox]\n[model]\nbase_model = "loops-demo-1m"\nmax_seq_len = 512\n[training]\n'
        'max_steps = 1\n[sampling]\nmax_tokens = 32\n[compute]\nscope = "local"\n'
    )
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    assert project.episode().name == "FileEpisode"
    assert project.tasks()[0].value.check == "true"
