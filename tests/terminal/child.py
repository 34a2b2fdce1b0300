"""The app on a filled store, as a process of its own: ``python -m tests.terminal.child DIR [live|movable|stubborn|idle|noisy|broken]``.

``live`` pretends that a run lives in this process, one that ends a moment after it was asked to; ``movable`` one that
can also go on in another process, ``stubborn`` one that only an abort ends. Options come from the environment, as in the real program.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loops_tui.app import LoopsApp
from loops_tui.keymap import keymap_path, load_keymap
from loops_tui.link import open_store
from loops_tui.options import options_from
from loops_tui.ports import CleanupFailed
from loops_tui.session import run_app
from tests.app.fake_loops import FakeLoops

if TYPE_CHECKING:
    from engine.hosting.cleanup import CleanupReport


class PretendedHosting:
    """One run that ends when it is told to, and says so in a file."""

    def __init__(self, notes: Path, *, can_hand_over: bool = False, stubborn: bool = False) -> None:
        self.can_hand_over = can_hand_over
        self._stubborn = stubborn
        self._notes = notes
        self._ended = threading.Event()
        self.loops = FakeLoops()

    def start(self, config: Path, overrides: Sequence[str]) -> str:
        return "pretended-run"

    def resume(self, run_id: str, overrides: Sequence[str] = ()) -> str:
        return run_id

    def hand_over(self, run_id: str, seconds: float) -> None:
        self._note("hand-over")
        self._ended.set()

    def check(self, config: Path, text: str | None) -> None:
        self._note("check")

    def clean_up(self, names: Sequence[str], *, force: bool) -> CleanupReport:
        raise CleanupFailed("nothing is cleaned up here")

    def live(self) -> Sequence[str]:
        return () if self._ended.is_set() else ("pretended-run",)

    def stop(self) -> None:
        self._note("stop")
        if not self._stubborn:
            self._ended.set()

    def abort(self) -> None:
        self._note("abort")
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def close(self) -> None:
        self._note("close")

    def _note(self, word: str) -> None:
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(word + "\n")


class BrokenApp(LoopsApp):
    """An app with a defect, and a secret in reach of a careless traceback."""

    def on_ready(self) -> None:
        self.set_timer(2.0, self._defect)

    def _defect(self) -> None:
        api_key = "sk-secret-in-a-" + "local"
        _ = 1 / (len(api_key) - len(api_key))


def _make_noise() -> None:
    """What libraries do behind a screen's back: writers to the descriptors, handlers that hold the streams of before,
    children that inherit them."""
    made_before = logging.getLogger("library")
    made_before.addHandler(logging.StreamHandler(sys.stderr))
    made_before.propagate = False
    stream_before = sys.stdout

    def noise() -> None:
        os.write(1, b"NOISE-ON-FD-1\n")
        os.write(2, b"NOISE-ON-FD-2\n")
        made_before.warning("NOISE-OF-A-HANDLER")
        print("NOISE-ON-THE-STREAM-OF-BEFORE", file=stream_before, flush=True)
        subprocess.run(["sh", "-c", "echo NOISE-OF-A-CHILD; echo NOISE-OF-A-CHILD-S-ERRORS >&2"], check=False)

    threading.Timer(1.0, noise).start()


def main() -> int:
    project_dir = Path(sys.argv[1])
    mode = sys.argv[2] if len(sys.argv) > 2 else "idle"
    kind = BrokenApp if mode == "broken" else LoopsApp
    hosting = PretendedHosting(
        project_dir / "notes", can_hand_over=mode == "movable", stubborn=mode == "stubborn"
    )
    app = kind(
        project_dir,
        lambda: open_store(project_dir),
        lambda: hosting,
        options=options_from(os.environ),
        keymap=load_keymap(keymap_path()),
    )
    if mode in ("live", "movable", "stubborn"):
        _ = app.hosting  # made now, as if a run had been started from here
    if mode == "noisy":
        _make_noise()
    return run_app(app)


if __name__ == "__main__":
    sys.exit(main())
