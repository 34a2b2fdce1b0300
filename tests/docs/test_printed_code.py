"""The code that the documents print does what they say."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from textwrap import indent

import pytest

from tests.docs.commands import PAGES, ROOT
from tests.docs.conftest import Desk
from tests.docs.test_pages import blocks
from tests.sandboxes.conftest import needs_bubblewrap

CONFIG = """\
recipe = "rl"
[runtime.config]
tasks = "tasks.jsonl"
episode = "file_episode:FileEpisode"
[runtime.config.sandbox]
memory_mb = 256
[model]
base_model = "loops-demo-1m"
max_seq_len = 768
[training]
max_steps = 1
[sampling]
max_tokens = 80
[compute]
scope = "local"
"""
PRINTED = [(page, text) for page in PAGES if page.is_file() for text in blocks(page, "python")]


@needs_bubblewrap
@pytest.mark.timeout(300)
def test_the_episode_of_its_page_solves_a_task(desk: Desk) -> None:
    """With the shipped model, a real sandbox, and no chance in it."""
    [episode] = blocks(ROOT / "docs" / "episodes.md", "python")
    place = desk.project.directory / "files"
    place.mkdir()
    tasks = (ROOT / "examples" / "tool_agent" / "tasks.jsonl").read_text().splitlines()
    [port] = [task for task in map(json.loads, tasks) if task["id"] == "port"]
    (place / "file_episode.py").write_text(episode)
    (place / "tasks.jsonl").write_text(json.dumps(port))
    (place / "train.toml").write_text(CONFIG)
    said = desk("try", "--base", "files/train.toml", "--task", "0", "--temperature", "0", "--json")
    assert said.status == 0, said.err
    assert (said.value["reward"], said.value["ending"]) == (1.0, "completed")
    assert [turn["content"] for turn in said.value["turns"] if turn["role"] == "tool"][-1] == "exit code 0"


@pytest.mark.timeout(300)
def test_the_files_of_the_readme_train_and_it_says_where_everything_goes(desk: Desk) -> None:
    """The task is neither always nor never solved: a group of the first twenty teaches something."""
    readme = (ROOT / "README.md").read_text()
    place = desk.project.directory / "mine"
    place.mkdir()
    [config] = [text for text in blocks(ROOT / "README.md", "toml") if "recipe" in text]
    [episode] = [text for text in blocks(ROOT / "README.md", "python") if "# ask_episode.py" in text]
    (place / "train.toml").write_text(config)
    (place / "ask_episode.py").write_text(episode)
    (place / "tasks.jsonl").write_text(re.findall(r"`(\{.*\})`", readme)[0])
    value = desk.succeeds("run", "mine/train.toml", "--set", "training.max_steps=1", "--json").value
    assert (value["status"], value["steps"]) == ("done", 1)

    table = readme[readme.index("## Where data goes") : readme.index("## Troubleshooting")]
    told = [name.removeprefix(".loops/").rstrip("/") for name in re.findall(r"`([^`]+)`", table)]

    def untold(directory: Path) -> list[str]:
        names = [re.sub(r"-(wal|shm)$", "", path.name) for path in directory.iterdir()]
        return [name for name in names if not any(fnmatch(name, one.split("/")[0]) for one in told)]

    assert untold(place.parent / ".loops") == [".gitignore"]
    assert untold(Path(value["run_dir"])) == []


@pytest.mark.parametrize(("page", "text"), PRINTED, ids=[page.name for page, _ in PRINTED])
def test_what_is_printed_is_python(page: object, text: str) -> None:
    text = text.replace("…", "...")  # what is left to the reader
    compile(f"async def printed():\n{indent(text, '    ')}", str(page), "exec")
