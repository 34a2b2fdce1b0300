"""``serve``: the local Loops server alone, for programs that speak to Loops themselves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from loops_tui.commands.output import FAILED, Output

STOP_SECONDS = 15.0


def serve(port: int, directory: Path | None, models: Sequence[str], out: Output) -> int:
    """Serve until a signal; the address is printed at once."""
    from engine.store.schema import prepare_directory

    if directory is None:
        # Not the directory of the runs' own server: this one must be free to come and go.
        directory = prepare_directory(Path.cwd()) / "serve"
    command = [sys.executable, "-m", "engine.local_loops", "--dir", str(directory), "--port", str(port)]
    for model in models:
        command += ["--model", model]
    received: list[int] = []
    # Its own session: a ctrl+c reaches us alone, and we end it in order. It also ends when our end of the pipe closes.
    server = subprocess.Popen(
        [*command, "--exit-with-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        umask=0o077,  # what it stores is its owner's alone, wherever --dir puts it
    )  # fmt: skip

    def receive(number: int, _: FrameType | None) -> None:
        received.append(number)
        server.terminate()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, receive)
    assert server.stdout is not None
    assert server.stdin is not None
    line = server.stdout.readline()
    if line:
        said = json.loads(line)
        out.value(said)
        out.line(f"Loops server: {said['url']}")
        out.line(f"API key:      {said['key']}")
        out.line(f"Model:        {said['model']}")
        out.note(
            "For the SDK: set LOOPS_BASE_URL to the URL and BASETEN_API_KEY to the key. Ctrl+c ends the server."
        )
        status = server.wait()
    else:
        status = server.wait(STOP_SECONDS)
        if out.owes_json:
            out.value({"error": "the server did not start; standard error says why"})
    if received:
        return 128 + received[0]
    return FAILED if status < 0 else status
