"""The process of a detached run: ``python -m engine.hosting.detached``, started by ``engine.hosting.detach``.

Reads one JSON object from standard input (``config`` or ``resume``, ``overrides``, ``project_dir``, ``report_fd``) and
writes one line of JSON to the report descriptor: ``{"run": id}`` once the run is claimed, or
``{"error": …, "status": n}``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.config.problems import ConfigError
from engine.hosting.errors import HostingError, in_what_was_given
from engine.hosting.headless import run_headless
from engine.hosting.host import write_crash
from engine.hosting.signals import BAD_INPUT, FAILED
from engine.store.errors import StoreError
from engine.store.redact import Redactor


class Report:
    """The one line for the process that started this one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def send(self, **line: Any) -> None:
        """Send the line; only the first counts. A parent that has gone meanwhile does not matter."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(BrokenPipeError):
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        os.close(descriptor)


def main() -> int:
    request = json.loads(sys.stdin.read())
    report = Report(int(request["report_fd"]))
    project_dir = Path(request["project_dir"])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        end = asyncio.run(
            run_headless(
                request["config"],
                request["overrides"],
                project_dir,
                kind="detached",
                resume=request["resume"],
                told=lambda text: print(text, flush=True),
                claimed=lambda run_id: report.send(run=run_id),
            )
        )
    except (ConfigError, HostingError, StoreError) as error:
        status = BAD_INPUT if in_what_was_given(error) else FAILED
        report.send(error=str(error), status=status)
        return status
    except Exception as error:  # noqa: BLE001 - the parent is told, and the traceback is kept
        clean = Redactor.from_environment(os.environ).text
        path = write_crash(project_dir, clean, error)
        report.send(error=f"internal error: {clean(str(error))} (details in {path})", status=FAILED)
        return FAILED
    report.send(error="it was told to end before the run had begun", status=end.status)
    return end.status


if __name__ == "__main__":
    sys.exit(main())
