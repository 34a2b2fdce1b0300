"""Kill -9 of a process with Blaxel creations in flight, and a look at the service for what ``cleanup`` leaves.

``uv run python -m tests.faults.kill_blaxel [--kills 50] [--sandboxes 32] [--lanes 3] [--seed 0] [--forget] [--json]``

Each round starts a process that creates sandboxes on the emulator, 32 at a time, and kills it while so many creations
are under way: some have had their effect, some have it seconds later, when nobody waits any more. Then ``loops-tui
cleanup`` runs, and the emulator itself is asked what exists. ``--forget`` removes the journal in every second round.
A round waits more than it computes, so several go on at once: each lane has a project and an emulator of its own.
The exit status is 0 if nothing was ever left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.sandboxes import SandboxSettings
from engine.sandboxes.for_run import open_provider
from engine.sandboxes.leases import LeaseKeeper
from engine.sandboxes.naming import project_label
from engine.store import Store
from engine.store.rows import LeaseState
from tests.blaxel_emulator.faults import CREATE, Fault
from tests.blaxel_emulator.serving import EmulatorProcess
from tests.faults.result import tell
from tests.sandboxes.victim import become_host

REPOSITORY = Path(__file__).parents[2]
IN_FLIGHT_SECONDS = 120.0
SETTLE_SECONDS = 90.0
CLEANUP_SECONDS = 180.0
END_SECONDS = 30.0

#: Creations that take their time before their effect, after it, or both.
SLOW_CREATES = [
    Fault("latency", CREATE, 0.5, seconds=(0.2, 3.0)),
    Fault("slow_reply", CREATE, seconds=(4.0, 10.0)),
]


async def live(project: Path, sandboxes: int) -> None:
    """The victim: as many creations at once as asked for, and a little work in what comes of them, for ever."""
    host = f"host-{os.getpid()}"
    settings = SandboxSettings(provider="blaxel", max_concurrent_creates=sandboxes, ttl_seconds=3600)
    with Store.open(project) as store:
        become_host(store, host)
        provider = open_provider(project, settings)
        label = project_label(project)
        keeper = LeaseKeeper(store, provider, settings, project=label, run_id="run-1", host_id=host)

        async def attempts(number: int) -> None:
            while True:
                leased = await keeper.acquire(group_id=0, attempt=number)
                await leased.sandbox.write_tree({"file": "x"})
                await leased.sandbox.exec("cat file", timeout=60)
                await keeper.release(leased)

        await asyncio.gather(*(attempts(number) for number in range(sandboxes)))


@dataclass
class Outcome:
    """What became of some kills; ``left`` is empty if nothing was."""

    kills: int = 0
    in_flight: list[int] = field(default_factory=list)  # creations at the moment of each kill
    released: int = 0
    already_gone: int = 0
    not_in_journal: int = 0
    left: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """What became of another lane's kills."""
        self.kills += other.kills
        self.in_flight += other.in_flight
        self.released += other.released
        self.already_gone += other.already_gone
        self.not_in_journal += other.not_in_journal
        self.left += other.left


def kill_once(
    project: Path, emulator: EmulatorProcess, sandboxes: int, delay: float, outcome: Outcome, *, forget: bool
) -> None:
    """One round. Raises RuntimeError where the victim never came to create."""
    number, outcome.kills = outcome.kills, outcome.kills + 1
    environment = {**os.environ, **emulator.environment()}
    words = [sys.executable, "-m", "tests.faults.kill_blaxel", "--live", str(project)]
    with (project.parent / "victim.log").open("a+b") as log:
        victim = subprocess.Popen(
            [*words, "--sandboxes", str(sandboxes)], cwd=REPOSITORY, env=environment, stderr=log
        )
        try:
            _until_creating(emulator, sandboxes, victim, project.parent / "victim.log")
            time.sleep(delay)
            outcome.in_flight.append(emulator.admin("counts")["creating"])
        finally:
            victim.kill()
            victim.wait(END_SECONDS)
    if forget:
        for file in (project / ".loops").glob("*.db*"):
            file.unlink()
    report = clean(project, environment)
    outcome.released += len(report["released"])
    outcome.already_gone += len(report["already_gone"])
    outcome.not_in_journal += len(report["not_in_journal"])
    wrong = [f"cleanup failed: {entry}" for entry in report["failed"]]
    wrong += [f"taken for live: {entry}" for entry in report["held"]]
    _until(lambda: emulator.admin("counts")["in_flight"] == 0, SETTLE_SECONDS, "requests that never end")
    wrong += [f"on the emulator: {box['name']} {box['status']}" for box in emulator.live()]
    with Store.open(project) as store:
        rows = store.reader().leases()
    wrong += [f"lease {row.name}: {row.state}" for row in rows if row.state is not LeaseState.RELEASED]
    outcome.left += [f"{project.parent.name}, kill {number}: {text}" for text in wrong]


