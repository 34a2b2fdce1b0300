"""What the README shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.project import load

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text() if (ROOT / "README.md").is_file() else ""

pytestmark = pytest.mark.skipif(not README, reason="the README is not here")


def block(language: str, holding: str) -> str:
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if holding in text]
    assert len(found) == 1
    return found[0]


def test_the_config_and_the_episode_load(tmp_path: Path) -> None:
    [task] = re.findall(r"`(\{.*\})`", README)
    (tmp_path / "ask_episode.py").write_text(block("python", "# ask_episode.py"))
    (tmp_path / "tasks.jsonl").write_text(f"{task}\n")
    (tmp_path / "train.toml").write_text(block("toml", "recipe"))
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    assert project.episode().name == "Ask"
    assert project.tasks()[0].value.answer == "rugby"


def test_the_library_snippet_is_python() -> None:
    compile(
        f"async def main():\n    {block('python', 'project.train()').replace(chr(10), chr(10) + '    ')}",
        "r",
        "exec",
    )


def test_the_commands_exist() -> None:
    from loops_tui.cli import app

    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    named = set(re.findall(r"loops-tui +([a-z]+)\b", README))
    table = README[README.index("| command | does |") : README.index("RUN is a run id")]
    for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE):
        named |= {words.split()[0] for words in re.findall(r"`([a-z][^`]*)`", cell)} - {"loops-tui"}
    assert named - known == set()
    assert known - named == {"open"}  # what `loops-tui DIR` does; hidden


def test_the_keys_exist() -> None:
    from loops_tui.keymap import all_bindings

    bound = {key for binding in all_bindings() for key in binding.keys}
    table = README[README.index("| key | does |") : README.index("## Commands")]
    keys = {
        key
        for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
        for key in re.findall(r"`(\S+)`", cell)
    }
    names = {"/": "slash", "[": "left_square_bracket", "]": "right_square_bracket"}
    assert {key for key in keys if names.get(key, key) not in bound} == set()


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
