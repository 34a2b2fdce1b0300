"""A whole run of the tool agent on the Blaxel emulator, without faults or with some of every kind.

``uv run python -m tests.faults.blaxel_training [--faults 0.05] [--steps 5] [--groups 4] [--group-size 8] [--json]``

``loops-tui run`` trains examples/tool_agent/train_blaxel.toml with the local model, in a process of its own. Then the
emulator is asked what exists, and each graded attempt is held against what the emulator itself saw: its sandbox lived
when the check ran in it, and the reward is what the check's exit status says. The exit status is 0 if the run ended by
itself, every grade holds, and no sandbox is left.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.store import Store
from engine.store.rows import AttemptRow, AttemptState, LeaseRow, LeaseState
from tests.blaxel_emulator.faults import Fault, every_kind
from tests.blaxel_emulator.records import Settings
from tests.blaxel_emulator.serving import EmulatorProcess
from tests.faults.result import tell

REPOSITORY = Path(__file__).parents[2]
CONFIG = REPOSITORY / "examples" / "tool_agent" / "train_blaxel.toml"
TASKS = CONFIG.parent / "tasks.jsonl"
REWARDED, FAILED = 1.0, 0.0

#: The local model instead of the paid one, with the limits of train_local.toml.
LOCAL = (
    "model.base_model=loops-demo-1m",
    "model.max_seq_len=768",
    "compute.scope=local",
    "sampling.max_tokens=80",
    "training.learning_rate=0.002",
    "training.max_consecutive_unusable_groups=40",
    "runtime.config.options.max_turns=5",
    "runtime.config.options.command_timeout_seconds=5",
    "runtime.config.options.max_output_chars=300",
)


@dataclass(frozen=True)
class Size:
    """How much is trained."""

    steps: int
    groups: int
    group_size: int

    def sets(self) -> Sequence[str]:
        return (
            f"training.max_steps={self.steps}",
            f"training.groups_per_step={self.groups}",
            f"training.group_size={self.group_size}",
        )


@dataclass
class Verdict:
    """What the store and the emulator say about a run; ``wrong`` is empty if all is well."""

    state: str = ""
    steps: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    lost_for: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    graded: int = 0
    rewarded: int = 0
    #: Rewards of zero because the check never ended, in a sandbox that lived: an answer, not a failure.
    hung_checks: int = 0
    wrong: list[str] = field(default_factory=list)


def train(
    project: Path, environment: Mapping[str, str], size: Size, seconds: float, sets: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """The run, to its own end. Raises subprocess.TimeoutExpired."""
    chosen = [f"--set={each}" for each in (*LOCAL, *size.sets(), *sets)]
    return subprocess.run(
        [sys.executable, "-m", "loops_tui", "run", str(CONFIG), *chosen],
        cwd=project,
        env={**os.environ, **environment, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def judge(project: Path, emulator: EmulatorProcess) -> Verdict:
    """Hold the store against the emulator."""
    verdict = Verdict()
    checks = {task["id"]: task["check"] for task in map(json.loads, TASKS.read_text().splitlines())}
    events: dict[str, list[dict[str, Any]]] = {}
    for event in emulator.admin("events"):
        events.setdefault(event["name"], []).append(event)
    with Store.open(project) as store:
        reader = store.reader()
        (run,) = reader.runs()
        verdict.state = str(run.state)
        verdict.steps = sum(step.state == "done" for step in reader.steps(run.run_id))
        leases: dict[tuple[int | None, int | None], list[LeaseRow]] = {}
        for lease in reader.leases():
            leases.setdefault((lease.group_id, lease.attempt), []).append(lease)
            if lease.state is not LeaseState.RELEASED:
                verdict.wrong.append(f"lease {lease.name}: {lease.state}: {lease.last_error}")
        for group in reader.groups(run.run_id, limit=100_000):
            for attempt in reader.attempts(run.run_id, group.group_id):
                verdict.attempts[str(attempt.state)] += 1
                verdict.retried += attempt.tries > 1
                if attempt.state is AttemptState.LOST:
                    verdict.lost_for[(attempt.error or "")[:100]] += 1
                if attempt.state is AttemptState.DONE and attempt.reward is not None:
                    held = leases.get((attempt.group_id, attempt.attempt), [])
                    judge_grade(verdict, attempt, held, events, checks[group.task_id])
    verdict.wrong += [f"on the emulator: {box['name']} {box['status']}" for box in emulator.live()]
    return verdict


def judge_grade(
    verdict: Verdict,
    attempt: AttemptRow,
    held: Sequence[LeaseRow],
    events: Mapping[str, list[dict[str, Any]]],
    check: str,
) -> None:
    """The attempt was graded in the last sandbox that it had (``held`` is in order of creation)."""
    place = f"attempt {attempt.group_id}.{attempt.attempt} (reward {attempt.reward})"
    verdict.graded += 1
    verdict.rewarded += attempt.reward == REWARDED
    if not held:
        verdict.wrong.append(f"{place}: it had no lease")
        return
    story = events.get(held[-1].name, [])
    checked = [event for event in story if event["event"] == "process" and _runs(event["command"], check)]
    if not checked:
        verdict.wrong.append(f"{place}: its check never ran in {held[-1].name}")
        return
    last = checked[-1]
    died = any(event["event"] in ("died", "expired") and event["n"] < last["n"] for event in story)
    if died or not last["alive"]:
        verdict.wrong.append(f"{place}: {held[-1].name} was dead when its check ended")
    elif last["status"] == "killed" and attempt.reward == FAILED:
        verdict.hung_checks += 1
    elif (last["status"], last["exit_code"]) == ("completed", 0):
        if attempt.reward != REWARDED:
            verdict.wrong.append(f"{place}: its check ended with 0")
    elif attempt.reward != FAILED:
        verdict.wrong.append(f"{place}: its check ended with {last['status']} {last['exit_code']}")


def _runs(command: str, check: str) -> bool:
    """Whether a command line holds the check, as it is or quoted for a shell within."""
    return check in command or shlex.quote(check)[1:-1] in command


def trained(
    place: Path,
    size: Size,
    faults: Sequence[Fault],
    *,
    settings: Settings | None = None,
    seed: int = 0,
    seconds: float = 1800.0,
    sets: Sequence[str] = (),
) -> tuple[Verdict, dict[str, Any], str]:
    """One run on an emulator of its own: the verdict, the emulator's counts, and what the command said."""
    project = place / "project"
    project.mkdir()
    log, service = place / "emulator.log", settings or Settings()
    with EmulatorProcess(log, service, list(faults), seed) as emulator:
        done = train(project, emulator.environment(), size, seconds, sets)
        verdict = judge(project, emulator)
        counts = emulator.admin("counts")
        used = Counter[str]()
        for rule in emulator.admin("faults"):
            used[rule["kind"]] += rule["used"]
        counts["faults"] = dict(used)
    if done.returncode != 0:
        verdict.wrong.append(f"the run ended with {done.returncode}")
    if verdict.steps != size.steps:
        verdict.wrong.append(f"{verdict.steps} of {size.steps} steps were trained")
    return verdict, counts, done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--faults", type=float, default=0.05, help="the probability of each kind")
    parser.add_argument("--scale", type=float, default=1.0, help="stretches the times of the faults")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-live", type=int, help="the account's quota of sandboxes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1800.0, help="the bound of the whole run")
    parser.add_argument("--set", action="append", default=[], help="as of loops-tui run")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    chosen = parser.parse_args()
    faults = every_kind(chosen.faults, scale=chosen.scale) if chosen.faults > 0 else []
    size = Size(chosen.steps, chosen.groups, chosen.group_size)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        verdict, counts, said = trained(
            Path(place),
            size,
            faults,
            settings=Settings(max_live=chosen.max_live),
            seed=chosen.seed,
            seconds=chosen.seconds,
            sets=chosen.set,
        )
    result = {
        "state": verdict.state,
        "steps": verdict.steps,
        "attempts": dict(verdict.attempts),
        "retried": verdict.retried,
        "graded": verdict.graded,
        "rewarded": verdict.rewarded,
        "hung_checks": verdict.hung_checks,
        "lost_for": dict(verdict.lost_for),
        "emulator": counts,
        "wrong": verdict.wrong,
        "seconds": round(time.monotonic() - started, 1),
        "ok": not verdict.wrong,
    }
    if not result["ok"]:
        sys.stderr.write(said[-6000:])
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
