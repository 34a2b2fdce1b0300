"""One project for all commands of the documents: a finished run, the local server, a Loops service, sandboxes' cloud."""

from __future__ import annotations

import asyncio
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.hosting.detach import detach_run
from engine.hosting.headless import run_headless
from engine.hosting.local_server import LocalServer
from engine.store import Store
from engine.store.rows import FINAL_STATES, RunRow, RunState
from loops_tui import cli
from tests.blaxel_emulator.serving import EmulatorProcess
from tests.cli.conftest import Said

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/in_process_direct/train.toml"
#: What examples on Baseten train; the service of these tests offers the shipped model under that name.
MODEL = "Qwen/Qwen3.5-4B"
SMALL = (
    "training.max_steps=1",
    "training.group_size=8",
    "output.checkpoint_every=1",
    f"eval.tasks={ROOT / 'examples/in_process_direct/tasks.jsonl'}",
    "eval.at_start=false",
    "eval.at_end=false",
)
START_SECONDS = 90.0


@dataclass
class Documented:
    """The project's directory and ``run_id`` of a run in it that has ended; services start when they are needed."""

    directory: Path
    run_id: str
    services: ExitStack
    _remote: dict[str, str] = field(default_factory=dict)
    _sandboxes: dict[str, str] = field(default_factory=dict)

    def remote(self) -> dict[str, str]:
        """Variables that lead to a Loops service elsewhere: ``loops-tui serve``."""
        if not self._remote:
            command = [sys.executable, "-m", "loops_tui", "serve", "--json", "--dir", "remote"]
            command += ["--model", f"{MODEL}={shipped_models()['loops-demo-1m']}"]
            server = subprocess.Popen(
                command, cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self.services.callback(server.wait, START_SECONDS)
            self.services.callback(server.send_signal, signal.SIGTERM)
            assert server.stdout is not None
            assert select.select([server.stdout], [], [], START_SECONDS)[0], "it does not serve"
            said = json.loads(server.stdout.readline())
            self._remote = {"LOOPS_BASE_URL": said["url"], "BASETEN_API_KEY": said["key"]}
        return self._remote

    def sandboxes(self) -> dict[str, str]:
        """Variables that lead to sandboxes elsewhere: the Blaxel emulator."""
        if shutil.which("bwrap") is None:
            pytest.skip("no bubblewrap here, which the emulator's sandboxes need")
        if not self._sandboxes:
            emulator = EmulatorProcess(self.directory / "emulator.log")
            self._sandboxes = self.services.enter_context(emulator).environment()
        return self._sandboxes

    def row(self, run_id: str | None = None) -> RunRow:
        with Store.open(self.directory) as store:
            return store.reader().run(run_id or self.run_id)

    def live(self) -> str:
        """A run that is going on in a process of its own."""
        with Store.open(self.directory) as store:
            going = self._going(store)
        if going:
            return going[0].run_id
        # It ends by itself before long, should whoever runs the tests be killed.
        endless = ("training.max_steps=100000", "training.max_consecutive_unusable_groups=100000")
        return detach_run(EXAMPLE, (*SMALL, *endless, "budget.max_hours=0.1"), self.directory)

    def close(self) -> None:
        """End what is going on, and the services; none of it outlives the tests."""
        with Store.open(self.directory) as store:
            for run in self._going(store):
                store.request(run.run_id, "abort")
            deadline = time.monotonic() + START_SECONDS
            while self._going(store) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert self._going(store) == []
        self.services.close()

    @staticmethod
    def _going(store: Store) -> list[RunRow]:
        return store.reader().runs(states=[state for state in RunState if state not in FINAL_STATES])


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documented]:
    if not shipped_models():
        pytest.skip("the shipped model is not here")
    directory = tmp_path_factory.mktemp("documented")
    server = LocalServer(directory)
    server.start()  # held for all commands, so that it starts once
    end = asyncio.run(run_headless(EXAMPLE, SMALL, directory))
    assert end.run is not None
    assert end.status == 0, end.run.error
    project = Documented(directory, end.run.run_id, ExitStack())
    yield project
    project.close()
    server.close()


@dataclass
class Desk:
    """Calls the command line in this process, in the project's directory."""

    project: Documented
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def run_id(self) -> str:
        return self.project.run_id

    def __call__(self, *arguments: str, environ: Mapping[str, str] | None = None, typed: str = "") -> Said:
        """``typed`` is standard input."""
        self.capsys.readouterr()
        with self.monkeypatch.context() as patch:
            for name, value in (environ or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["loops-tui", *arguments])
            patch.setattr(sys, "stdin", io.StringIO(typed))
            with pytest.raises(SystemExit) as ended:
                cli.main()
        said = self.capsys.readouterr()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, said.out, said.err)

    def succeeds(
        self, *arguments: str, environ: Mapping[str, str] | None = None, typed: str = "", status: int = 0
    ) -> Said:
        said = self(*arguments, environ=environ, typed=typed)
        assert said.status == status, f"{arguments}: {said.err}"
        return said


@pytest.fixture
def desk(documented: Documented, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.chdir(documented.directory)
    for name in list(os.environ):
        if name.startswith(("BASETEN_", "LOOPS_", "BL_")):
            monkeypatch.delenv(name)
    return Desk(documented, monkeypatch, capsys)
