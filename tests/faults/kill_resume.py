"""Kill -9 of a run at random moments, each followed by a resume to the end: nothing may be lost, doubled or left.

``uv run python -m tests.faults.kill_resume [--kills 100] [--sandboxed 10] [--sft 10] [--overlapped 10] [--again 0.2]
[--lanes 2] [--seed 0] [--json]``

The run has 20 steps and a checkpoint every second one. It is run once without a kill, and then killed at moments that
are spread over the same time; some resumes are killed as well. Each kill is of a run of its own, and as many go on at
once as there are lanes. Afterwards every run must have its steps exactly once,
in the store and in ``steps.jsonl``, each task used as often as without a kill, each attempt once, and no lease. The
first ``--sandboxed`` kills are of the tool agent with its sandboxes, with fewer steps; the next ``--sft`` are of
supervised fine-tuning, where each step must have the loss that it has without a kill; the next ``--overlapped`` are
async, where the number of groups depends on the moment: there each group must have the task of its place in the order,
be trained at most once, in order, and within the bound of its age. The exit status is 0 if that always held. Equal
rewards are counted, and told as ``same_rewards``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.store import Store
from engine.store.rows import AttemptState, CheckpointState, GroupState, LeaseState, RunState
from tests.engine import async_story
from tests.engine.own_process import said_until, started
from tests.engine.resumable import make_project
from tests.faults.result import tell

TOOL_AGENT = Path(__file__).parents[2] / "examples" / "tool_agent" / "train_local.toml"
RUN_SECONDS = 600.0
_UNDECIDED = {GroupState.RUNNING, GroupState.READY}
_OPEN = {AttemptState.QUEUED, AttemptState.SAMPLING, AttemptState.ACTING, AttemptState.GRADING}


@dataclass(frozen=True)
class Kind:
    """What is killed."""

    name: str
    steps: int
    sets: tuple[str, ...]

    def config(self, project: Path) -> str:
        if self.name == "sft":
            return str(make_rows(project))
        return str(TOOL_AGENT if self.name == "sandboxed" else make_project(project))

    def words(self, project: Path) -> list[str]:
        sets = (f"training.max_steps={self.steps}", "output.checkpoint_every=2", *self.sets)
        return ["run", self.config(project), *(f"--set={each}" for each in sets)]


# It must not learn its tasks to the end: then no group would train any more, at a moment that is chance.
ASYNC = Kind("async", 20, (*async_story.ASYNC, "training.learning_rate=1e-4"))
PLAIN = Kind("plain", 20, ())
SFT = Kind("sft", 20, ())
SANDBOXED = Kind(
    "sandboxed",
    6,
    (
        "training.group_size=4",
        "training.groups_per_step=4",
        "training.max_consecutive_unusable_groups=500",
        "sampling.max_tokens=40",
    ),
)


def make_rows(project: Path) -> Path:
    """An SFT project of 40 rows, trained on twice, in steps of four."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Which one is {number}?"},
                {"role": "assistant", "content": answer},
            ]
        }
        for number in range(40)
        for answer in (("chess", "rugby", "tennis")[number % 3],)
    ]
    (project / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = project / "train.toml"
    config.write_text(
        'recipe = "sft"\n[data]\ntrain = "train.jsonl"\n[model]\nbase_model = "loops-demo-1m"\nmax_seq_len = 96\n'
        '[training]\nepochs = 2\nbatch_size = 4\nlearning_rate = 0.01\n[compute]\nscope = "local"\n'
    )
    return config


def start(project: Path, words: Sequence[str]) -> subprocess.Popen[str]:
    return started(project, *words, "--json")


def until_begun(process: subprocess.Popen[str]) -> None:
    """Wait for the run's first line: from then on it is in the store."""
    said_until(process, "Config: ")


def to_end(project: Path, words: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Run to the end; the final value, and the seconds since the run had begun."""
    process = start(project, words)
    until_begun(process)
    begun = time.monotonic()
    out, err = process.communicate(timeout=RUN_SECONDS)
    if process.returncode != 0:
        raise SystemExit(f"exit status {process.returncode}:\n{out}\n{err}")
    return json.loads(out), time.monotonic() - begun


def kill(project: Path, words: Sequence[str], seconds: float) -> bool:
    """Run, and kill so many seconds after it began; False where it was quicker."""
    process = start(project, words)
    until_begun(process)
    try:
        process.communicate(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True


@dataclass
class Story:
    """What one project's only run left."""

    tasks: Counter[str]
    rewards: list[tuple[Any, ...]]
    wrong: list[str]


def read(project: Path, steps: int) -> Story:
    """Look at everything the run left, in the store and beside it."""
    wrong: list[str] = []
    with Store.open(project) as store:
        reader = store.reader()
        (run,) = reader.runs()
        rows = reader.steps(run.run_id)
        groups = reader.groups(run.run_id, 100_000)
        attempts = [row for group in groups for row in reader.attempts(run.run_id, group.group_id)]
        wrong += [f"the run is {run.state}, after step {run.step}"] * (
            (run.state, run.step) != (RunState.DONE, steps)
        )
        wrong += [f"checkpoint {row.name}: {row.state}" for row in reader.checkpoints(run.run_id)
                  if row.state is CheckpointState.SAVING]  # fmt: skip
        wrong += [f"group {row.group_id}: {row.state}" for row in groups if row.state in _UNDECIDED]
        wrong += [
            f"attempt {row.group_id}/{row.attempt}: {row.state}" for row in attempts if row.state in _OPEN
        ]
        leases = [row for row in reader.leases() if row.state is not LeaseState.RELEASED]
        wrong += [f"lease {row.name}: {row.state}" for row in leases]
    wanted = list(range(1, steps + 1))
    in_store = [(row.step, row.state) for row in rows]
    if in_store != [(step, "done") for step in wanted]:
        wrong.append(f"steps in the store: {in_store}")
    directory = Path(run.run_dir)
    in_file = [json.loads(line)["step"] for line in (directory / "steps.jsonl").read_text().splitlines()]
    if in_file != wanted:
        wrong.append(f"steps in steps.jsonl: {in_file}")
    rollouts = directory / "rollouts.jsonl"  # supervised fine-tuning has none
    lines = [json.loads(line) for line in rollouts.read_text().splitlines()] if rollouts.exists() else []
    told = sorted((line["group_id"], line["attempt"]) for line in lines)
    if told != sorted((row.group_id, row.attempt) for row in attempts):
        wrong.append(f"rollouts.jsonl has {len(told)} attempts, the store {len(attempts)}")
    if sorted(group.group_id for group in groups) != list(range(len(groups))):
        wrong.append("group ids have gaps")
    rewards = sorted((row.group_id, row.attempt, row.reward, row.advantage) for row in attempts)
    if run.recipe == "sft":  # equal losses of all steps: each trained on the same rows, from the same weights
        names = ("epoch", "rows", "learning_rate", "loss")
        rewards = [(row.step, *(row.metrics.get(name) for name in names)) for row in rows]
    return Story(Counter(group.task_id for group in groups), rewards, wrong)


def whole_run(kind: Kind) -> tuple[Story, float]:
    """What a run without a kill leaves, and how many seconds it takes."""
    with tempfile.TemporaryDirectory() as place:
        _, span = to_end(Path(place), kind.words(Path(place)))
        return read(Path(place), kind.steps), span


def out_of_order(project: Path, run_id: str, steps: int) -> list[str]:
    """What of an async run's training is not as it must be."""
    try:
        async_story.Story.of(project, run_id).check(steps=steps, bound=1)
    except AssertionError as error:
        broken = traceback.extract_tb(error.__traceback__)[-1]
        return [f"the order or the age of what was trained: not so: {broken.line}"]
    return []


def one_kill(kind: Kind, moments: random.Random, span: float, again: float, whole: Story) -> Story:
    """Kill, resume to the end, look."""
    with tempfile.TemporaryDirectory() as place:
        project = Path(place)
        words = kind.words(project)
        while True:
            killed = kill(project, words, moments.uniform(0, span))
            with Store.open(project) as store:
                store.reconcile()
                (run,) = store.reader().runs()
            words = ["run", "--resume", run.run_id]
            if not killed or run.state is RunState.DONE or moments.random() >= again:
                break
        if run.state is not RunState.DONE:
            to_end(project, words)
        story = read(project, kind.steps)
        if kind is ASYNC:
            story.wrong += out_of_order(project, run.run_id, kind.steps)
            return story
    if kind.name == "sft" and story.rewards != whole.rewards:
        story.wrong.append("a step was trained on other rows, or from other weights, than without a kill")
    if story.tasks != whole.tasks:
        story.wrong.append(f"tasks used {dict(story.tasks)}, without a kill {dict(whole.tasks)}")
    return story


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--sandboxed", type=int, default=10, help="so many of the kills are of the tool agent"
    )
    parser.add_argument("--sft", type=int, default=10, help="so many of them are of supervised fine-tuning")
    parser.add_argument("--overlapped", type=int, default=10, help="so many of them are of async training")
    parser.add_argument("--again", type=float, default=0.2, help="share of resumes that are killed as well")
    parser.add_argument("--lanes", type=int, default=2, help="kills that go on at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    chosen = parser.parse_args()
    began = time.monotonic()
    wrong: list[str] = []
    same = 0
    sandboxed = min(chosen.sandboxed, chosen.kills)
    sft = min(chosen.sft, chosen.kills - sandboxed)
    overlapped = min(chosen.overlapped, chosen.kills - sandboxed - sft)
    rest = chosen.kills - sandboxed - sft - overlapped
    counts = {SANDBOXED: sandboxed, SFT: sft, ASYNC: overlapped, PLAIN: rest}
    numbers = itertools.count()
    with ThreadPoolExecutor(chosen.lanes) as lanes:
        for kind, count in counts.items():
            # One in each lane, so that it takes as long as those that are killed.
            wholes = list(lanes.map(whole_run, [kind] * chosen.lanes)) if count else []
            wrong += [f"without a kill ({kind.name}): {text}" for story, _ in wholes for text in story.wrong]

            def killed(number: int, kind: Kind = kind, wholes: list[tuple[Story, float]] = wholes) -> Story:
                moments = random.Random(f"{chosen.seed}/{number}")
                whole, span = min(wholes, key=lambda found: found[1])
                return one_kill(kind, moments, span, chosen.again, whole)

            some = list(itertools.islice(numbers, count))
            for number, story in zip(some, lanes.map(killed, some), strict=True):
                same += story.rewards == wholes[0][0].rewards
                wrong += [f"kill {number} ({kind.name}): {text}" for text in story.wrong]
                rewards = "the same" if story.rewards == wholes[0][0].rewards else "other"
                told = f"kill {number} ({kind.name}): {len(story.wrong)} wrong, {rewards} rewards"
                print(told, file=sys.stderr, flush=True)
    result = {
        "kills": chosen.kills,
        **{kind.name: count for kind, count in counts.items()},
        "same_rewards": same,
        "wrong": wrong,
        "seconds": round(time.monotonic() - began, 1),
        "ok": not wrong,
    }
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
