"""The commands that need only the store, and what every command does with mistakes."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine.config.report import CheckReport, Finding, Severity
from engine.hosting import headless
from engine.hosting.errors import CheckFailed
from engine.project import Project
from engine.recipes.contract import Outcome, RunHandle
from engine.store import Store
from engine.store.rows import AttemptState, CommandState, RunState
from loops_tui.commands import output
from tests.cli.conftest import Call
from tests.hosting.driver import _sound
from tests.hosting.stand_ins import AddressOnly, failing, make_project
from tests.store.conftest import make_attempt, make_host, make_run

RUN = "20261129-143501-k3f9"
SCRIPT = Path(sys.executable).with_name("loops-tui")


@pytest.fixture
def store(project_dir: Path) -> Any:
    with Store.open(project_dir) as opened:
        begun = time.time() - 150
        opened.create_run(
            make_run(project_dir, RUN, step=2, reward_first=0.25, reward_last=0.75, started_at=begun)
        )
        yield opened


def finish(store: Store, state: RunState, error: str | None = None) -> None:
    store.claim(RUN, make_host())
    store.end_run(RUN, "host-1", state, error)


# -- runs --------------------------------------------------------------------------------------------------------


def test_no_runs_yet_and_no_store_made(call: Call, project_dir: Path) -> None:
    said = call("runs", "--json")
    assert (said.status, said.value) == (0, [])
    assert call("watch").status == 2
    assert list(project_dir.iterdir()) == []


def test_runs_as_table_and_json(call: Call, store: Store) -> None:
    finish(store, RunState.FAILED, "the server \x1b[31mdied")
    said = call("runs")
    assert said.status == 0
    header, line = said.out.splitlines()
    assert header.split() == ["RUN", "STATE", "STEP", "REWARD", "ELAPSED", "MODEL", "NAME"]
    assert line.split() == [RUN, "failed", "2/5", "0.750", "2m", "builtin", "demo"]
    (value,) = call("runs", "--json").value
    assert (value["run"], value["status"], value["steps"], value["max_steps"]) == (RUN, "failed", 2, 5)
    assert value["reward"] == {"first": 0.25, "last": 0.75}
    assert value["host"] is None


def test_a_dead_host_s_run_is_listed_as_interrupted(call: Call, store: Store) -> None:
    store.claim(RUN, make_host(pid=2**22 + 1), RunState.RUNNING)
    (value,) = call("runs", "--json").value
    assert value["status"] == "interrupted"
    assert "ended without a word" in value["error"]


# -- watch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (RunState.DONE, 0),
        (RunState.FAILED, 1),
        (RunState.STOPPED, 3),
        (RunState.ABORTED, 3),
        (RunState.INTERRUPTED, 3),
    ],
)
def test_watching_an_ended_run(call: Call, store: Store, state: RunState, status: int) -> None:
    store.recorder(RUN).log("info", "run", "step 2/5: reward 0.750")
    store.recorder(RUN).log("debug", "run", "not for people")
    store.recorder(RUN).log("warning", "episode", "odd\x1b]0;title\x07\nsecond line")
    finish(store, state)
    said = call("watch", RUN[:12])
    assert said.status == status
    assert said.err == ""
    assert "step 2/5: reward 0.750" in said.out
    assert "warning: odd␛]0" in said.out
    assert "second line" in said.out
    assert "\x1b" not in said.out
    assert "not for people" not in said.out
    assert said.out.splitlines()[-1] == f"Run {RUN} is {state}"


def test_watching_a_live_run_to_its_end(call: Call, store: Store) -> None:
    store.claim(RUN, make_host(), RunState.RUNNING)
    recorder = store.recorder(RUN)

    def live() -> None:
        recorder.log("info", "run", "a line while it is watched")
        recorder.flush_blocking()
        store.end_run(RUN, "host-1", RunState.DONE, None)

    ending = threading.Timer(0.1, live)
    ending.start()
    said = call("watch")
    ending.join()
    assert said.status == 0
    assert "a line while it is watched" in said.out


# -- commands to a host --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pause", "resume", "stop", "abort"])
def test_commands_are_answered(call: Call, store: Store, kind: str) -> None:
    store.claim(RUN, make_host(), RunState.RUNNING)
    ended = threading.Event()

    def host() -> None:
        while not ended.is_set():
            for command in store.take_commands(RUN):
                store.answer(command.command_id, CommandState.DONE, f"will {command.kind}")
            time.sleep(0.01)

    answering = threading.Thread(target=host)
    answering.start()
    try:
        said = call(kind, RUN)
        assert (said.status, said.out) == (0, f"{RUN}: will {kind}\n")
        said = call(kind, RUN, "--json")
        assert said.value == {"run": RUN, "command": kind, "state": "done", "answer": f"will {kind}"}
    finally:
        ended.set()
        answering.join()


def test_commands_without_a_host(call: Call, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.claim(RUN, make_host(), RunState.RUNNING)
    monkeypatch.setattr("engine.hosting.requests.request.__kwdefaults__", {"timeout": 0.05})
    said = call("stop", RUN)
    assert said.status == 1
    assert "has not answered yet" in said.err
    store.end_run(RUN, "host-1", RunState.DONE, None)
    said = call("stop", RUN, "--json")
    assert said.status == 1
    assert said.value["error"] == f"run {RUN} has ended already (done); there is nothing to stop"


# -- mistakes ----------------------------------------------------------------------------------------------------


def test_unknown_runs_name_candidates(call: Call, store: Store) -> None:
    said = call("abort", "nobody", "--json")
    assert said.status == 2
    assert RUN in said.value["error"]
    assert said.err.startswith("loops-tui: there is no run 'nobody'")


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_config_that_is_not_there(call: Call, command: str) -> None:
    said = call(command, "missing.toml", "--json")
    assert said.status == 2
    assert "missing.toml" in said.err
    assert "Traceback" not in said.err
    if command == "run":
        assert said.value == {
            "run": None, "status": "failed", "steps": 0, "run_dir": None, "loops_run_id": None,
            "reward": {"first": None, "last": None}, "leases": {"live": 0, "lost": 0}, "error": said.value["error"],
        }  # fmt: skip
    else:
        assert said.value["ok"] is False


def test_a_key_that_is_not_one(call: Call, project_dir: Path) -> None:
    make_project(project_dir).close()
    said = call("run", "direct/train.toml", "--set", "training.group_siz=2")
    assert said.status == 2
    assert "Did you mean 'group_size'" in said.err
    said = call("run", "direct/train.toml", "--set", "nonsense", "--detach")
    assert said.status == 2
    assert "--set section.key=value" in said.err


@pytest.mark.parametrize(
    "arguments", [("bogus",), ("check",), ("runs", "--limit", "0"), ("serve", "--port", "x")]
)
def test_usage_mistakes(call: Call, arguments: tuple[str, ...]) -> None:
    said = call(*arguments)
    assert said.status == 2
    assert "Error: " in said.err
    assert said.out == ""


def test_a_defect_is_one_sentence_and_a_file(
    call: Call, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")

    def defect(*_: Any) -> None:
        raise LookupError("lost very-secret-value")

    monkeypatch.setattr("engine.hosting.prepare.load_project", defect)
    said = call("check", "x.toml", "--json")
    assert said.status == 1
    assert "internal error: LookupError" in said.err
    assert "Traceback" not in said.err
    crash = (project_dir / ".loops" / "crash.log").read_text()
    assert "Traceback" in crash
    assert "very-secret-value" not in crash + said.err + said.out


def test_ctrl_c_where_nothing_runs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.hosting.prepare.load_project", interrupt)
    assert call("check", "x.toml").status == 130


def test_a_full_or_newer_store_is_status_1(call: Call, store: Store, project_dir: Path) -> None:
    store.close()
    import sqlite3

    with sqlite3.connect(project_dir / ".loops" / "loops.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    said = call("runs", "--json")
    assert said.status == 1
    assert "newer loops-tui" in said.value["error"]


# -- the application ---------------------------------------------------------------------------------------------


def test_opening_directories(call: Call, project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    def open_app(directory: Path, **_: Any) -> int:
        opened.append(directory)
        return 0

    monkeypatch.setattr("loops_tui.session.open_app", open_app)
    (project_dir / "sub").mkdir()
    assert call().status == 0
    assert call("sub").status == 0
    assert call("./sub").status == 0
    assert opened == [project_dir, project_dir / "sub", project_dir / "sub"]
    assert call("missing/dir").status == 2
    assert "is no directory" in call("missing/dir").err


def test_the_demo_leaves_the_working_directory_clean(
    call: Call, project_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path | None] = []

    def open_app(directory: Path, *, start: Path | None, **_: Any) -> int:
        started.append(start)
        return 0

    monkeypatch.setattr("loops_tui.session.open_app", open_app)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
    said = call("demo")
    assert (said.status, started) == (2, [])
    assert said.err == "loops-tui: this is no terminal; use `loops-tui demo --headless` here\n"
    monkeypatch.setattr("loops_tui.terminal.is_terminal", lambda: True)
    assert call("demo").status == 0
    (config,) = started
    assert config is not None
    assert config.is_file()
    config.write_text(config.read_text() + "# mine\n")
    said = call("demo")
    assert config.read_text().endswith("# mine\n")
    assert f"loops-tui {config.parent.parent}" in said.err
    assert list(project_dir.iterdir()) == []


@pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script")
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['loops-tui', '--help']\n"
        "from loops_tui.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'transformers', 'baseten', 'numpy', 'textual', 'pydantic', 'httpx', 'sqlite3', 'engine'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"
    for command in ("demo", "check", "run", "watch", "runs", "pause", "resume", "stop", "abort", "serve"):
        assert f"\n  {command} " in done.stdout


def test_a_reader_that_leaves_is_no_error(project_dir: Path, store: Store) -> None:
    for number in range(200):
        store.recorder(RUN, files=False).attempt(make_attempt(RUN, 0, number, AttemptState.DONE))
    done = subprocess.run(
        f"{SCRIPT} runs --json | true", shell=True, cwd=project_dir, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.stderr == ""


def test_a_command_prints_one_json_value(capsys: pytest.CaptureFixture[str]) -> None:
    out = output.Output(as_json=True)
    out.value(1)
    with pytest.raises(RuntimeError):
        out.value(2)
    assert capsys.readouterr().out == "1\n"


def test_what_others_print_is_not_on_standard_output_with_json(project_dir: Path) -> None:
    (project_dir / "speaks.py").write_text(_SPEAKS)
    done = subprocess.run(
        [sys.executable, "speaks.py"],
        cwd=project_dir,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == '{"a": 1}\n'
    assert sorted(done.stderr.split()) == ["child", "descriptor", "old", "printed"]
    assert done.returncode == 5


_SPEAKS = """
import os, subprocess, sys
from sys import stdout
from loops_tui.commands.output import Output, carry_out
out = Output(as_json=True)

