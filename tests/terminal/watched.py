"""A project with a run that trains for hours, the terminals it is watched from, and a look into its store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from engine.config.bundled import examples_dir
from engine.store.processes import same_process
from engine.store.rows import HostRow, RunRow
from engine.store.store import Store
from tests.terminal.session import Session

WAIT_SECONDS = 90.0  # a bound, not a measure


class Watched:
    """A project in ``path`` with an example that trains for hours. ``close`` ends what still runs there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        examples = examples_dir()
        assert examples is not None
        shutil.copytree(examples / "in_process_direct", path / "in_process_direct")
        config = path / "in_process_direct" / "train.toml"
        config.write_text(config.read_text().replace("max_steps = 16", "max_steps = 5000"))
        self.config = config
        self._store = Store.open(path)
        self._reader = self._store.reader()

    @property
    def run(self) -> RunRow:
        runs = self._reader.runs()
        assert len(runs) <= 1, "one run, wherever it lives"
        return runs[0]

    @property
    def host(self) -> HostRow:
        host = self._reader.host(self.run.host_id)
        assert host is not None
        return host

    def until(self, true: Callable[[], bool], what: str, *sessions: Session) -> None:
        """Wait until the store says so; terminals are read meanwhile, so that nobody waits to write."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not true():
            for session in sessions:
                session.read(0.05)
            if not sessions:
                time.sleep(0.05)
            shown = bytes(sessions[0].out[-1500:]) if sessions else b""
            assert time.monotonic() < deadline, f"never came true: {what}; {self._reader.runs()} {shown!r}"

    def until_steps(self, number: int, *sessions: Session) -> None:
        self.until(
            lambda: bool(self._reader.runs()) and self.run.step >= number, f"{number} steps", *sessions
        )

    def close(self) -> None:
        """End whatever still runs here."""
        for run in self._reader.runs():
            host = self._reader.host(run.host_id)
            if run.state.final or host is None or not same_process(host.pid, host.pid_started):
                continue
            self._store.request(run.run_id, "abort")
            self.until(lambda run_id=run.run_id: self._reader.run(run_id).state.final, "it is aborted")
        self._store.close()


def hosting_app(project: Watched, **environ: str) -> Session:
    """The program with the run in it."""
    arguments = ["-m", "loops_tui", "demo", "--dir", str(project.path)]
    return Session(project.path, arguments=arguments, environ=environ)


def app(project: Watched, *switches: str) -> Session:
    """The program, opened on the project by somebody else."""
    return Session(project.path, arguments=["-m", "loops_tui", *switches])
