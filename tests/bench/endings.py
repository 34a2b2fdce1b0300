"""What the ways an app can end leave of its terminal and of the run that lives in it.

    uv run python -m tests.bench.endings [--json]

Each time the program is started on a pseudo-terminal with a run that really trains, and ended: by keys, by a signal, by
a closed terminal, and by a defect (of an app without a run). Then the terminal must be as before, the exit status must
tell what happened, and the run must have ended after a whole step with a checkpoint, or go on in a process of its own.
The exit status is 0 if that always held.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.store.rows import CheckpointState, RunState
from engine.store.store import Store
from tests.faults.result import tell
from tests.terminal.session import Session
from tests.terminal.watched import WAIT_SECONDS, Watched, hosting_app
from tools.sample_store import fill


@dataclass(frozen=True, slots=True)
class Way:
    """``end`` ends the app; ``goes_on``: whether its run then lives on elsewhere; ``seen``: the terminal is still there."""

    name: str
    status: int
    end: Callable[[Session], None]
    goes_on: bool = False
    seen: bool = True


def _keys(*presses: tuple[bytes, str]) -> Callable[[Session], None]:
    """Presses keys, each once what must be there first is on the screen."""

    def end(session: Session) -> None:
        for keys, awaited in presses:
            session.until(awaited)
            session.press(keys)

    return end


def _signal(number: signal.Signals) -> Callable[[Session], None]:
    return lambda session: session.signal(number)


ELSEWHERE = "in a process of its own"
WAYS = (
    Way("q, stop", 0, _keys((b"q", "running"), (b"s", ELSEWHERE))),
    Way("q, leave it", 0, _keys((b"q", "running"), (b"d", ELSEWHERE)), goes_on=True),
    Way("ctrl+c", 130, _keys((b"\x03", "running"))),
    Way("SIGTERM", 143, _signal(signal.SIGTERM)),
    Way("SIGINT", 130, _signal(signal.SIGINT)),
    Way("SIGHUP", 129, _signal(signal.SIGHUP), goes_on=True),
    Way("terminal closed", 129, Session.hang_up, goes_on=True, seen=False),
)


@dataclass(frozen=True, slots=True)
class Ending:
    """What was found after one way; ``wrong`` is empty where all is as it must be."""

    way: str
    restored: bool
    run_kept: bool
    wrong: list[str]


def ended(session: Session, way: Way) -> tuple[bool, list[str]]:
    """Whether the terminal is as before, and what is wrong."""
    status = session.end() if way.seen else session.process.wait(WAIT_SECONDS)
    wrong = [] if status == way.status else [f"exit status {status}, not {way.status}"]
    if not way.seen:
        return True, wrong
    try:
        session.assert_restored()
    except AssertionError as error:
        return False, [*wrong, f"the terminal is not as before: {error}"]
    return True, wrong


def with_a_run(way: Way) -> Ending:
    """Start the program with a run in it, end it, and look."""
    with tempfile.TemporaryDirectory() as place:
        watched = Watched(Path(place))
        try:
            with hosting_app(watched) as session:
                watched.until_steps(2, session)
                way.end(session)
                restored, wrong = ended(session, way)
            lost = run_lost(watched, way)
            return Ending(way.name, restored, not lost, wrong + lost)
        finally:
            watched.close()


def run_lost(watched: Watched, way: Way) -> list[str]:
    """What of the run is not as it must be after its app."""
    run = watched.run
    if way.goes_on:
        if run.state.final or watched.host.kind != "detached":
            return [f"the run is {run.state} on a host of kind {watched.host.kind}"]
        watched.until_steps(run.step + 1)
        return []
    with Store.open(watched.path) as store:
        saved = [
            row.step for row in store.reader().checkpoints(run.run_id) if row.state is CheckpointState.SAVED
        ]
    if run.state is not RunState.STOPPED or run.step not in saved:
        return [f"the run is {run.state} at step {run.step}; saved: {saved}"]
    return []


def by_a_defect() -> Ending:
    """An app without a run that raises what nobody catches."""
    way = Way("a defect", 1, lambda session: session.until("tool_agent"))
    with tempfile.TemporaryDirectory() as place:
        fill(Path(place))
        with Session(Path(place), "broken") as session:
            way.end(session)
            restored, wrong = ended(session, way)
    return Ending(way.name, restored, True, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ways", type=int, default=len(WAYS), help="so many of the ways only")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    chosen = parser.parse_args()
    began = time.monotonic()
    endings = [*(with_a_run(way) for way in WAYS[: chosen.ways]), by_a_defect()]
    result = {
        "endings": [asdict(ending) for ending in endings],
        "not_restored": sum(not ending.restored for ending in endings),
        "runs_lost": sum(not ending.run_kept for ending in endings),
        "wrong": [f"{ending.way}: {text}" for ending in endings for text in ending.wrong],
        "seconds": round(time.monotonic() - began, 1),
    }
    return tell(result | {"ok": not result["wrong"]}, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