def work():
    print("printed", flush=True)
    stdout.write("old\\n")
    os.write(1, b"descriptor\\n")
    subprocess.run(["echo", "child"], check=True)
    out.value({"a": 1})
    return 5

sys.exit(carry_out(out, work))
"""


def test_code_that_calls_exit_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def leave() -> int:
        raise SystemExit(0)

    assert output.carry_out(output.Output(as_json=True), leave) == output.FAILED
    said = capsys.readouterr()
    assert said.err == "loops-tui: the config's own code called sys.exit(0)\n"
    assert json.loads(said.out) == {"error": "the config's own code called sys.exit(0)"}


def test_a_run_that_fails_says_why_once(
    call: Call, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(project_dir).close()
    monkeypatch.setattr(headless, "require_sound", _sound)
    monkeypatch.setattr(headless, "LocalServer", AddressOnly)
    monkeypatch.setattr(headless, "run_headless", functools.partial(headless.run_headless, train=_fail_late))
    said = call("run", "direct/train.toml")
    assert said.status == 1
    assert said.err.startswith("Checking direct/train.toml …\n")
    assert said.err.count("the trainer refused the batch") == 1
    assert "Reward" not in said.err


async def _fail_late(project: Project, handle: RunHandle) -> Outcome:
    handle.recorder.run(reward_first=0.0, reward_last=0.0)
    return await failing(project, handle)


def test_a_refused_run_says_error_once(
    call: Call, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(project_dir).close()

    async def refuse(*_: Any) -> None:
        raise CheckFailed(CheckReport([Finding(Severity.ERROR, None, None, "the tokenizer is missing")]))

    monkeypatch.setattr(headless, "require_sound", refuse)
    monkeypatch.setattr(headless, "LocalServer", AddressOnly)
    said = call("run", "direct/train.toml")
    assert said.status == 2
    assert said.err.splitlines()[-1] == "loops-tui: the tokenizer is missing."
