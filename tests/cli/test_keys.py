"""``keys``, and the environment that lets commands only look on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Call


@pytest.fixture
def config_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    (home / "loops-tui").mkdir()
    return home / "loops-tui"


def test_every_key_with_its_id(call: Call, config_home: Path) -> None:
    (config_home / "keymap.toml").write_text('run.stop = "Z"\n')
    value = call("keys", "--json").value
    assert value["keymap"] == str(config_home / "keymap.toml")
    assert value["problems"] == []
    rows = {row["id"]: row for row in value["bindings"]}
    assert rows["run.stop"]["keys"] == ["Z"]
    assert rows["run.stop"]["default"] == ["s"]
    assert rows["app.quit"]["keys"] == ["q"]
    assert all(row["meaning"] and row["keys"] for row in rows.values())
    said = call("keys")
    assert (said.status, "run.stop" in said.out, "as it comes: s" in said.out) == (0, True, True)
    assert str(config_home / "keymap.toml") in said.err


def test_problems_of_the_keymap(call: Call, config_home: Path) -> None:
    (config_home / "keymap.toml").write_text('run.stp = "Z"\n')
    said = call("keys", "--json")
    assert said.status == 2
    assert said.value["problems"] == ["keymap.toml: there is no binding 'run.stp', did you mean run.stop?"]


def test_commands_that_change_something_are_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPS_TUI_READONLY", "1")
    for words in (["stop", "x"], ["cleanup"], ["run", "train.toml"], ["demo", "--headless"]):
        said = call(*words)
        assert said.status == 2
        assert (
            said.err
            == f"loops-tui: LOOPS_TUI_READONLY is set, and `{words[0]}` may change something; unset it to go on\n"
        )
    assert call("runs").status == 0
    assert call("keys").status == 0


def test_switches_of_the_application_are_not_for_commands(call: Call) -> None:
    said = call("--readonly", "runs")
    assert said.status == 2
    assert "are for the application" in said.err
