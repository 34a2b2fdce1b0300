"""A text that is being edited has its problems at their lines, whatever state it is in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.config.linting import Linted, lint
from engine.config.loading import load_config
from engine.config.positions import toml_key_lines
from engine.config.problems import ConfigError
from tests.config.conftest import CONFIG


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    (tmp_path / "tasks.jsonl").write_text("{}\n")
    (tmp_path / "my_episode.py").write_text("")
    return tmp_path / "train.toml"


def found(text: str, path: Path) -> list[tuple[int | None, str]]:
    return [(finding.line, finding.text) for finding in look(text, path).findings]


def look(text: str, path: Path) -> Linted:
    return lint(text, path, working_dir=path.parent)


def test_a_sound_text_has_none(beside: Path) -> None:
    linted = look(CONFIG, beside)
    assert linted.findings == []
    assert linted.settings is not None
    assert linted.scope == "local"
    assert not beside.exists()  # it is the text that counts, not a file


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("group_size", "grup_size", "unknown key 'grup_size' in [training]"),
        ("group_size = 4", "group_size = 1", "at least 2, not 1"),
        ('"tasks.jsonl"', '"task.jsonl"', "there is no tasks file 'task.jsonl'"),
        (
            '"my_episode:MyEpisode"',
            '"my_epsode:MyEpisode"',
            "there is no module 'my_epsode' beside the config",
        ),
        ("max_tokens = 32", "max_tokens = 256", "leaves no room for a prompt"),
        ("loops-demo-1m", "loops-demo-2m", "there is no model 'loops-demo-2m' on this machine"),
        ('scope = "local"', 'scope = "local"\nspot = true', "[compute] spot sizes a dedicated deployment"),
        ("max_steps = 3", "max_steps = ", "this is not TOML"),
    ],
)
def test_a_problem_stands_at_its_line(beside: Path, old: str, new: str, said: str) -> None:
    text = CONFIG.replace(old, new)
    findings = [(line, words) for line, words in found(text, beside) if said in words]
    assert findings, found(text, beside)
    assert findings[0][0] == line_of(text, new) + new.count("\n")


def test_a_doubt_is_a_warning(beside: Path) -> None:
    linted = look(CONFIG.replace("max_steps = 3", "max_steps = 3\nloss_config = { clip = 1 }"), beside)
    assert [finding.severity for finding in linted.findings] == ["warning"]
    assert linted.errors == 0
    assert linted.settings is not None


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "a = " + "[" * 20_000, "a = " + "1" * 5000, 'a = "', "a = '''", "= 1", "\x00", "a = 1\r\nb", "[[a]]\n[a",
        CONFIG.replace('"tasks.jsonl"', '"~nobody-of-that-name/x"'),
        CONFIG.replace('"tasks.jsonl"', '"' + "x" * 5000 + '"'),
        CONFIG.replace('"tasks.jsonl"', '"a\\u0000b"'),
        CONFIG.replace('"loops-demo-1m"', '"' + "x" * 5000 + '"'),
        CONFIG.replace("max_steps = 3", "max_steps = nan"),
    ],
    ids=range(15),
)  # fmt: skip
@pytest.mark.parametrize("name", ["train.toml", "train.json"])
def test_no_text_is_too_broken(beside: Path, text: str, name: str) -> None:
    path = beside.with_name(name)
    assert found(text, path)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 20_000, "a = " + "1" * 5000, "x = '~nobody/y'\n["], ids=range(3)
)
def test_a_load_refuses_the_same_in_sentences(beside: Path, text: str) -> None:
    beside.write_text(text)
    with pytest.raises(ConfigError):
        load_config(beside, working_dir=beside.parent)


def test_a_file_that_is_no_config_is_told_briefly(beside: Path) -> None:
    findings = found("".join(f"k{number} = 1\n" for number in range(5000)), beside)
    assert 100 <= len(findings) <= 110
    assert any("4904 more problems" in text for _, text in findings)


def test_the_environment_stays_as_it_is(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPS_TUI_LINT_TEST", raising=False)
    (beside.parent / ".env").write_text("LOOPS_TUI_LINT_TEST=1\nBASETEN_LOOPS_SCOPE=serverless\n")
    linted = look(CONFIG.replace('[compute]\nscope = "local"\n', ""), beside)
    assert linted.scope == "serverless"
    assert "LOOPS_TUI_LINT_TEST" not in os.environ
    assert "BASETEN_LOOPS_SCOPE" not in os.environ


def test_a_text_counts_instead_of_the_file(beside: Path) -> None:
    beside.write_text("nothing = 1\n")
    loaded = load_config(beside, working_dir=beside.parent, text=CONFIG)
    assert loaded.settings.training.max_steps == 3


def test_the_key_of_a_line() -> None:
    lines = toml_key_lines('a = 1\n\n[t]\nb = [\n  1,\n]\nc = "x\nd = 2\n')
    assert [lines.at(number) for number in range(1, 9)] == ["a", "a", "t", "t.b", "t.b", "t.b", "t.c", "t.d"]
    assert toml_key_lines("").at(1) is None
