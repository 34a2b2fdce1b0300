"""What a command says: one JSON value on standard output where asked for, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from loops_tui.commands.printed import harmless_printing
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from engine.store.store import Store

DONE, FAILED, BAD_INPUT, STOPPED, INTERRUPTED = 0, 1, 2, 3, 130


class Output:
    """Standard output and standard error of a command. With ``as_json`` lines of the result go to stderr too."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._told_json = False
        self._kept: int | TextIO | None = None

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """With ``--json``: standard output is the value's alone; what others write there goes to standard error.

        Episodes and tools print, and so do the processes that they start, so the descriptor is turned as well.
        """
        if not self.as_json:
            yield
            return
        stream = sys.stdout
        stream.flush()
        try:
            descriptor = os.dup(1)
            os.dup2(2, 1)
        except OSError:  # closed by whoever started us: there is nothing to keep clean
            yield
            return
        self._kept = descriptor if _descriptor(stream) == 1 else stream
        sys.stdout = sys.stderr
        try:
            yield
        finally:
            sys.stdout = stream
            try:
                stream.flush()  # what was printed to it by its old name still goes to standard error
            finally:
                os.dup2(descriptor, 1)
                os.close(descriptor)
                self._kept = None

    def line(self, text: str) -> None:
        """A line of the result."""
        if self.as_json:
            to_stderr(safe(text))
        else:
            print(safe(text), flush=True)

    def note(self, text: str) -> None:
        """A line about the result: progress, hints, warnings."""
        to_stderr(safe(text))

    def error(self, text: str) -> None:
        """What went wrong, line by line."""
        for line in text.splitlines() or ["unknown error"]:
            # A finding says itself that it is an error.
            to_stderr(f"loops-tui: {safe(line.removeprefix('error: '))}")

    def value(self, value: Any) -> None:
        """The one JSON value. Without ``--json`` nothing is printed; a second one is a defect."""
        if not self.as_json:
            return
        if self._told_json:
            raise RuntimeError("a command prints one JSON value")
        self._told_json = True
        if isinstance(self._kept, int):
            left = (json.dumps(value) + "\n").encode()
            while left:
                left = left[os.write(self._kept, left) :]
        else:
            print(json.dumps(value), file=self._kept, flush=True)

    @property
    def owes_json(self) -> bool:
        return self.as_json and not self._told_json


def _descriptor(stream: TextIO) -> int | None:
    """The descriptor that a stream writes to; None where it is no real file."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def to_stderr(text: str) -> None:
    """A line for whoever still reads standard error. A terminal that hung up must not end a run that drains."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def carry_out(
    out: Output,
    work: Callable[[], int],
    *,
    failure: Callable[[str], Any] = lambda sentence: {"error": sentence},
) -> int:
    """Do a command's work and turn whatever it raises into sentences and an exit status.

    ``failure`` makes the JSON value of a command that failed before it had printed its own.
    """
    try:
        with harmless_printing(), out.undisturbed():
            return work()
    except KeyboardInterrupt:
        sentence, status = "interrupted", INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone (`loops-tui runs | head`); Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except SystemExit as error:
        # Only code of the user's does that here, and it must not end the command without a word.
        sentence, status = f"the config's own code called sys.exit({error.code!r})", FAILED
    except Exception as error:  # noqa: BLE001 - a defect is told in one line, its traceback kept in a file
        sentence, status = explain(error)
    out.error(sentence)
    if out.owes_json:
        out.value(failure(sentence.removeprefix("error: ")))
    return status


def explain(error: Exception) -> tuple[str, int]:
    """The sentence and the exit status for an error: 2 where the user can put it right in what was given."""
    from engine.hosting.detach import DetachFailed
    from engine.hosting.errors import HostingError, in_what_was_given
    from engine.hosting.host import write_crash
    from engine.store.errors import StoreError
    from engine.store.redact import Redactor

    if isinstance(error, FileNotFoundError) and not _standing():
        return "the working directory does not exist any more: change to one that does", BAD_INPUT
    if isinstance(error, DetachFailed):
        return str(error), error.status
    if isinstance(error, UsageError) or in_what_was_given(error):
        return str(error), BAD_INPUT
    if isinstance(error, HostingError | StoreError):
        return str(error), FAILED
    clean = Redactor.from_environment(os.environ).text
    path = write_crash(Path.cwd(), clean, error)
    told = " ".join(clean(f"{type(error).__name__}: {error}").split())[:300]
    return f"internal error: {told}; the details are in {path}", FAILED


def _standing() -> bool:
    """Whether the working directory is still there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def person_there(out: Output) -> bool:
    """Whether somebody at a terminal can be asked; a script has said what it wants."""
    return not out.as_json and sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Ask a person at the terminal; anything but a yes is a no."""
    print(f"{safe(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def asked_for(question: str, default: str) -> str:
    """Ask a person at the terminal for a value; the default where nothing is typed."""
    shown = f" [{safe(default)}]" if default else ""
    print(f"{safe(question)}{shown}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or default


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, each column as wide as it must be."""
    cells = [[safe(cell, 200) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))] if cells else []
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


class UsageError(Exception):
    """Arguments that cannot be right; the message is one sentence."""


def open_project_store() -> Store:
    """The store of the working directory. Raises UsageError where there is none (none is made)."""
    from engine.store.store import Store

    here = Path.cwd()
    if not Store.exists(here):
        raise UsageError(
            f"{here} has no runs yet (no .loops/loops.db); start one with `loops-tui run CONFIG`"
        )
    return Store.open(here)
