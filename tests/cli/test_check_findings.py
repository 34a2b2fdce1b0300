"""What ``check`` tells a script and a person where it cannot go on: every finding with key, line, file and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.store import Store
from tests.cli.conftest import Call
from tests.project.conftest import CONFIG
from tests.project.test_broken_inputs import write_project

KEYS = {"severity", "key", "line", "text", "remedy", "file"}


def test_a_config_that_cannot_be_loaded_has_findings_with_their_places(call: Call, project_dir: Path) -> None:
    write_project(project_dir)
    text = CONFIG.replace("max_steps = 3", "max_step = 3").replace("group_size = 4", "group_size = 1")
    (project_dir / "train.toml").write_text(text)
    said = call("check", "train.toml", "--json")
    assert said.status == 2
    assert said.value.keys() == {"config", "ok", "findings", "lines", "estimate"}
    assert said.value["config"] == str(project_dir / "train.toml")  # as of one that can be loaded
    assert said.value["ok"] is False
    findings = said.value["findings"]
    assert all(finding.keys() == KEYS for finding in findings)
    assert [(one["key"], one["line"]) for one in findings] == [
        ("training.group_size", 9),
        ("training.max_step", 10),
    ]
    assert findings[1]["remedy"] == "Did you mean 'max_steps'?"
    assert {one["file"] for one in findings} == {str(project_dir / "train.toml")}
    assert "train.toml:10: unknown key" in said.err


def test_an_override_that_is_wrong_is_a_finding_of_the_same_form(call: Call, project_dir: Path) -> None:
    write_project(project_dir)
    said = call("check", "train.toml", "--json", "--set", "training.max_steps=many")
    [finding] = said.value["findings"]
    assert finding.keys() == KEYS
    assert finding["key"] == "training.max_steps"
    assert finding["text"].startswith("override training.max_steps: ")


@pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
def test_what_differs_from_the_check_before_is_told(call: Call, project_dir: Path) -> None:
    write_project(project_dir)
    first = call("check", "train.toml")
    again = call("check", "train.toml")
    assert "Since the check before" not in first.err + again.err
    changed = call("check", "train.toml", "--set", "training.loss=ppo", "--set", "sampling.top_p=0.9")
    told = changed.err[changed.err.index("Since the check before:") :].splitlines()
    assert told[1:3] == ["  - Loss: cispo", "  + Loss: ppo"]
    assert told[3].startswith("  + warning: override sampling.top_p: [sampling] top_p = 0.9 biases")
    assert told[4:] == ["The check found no error, and 1 warning."]

    (project_dir / "train.toml").write_text(CONFIG.replace("max_steps = 3", "max_step = 3"))
    assert call("check", "train.toml").status == 2
    with Store.open(project_dir) as store:
        refused = store.reader().checks(str(project_dir / "train.toml"), 1)[0]
    assert refused.lines == ["Not ready: the config cannot be loaded; nothing else was looked at."]
    (project_dir / "train.toml").write_text(CONFIG)
    mended = call("check", "train.toml").err
    told = mended[mended.index("Since the check before:") :].splitlines()
    assert told[1].startswith("  - error: unknown key 'max_step' in [training]")
    assert told[2:] == ["The check found nothing wrong."]  # no line of the report is new: it had none


def test_a_config_that_is_not_there_leaves_no_store(call: Call, project_dir: Path) -> None:
    assert call("check", "trian.toml").status == 2
    assert not Store.exists(project_dir)


def test_a_refused_config_is_told_where_its_report_cannot_be_stored(call: Call, project_dir: Path) -> None:
    write_project(project_dir)
    (project_dir / "train.toml").write_text(CONFIG.replace("max_steps = 3", "max_step = 3"))
    (project_dir / ".loops").touch()
    said = call("check", "train.toml")
    assert said.status == 2
    assert "unknown key 'max_step' in [training]" in said.err
    assert "This report is not stored: " in said.err


@pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
@pytest.mark.parametrize("damage", ["a file for .loops", "a store that is none"])
def test_a_store_that_cannot_be_written_does_not_cost_the_report(
    call: Call, project_dir: Path, damage: str
) -> None:
    write_project(project_dir)
    if damage == "a file for .loops":
        (project_dir / ".loops").touch()
    else:
        (project_dir / ".loops").mkdir()
        (project_dir / ".loops" / "loops.db").write_bytes(b"no database at all" * 300)
    said = call("check", "train.toml", "--json")
    assert said.status == 2
    errors = [finding for finding in said.value["findings"] if finding["severity"] == "error"]
    assert len(errors) == 1
    assert "store" in errors[0]["text"]
    assert errors[0]["remedy"]
    assert said.value["lines"][-1] == "Not ready: 1 error; no sandbox or Loops trainer launched."
    assert said.value["estimate"] is not None  # all the rest was looked at, and is told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "~nobody-of-this-name/train.toml"), "no such file"),
        (("run", "~nobody-of-this-name/train.toml"), "no such file"),
        (("check", "b\udcff.toml"), "not UTF-8"),
        (("run", "b\udcff.toml"), "not UTF-8"),
        (("cleanup", "~nobody-of-this-name/train.toml"), "no such file"),
        (("open", "~nobody-of-this-name/x"), "no directory"),
    ],
    ids=ascii,
)
def test_a_path_that_nobody_has_is_one_sentence(
    call: Call, project_dir: Path, arguments: tuple[str, ...], said: str
) -> None:
    write_project(project_dir)
    Store.open(project_dir).close()
    (project_dir / "b\udcff.toml").write_text(CONFIG)
    answer = call(*arguments)
    assert answer.status == 2
    assert said in answer.err
    assert "internal error" not in answer.err
    assert not (project_dir / ".loops" / "crash.log").exists()


def test_a_working_directory_that_is_gone_is_one_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    said = call("check", "train.toml", "--json")
    assert said.status == 2
    assert "the working directory does not exist any more" in said.err
    assert said.value["ok"] is False
    assert said.value["findings"][0].keys() == KEYS


@pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
def test_warnings_are_counted_in_the_last_line(call: Call, project_dir: Path) -> None:
    write_project(project_dir)
    said = call("check", "train.toml", "--set", "sampling.temperature=0.5")
    assert said.status == 0
    assert said.err.splitlines()[-1] == "The check found no error, and 1 warning."
