"""The server as a process: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local_loops.server_process import END_SECONDS, KEY, REPOSITORY, DidNotStart, ServerProcess


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, tiny_model: Path, number: int) -> None:
    server = ServerProcess(tmp_path / "state", {"tiny": tiny_model}).start()
    assert server.url.startswith("http://127.0.0.1:")
    assert server.stop(number) == 0
    log = server.log_path.read_text() + (tmp_path / "state" / "server.log").read_text()
    assert KEY not in log
    assert "Traceback" not in log


def test_it_ends_with_its_host(tmp_path: Path, tiny_model: Path) -> None:
    server = ServerProcess(tmp_path / "state", {"tiny": tiny_model}, options=("--exit-with-stdin",)).start()
    assert server.close_stdin() == 0


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    with ServerProcess(tmp_path / "state", {"tiny": tiny_model}) as first:
        assert first.process is not None
        with pytest.raises(DidNotStart) as refused:
            ServerProcess(tmp_path / "state", {"tiny": tiny_model}).start()
    assert refused.value.status == 1
    assert f"is in use by another server (process {first.process.pid})" in refused.value.stderr


def test_a_taken_port_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DidNotStart) as refused:
            ServerProcess(tmp_path / "state", {"tiny": tiny_model}, port=port).start()
    assert refused.value.status == 1
    assert refused.value.stderr.strip().endswith(f"cannot listen on 127.0.0.1:{port}: Address already in use")


def test_a_state_directory_that_cannot_be_made_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    server = ServerProcess(tmp_path / "file" / "state", {"tiny": tiny_model})
    ended = subprocess.run(
        server.command, cwd=REPOSITORY, env={"LOCAL_LOOPS_TEST_KEY": KEY}, capture_output=True, text=True,
        timeout=END_SECONDS, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "is not writable: Not a directory" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "m=/no/such/dir"], "model directory /no/such/dir does not exist"),
        (["--model", "m=~nobody-there/model"], "~nobody-there/model does not exist"),
        (["--model", "nonsense"], "--model takes NAME=DIR"),
        (["--port", "70000"], "--port must be from 0 to 65535"),
        (["--key-env", "NO_SUCH_VARIABLE_HERE"], "NO_SUCH_VARIABLE_HERE (--key-env) is not set"),
    ],
)
def test_arguments_that_cannot_be_right(
    tmp_path: Path, tiny_model: Path, arguments: list[str], sentence: str
) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "engine.local_loops",
            "--dir",
            str(tmp_path),
            f"--model=t={tiny_model}",
            *arguments,
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
