"""Start a run in a process of its own that outlives the terminal it was started from."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.hosting.errors import HostingError
from engine.hosting.signals import FAILED
from engine.store.schema import prepare_directory

CLAIM_SECONDS = 180.0
"""How long loading, checking (a tokenizer may have to be downloaded) and claiming may take."""

DETACHED = "engine.hosting.detached"
"""The module that the other process runs."""


class DetachFailed(HostingError):
    """The detached process ended before its run had begun; ``status`` is the exit status it asks for."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def detach_run(
    config: Path | str | None,
    overrides: Sequence[str],
    project_dir: Path,
    *,
    resume: str | None = None,
) -> str:
    """Start a detached run, or go on with the run ``resume``, and return its id once it is claimed. Blocks, bounded.

    Raises DetachFailed with the other process's own sentence, StoreError where the project directory is unusable.
    A ctrl+c meanwhile ends the other process too, as a first signal does.
    """
    directory = prepare_directory(project_dir)
    log_path = directory / f"detached-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    report_read, report_write = os.pipe()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    request = {
        "config": None if config is None else str(config),
        "resume": resume,
        "overrides": list(overrides),
        "project_dir": str(project_dir),
        "report_fd": report_write,
    }
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", DETACHED],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=project_dir,
            pass_fds=(report_write,),
            start_new_session=True,  # no terminal of ours may hang it up
        )
    finally:
        os.close(report_write)
        os.close(log)
    try:
        assert process.stdin is not None
        # Through a pipe, not in the arguments: overrides may hold what a process list should not show.
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        said = _read_line(report_read, time.monotonic() + CLAIM_SECONDS)
    except BrokenPipeError:
        said = None
    except KeyboardInterrupt:
        # Whoever takes it back before it is told that the run has begun must not find it running, and billing, later.
        process.terminate()
        raise
    finally:
        os.close(report_read)
    if said is None:
        if process.poll() is None:
            process.terminate()
            raise DetachFailed(
                f"the detached run did not begin within {CLAIM_SECONDS:.0f} s; see {log_path}", FAILED
            )
        raise DetachFailed(f"the detached process ended before its run had begun; see {log_path}", FAILED)
    if "run" not in said:
        raise DetachFailed(str(said["error"]), int(said["status"]))
    return str(said["run"])


def _read_line(descriptor: int, deadline: float) -> dict[str, Any] | None:
    """The child's line, or None where it ends or is silent until the deadline (monotonic)."""
    read = b""
    while b"\n" not in read:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        more = os.read(descriptor, 65536) if ready else b""
        if not more:
            return None
        read += more
    said = json.loads(read.split(b"\n", 1)[0])
    return said if isinstance(said, dict) else None
