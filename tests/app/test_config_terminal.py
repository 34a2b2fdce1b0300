"""The Config screen on a real terminal: typing, a process that is killed, and what is there afterwards."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from engine.config.bundled import examples_dir
from tests.terminal.session import ALT_SCREEN_OFF, Session


@pytest.fixture
def project(tmp_path: Path) -> Path:
    examples = examples_dir()
    assert examples is not None
    root = tmp_path / "fresh"
    shutil.copytree(
        examples / "in_process_direct",
        root / "agents",
        ignore=shutil.ignore_patterns("__pycache__", "*baseten*"),
    )
    return root


def edit(session: Session, first: str = "agents/train.toml") -> None:
    session.until("No runs yet")
    session.press(b"2")
    session.until(first)  # the first config opens by itself
    session.until_quiet(0.5)
    session.press(b"\r")
    session.until("f1")


def drafts(project: Path) -> list[str]:
    return [json.loads(file.read_text())["text"] for file in (project / ".loops" / "drafts").glob("*.json")]


def wait_for_draft(session: Session, project: Path, begins: str) -> None:
    deadline = time.monotonic() + 60
    while not any(text.startswith(begins) for text in drafts(project)):
        session.read(0.1)
        assert time.monotonic() < deadline, drafts(project)


def test_what_was_typed_survives_a_kill(project: Path) -> None:
    config = project / "agents" / "train.toml"
    before = config.read_text()
    with Session(project) as session:
        edit(session)
        session.press(b"# typed")
        session.until("not saved")
        wait_for_draft(session, project, "# typed#")
        session.signal(signal.SIGKILL)
        session.process.wait(120)
    assert config.read_text() == before
    with Session(project) as session:
        session.until("Not saved last time")
        session.press(b"2")
        session.until("Restored what was typed")
        session.press(b"\x13")  # ctrl+s
        session.until("is saved")
        session.until_quiet(0.5)
        session.press(b"q")
        assert session.end() == 0
        session.assert_restored()
    assert config.read_text() == "# typed" + before
    assert drafts(project) == []


def test_an_idle_editor_sends_nothing(project: Path) -> None:
    with Session(project) as session:
        edit(session)
        session.until_quiet(2.5)
        before = len(session.out)
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            session.read(0.5)
        assert len(session.out) - before == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_it_as_well(project: Path, number: signal.Signals) -> None:
    with Session(project, size=(80, 24)) as session:
        edit(session)
        session.press(b"# typed")
        session.until("# typed#")  # a signal does not wait for the keys that are still to be read
        session.signal(number)
        session.end()
        session.assert_restored()
        assert b"Traceback" not in session.out[session.out.rindex(ALT_SCREEN_OFF) :]
    assert [text[:7] for text in drafts(project)] == ["# typed"]


@pytest.mark.parametrize(
    ("answer", "kept", "saved"), [(b"k", ["# typed"], False), (b"s", [], True), (b"x", [], False)]
)
def test_leaving_asks_what_becomes_of_it(project: Path, answer: bytes, kept: list[str], saved: bool) -> None:
    config = project / "agents" / "train.toml"
    before = config.read_text()
    with Session(project, size=(80, 24)) as session:
        edit(session)
        session.press(b"# typed")
        session.until("not saved")
        session.press(b"\x11")  # ctrl+q: a q would be typed
        session.until("1 config is not saved")
        session.press(answer)
        assert session.end() == 0
        session.assert_restored()
    assert [text[:7] for text in drafts(project)] == kept
    assert config.read_text() == ("# typed" if saved else "") + before


def test_a_config_s_name_and_text_send_no_sequence_of_their_own(project: Path) -> None:
    evil = "\x1b]52;c;RVZJTA==\x07\x1b[6n\x9b31m\u202e[bold]"
    text = (project / "agents" / "train.toml").read_text()
    (project / "agents" / f"aa{evil}.toml").write_text(f"# {evil}\n{text}", encoding="utf-8")
    with Session(project) as session:
        edit(session, "aa␛]52…")
        session.press(b"# typed")
        session.until("not saved")
        session.press(b"\x11")
        session.until("1 config is not saved")
        session.press(b"k")
        assert session.end() == 0
        for sequence in (b"\x1b]52", b"\x1b[6n", b"\xc2\x9b", "\u202e".encode()):
            assert sequence not in session.out
    assert len(drafts(project)) == 1
