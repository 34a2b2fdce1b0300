"""The real server process, started and ended by tests."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 90.0
END_SECONDS = 60.0
KEY = "test-key-5d8f"


class DidNotStart(Exception):
    """The process ended, or said nothing, before it served."""

    def __init__(self, status: int | None, stderr: str) -> None:
        super().__init__(f"exit status {status}: {stderr}")
        self.status = status
        self.stderr = stderr


@dataclass
class ServerProcess:
    """``python -m engine.local_loops`` on a state directory."""

    state: Path
    models: dict[str, Path] = field(default_factory=dict)
    port: int = 0
    options: tuple[str, ...] = ()
    url: str = ""
    key: str = KEY
    model: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        models = [part for name, path in self.models.items() for part in ("--model", f"{name}={path}")]
        return [
            *(sys.executable, "-m", "engine.local_loops", "--dir", str(self.state), "--port", str(self.port)),
            *("--key-env", "LOCAL_LOOPS_TEST_KEY"),
            *models,
            *self.options,
        ]

    @property
    def log_path(self) -> Path:
        return self.state.parent / f"{self.state.name}.stderr"

    def start(self) -> Self:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=REPOSITORY,
                env={**os.environ, "LOCAL_LOOPS_TEST_KEY": self.key},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            status = self.process.wait(END_SECONDS) if ready else None
            self.kill()
            raise DidNotStart(status, self.log_path.read_text())
        told = json.loads(line)
        self.url, self.model = told["url"], told["model"]
        assert told["key"] == self.key
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask for the end; returns the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self._wait()

    def close_stdin(self) -> int:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._wait()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self._wait()

    def _wait(self) -> int:
        assert self.process is not None
        status = self.process.wait(END_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def client(self, **options: Any) -> httpx.Client:
        """A plain HTTP client with the key."""
        headers = {"Authorization": f"Api-Key {self.key}", **options.pop("headers", {})}
        return httpx.Client(base_url=self.url, headers=headers, timeout=90.0, **options)

    def stats(self) -> dict[str, Any]:
        with self.client() as client:
            return client.get("/debug/stats").json()

    def environment(self) -> dict[str, str]:
        """What a script needs to reach this server with the SDK."""
        return {
            **os.environ,
            "LOOPS_BASE_URL": self.url,
            "BASETEN_API_KEY": self.key,
            "NO_PROXY": "127.0.0.1,localhost",
            "HF_HUB_OFFLINE": "1",
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