def clean(project: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """``loops-tui cleanup``, and its report."""
    done = subprocess.run(
        [sys.executable, "-m", "loops_tui", "cleanup", "--yes", "--json"],
        cwd=project,
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=CLEANUP_SECONDS,
        check=False,
    )
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        said = f"loops-tui cleanup ended with {done.returncode}: {done.stdout}{done.stderr}"
        raise RuntimeError(said) from error


def _until_creating(
    emulator: EmulatorProcess, sandboxes: int, victim: subprocess.Popen[bytes], log: Path
) -> None:
    def creating() -> bool:
        if victim.poll() is not None:
            raise RuntimeError(f"the victim ended by itself:\n{log.read_text()[-4000:]}")
        return emulator.admin("counts")["creating"] >= sandboxes

    _until(creating, IN_FLIGHT_SECONDS, f"never {sandboxes} creations under way")


def _until(condition: Any, seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.1)


def kill_again_and_again(
    place: Path, kills: int, *, sandboxes: int = 32, seed: int = 0, forget: bool = False, lanes: int = 1
) -> Outcome:
    """``kills`` rounds in so many lanes; ``place`` holds their files. Raises what a round raises."""

    def lane(number: int) -> Outcome:
        share = kills // lanes + (number < kills % lanes)
        return _kill_in_lane(place / f"lane-{number}", share, sandboxes, seed + number, forget=forget)

    outcome = Outcome()
    with ThreadPoolExecutor(lanes) as pool:
        for each in pool.map(lane, range(lanes)):
            outcome.add(each)
    return outcome


def _kill_in_lane(place: Path, kills: int, sandboxes: int, seed: int, *, forget: bool) -> Outcome:
    """Rounds in one project against one emulator."""
    project = place / "project"
    project.mkdir(parents=True)
    moments, outcome = random.Random(seed), Outcome()
    with EmulatorProcess(place / "emulator.log", faults=SLOW_CREATES, seed=seed) as emulator:
        for number in range(kills):
            delay = moments.uniform(0.0, 1.0)
            kill_once(project, emulator, sandboxes, delay, outcome, forget=forget and number % 2 == 1)
            told = f"{place.name}, kill {number}: {outcome.in_flight[-1]} in flight, {len(outcome.left)} left so far"
            print(told, file=sys.stderr, flush=True)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--sandboxes", type=int, default=32)
    parser.add_argument("--lanes", type=int, default=3, help="rounds that go on at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forget", action="store_true", help="remove the journal in every second round")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument("--live", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.live is not None:
        asyncio.run(live(chosen.live, chosen.sandboxes))
        return 1
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        outcome = kill_again_and_again(
            Path(place),
            chosen.kills,
            sandboxes=chosen.sandboxes,
            seed=chosen.seed,
            forget=chosen.forget,
            lanes=max(1, min(chosen.lanes, chosen.kills)),
        )
    result = {
        "kills": outcome.kills,
        "in_flight_least": min(outcome.in_flight),
        "in_flight_mean": round(sum(outcome.in_flight) / len(outcome.in_flight), 1),
        "released_by_cleanup": outcome.released,
        "already_gone": outcome.already_gone,
        "not_in_journal": outcome.not_in_journal,
        "left": outcome.left,
        "seconds": round(time.monotonic() - started, 1),
        "ok": not outcome.left,
    }
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
