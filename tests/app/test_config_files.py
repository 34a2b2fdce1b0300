"""Finding configs and copying examples, within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.config.bundled import bundled_configs
from loops_tui.screens import config_files
from loops_tui.screens.config_buffers import NotSaved, OnDisk, Unopened, open_file, save_file
from loops_tui.screens.config_files import NotCopied, copy_example, find_configs

CONFIG = 'recipe = "rl"\n'


def own(project: Path, **options: bool) -> list[str]:
    return [file.shown for file in find_configs(project, **options).files if not file.bundled]


def write(path: Path, text: str = CONFIG) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_is_a_config_and_what_is_not(tmp_path: Path) -> None:
    write(tmp_path / "a.toml")
    write(tmp_path / "deep" / "er" / "b.toml", "[training]\nmax_steps = 1\n")
    write(tmp_path / "c.json", '{"recipe": "rl"}')
    write(tmp_path / "tool.toml", "[tool.x]\n")
    write(tmp_path / "data.json", "[1, 2]")
    write(tmp_path / "pyproject.toml")
    for hidden in (".venv", "venv", "node_modules", "__pycache__", ".git", ".loops"):
        write(tmp_path / hidden / "x.toml")
    write(tmp_path / "myenv" / "pyvenv.cfg")
    write(tmp_path / "myenv" / "x.toml")
    write(tmp_path / "runs" / "a" / "20261129" / "run.json", '{"recipe": "rl"}')
    write(tmp_path / "runs" / "a" / "20261129" / "config.toml")
    assert own(tmp_path) == ["a.toml", "c.json", "deep/er/b.toml"]
    assert own(tmp_path, everything=True) == ["a.toml", "c.json", "data.json", "tool.toml", "deep/er/b.toml"]
    assert [file.path for file in find_configs(tmp_path).files if file.bundled] == bundled_configs()


def test_links_are_shown_and_not_followed_into_directories(tmp_path: Path) -> None:
    target = write(tmp_path / "real" / "a.toml")
    (tmp_path / "link.toml").symlink_to(target)
    (tmp_path / "dangling.toml").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = {file.shown: file.link for file in find_configs(tmp_path).files if not file.bundled}
    assert found == {"link.toml": str(target), "dangling.toml": "nowhere", "real/a.toml": None}


def test_a_walk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        write(tmp_path / f"d{number % 3}" / f"{number}.toml")
    monkeypatch.setattr(config_files, "MOST_FILES", 10)
    found = find_configs(tmp_path)
    assert found.cut
    assert len([file for file in found.files if not file.bundled]) == 10
    monkeypatch.setattr(config_files, "MOST_ENTRIES", 5)
    assert find_configs(tmp_path).cut
    deep = tmp_path / "/".join("x" * 12)
    write(tmp_path.joinpath(*"abcdefghijkl") / "deep.toml")
    monkeypatch.setattr(config_files, "MOST_ENTRIES", 10_000)
    monkeypatch.setattr(config_files, "MOST_FILES", 500)
    found = find_configs(tmp_path)
    assert found.cut
    assert not any("deep.toml" in file.shown for file in found.files)
    assert not deep.exists()


def test_a_project_that_is_gone(tmp_path: Path) -> None:
    found = find_configs(tmp_path / "gone")
    assert found.trouble is not None
    assert "cannot be read" in found.trouble


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_directory_is_passed_by(tmp_path: Path) -> None:
    write(tmp_path / "shut" / "a.toml")
    (tmp_path / "shut").chmod(0)
    try:
        assert own(tmp_path) == []
    finally:
        (tmp_path / "shut").chmod(0o700)


def test_a_copy_is_whole_and_writable(tmp_path: Path) -> None:
    example = next(
        path for path in bundled_configs() if path.parts[-2:] == ("tool_agent", "train_local.toml")
    )
    config, copied = copy_example(example, tmp_path)
    assert config == tmp_path / "tool_agent" / "train_local.toml"
    assert {"tool_episode.py", "tasks.jsonl", "train_local.toml", "README.md"} <= set(copied)
    assert not any("__pycache__" in name for name in copied)
    assert os.access(config, os.W_OK)
    again, _ = copy_example(example, tmp_path)
    assert again.parent.name == "tool_agent_2"
    (tmp_path / "tool_agent_3").symlink_to("nowhere")
    assert copy_example(example, tmp_path)[0].parent.name == "tool_agent_4"
    with pytest.raises(NotCopied, match="was not copied to"):
        copy_example(tmp_path / "gone" / "a.toml", tmp_path)


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfa = 1\r\nb = 2\r\n", b"a = 1", b"a = 1\n\n", b""])
def test_a_text_goes_back_as_it_came(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(data)
    text, disk = open_file(path)
    assert not text.startswith("\ufeff")
    after = save_file(path, text, disk)
    assert path.read_bytes() == data == after.data
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.toml"]


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "dir.toml").mkdir()
    for name, why in (
        ("pipe.toml", "no regular file"),
        ("dir.toml", "a directory"),
        ("x.toml", "not there any more"),
    ):
        with pytest.raises(Unopened, match=why):
            open_file(tmp_path / name)


def test_a_file_in_the_way_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").write_text("")
    with pytest.raises(NotSaved, match=r"a\.toml was not saved"):
        save_file(tmp_path / "sub" / "a.toml", "x", OnDisk(None, None))
