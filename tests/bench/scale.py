"""Memory, threads, files and stalls of a run with many long attempts at once, on simulated latencies.

    uv run python -m tests.bench.scale [--attempts 1024] [--turns 12] [--steps 20] [--json]

A whole RL run in async mode: schedule, episodes, conversations, groups, packing, session, store with all transcripts,
run directory. Only the SDK's two clients are simulated (``tests.bench.simulated_loops``). ``--attempts`` are in flight
all the while; each step trains ``--per-step`` of them. An attempt is a conversation of ``--turns`` replies that grows
to several thousand tokens. Memory is what the system counts as resident; ``growth_mb`` compares its mean over the last
quarter of the steps with that over the second. ``loop_lag`` is how late a timer of 20 ms on the engine's loop is, which says
little on a busy machine; ``held`` is the processor time that one callback held the loop for, which says the same of the
engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from engine.policy.rendering import PolicyRenderer
from engine.project import Project, load
from engine.recipes.contract import LoopsEndpoint, RunHandle
from engine.recipes.control import RunControl
from engine.recipes.rl.parts import renderer_of
from engine.store.rows import StepRow
from engine.store.store import Store
from tests.bench.simulated_loops import SimulatedTrainer, simulated_run, simulated_training

RUN = "20260101-000000-scal"
GROUP = 16
LIMIT_MB = 1500.0
LIMIT_GROWTH_MB = 50.0
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20

EPISODE = """
import asyncio, random
from pydantic import BaseModel
from engine.episodes import Episode, Grading, Sampling, Setup

class Line(BaseModel):
    name: str
    instruction: str

class Options(BaseModel):
    turns: int
    speed: float

WORDS = "alpha order count the file total line customer number paid error while print open late".split()

def words(count, seed):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(count))

class Agent(Episode[Line, Options]):
    async def setup(self, setup: Setup) -> None:
        self.draw = random.Random(f"{self.task.id}/{setup.attempt}")
        await asyncio.sleep(self.draw.lognormvariate(-0.2, 0.4) / self.options.speed)

    async def run(self, sample: Sampling) -> dict[str, object]:
        conversation = sample.model.conversation()
        messages = [{"role": "user", "content": self.task.value.instruction}]
        for turn in range(self.options.turns):
            reply = await conversation.generate(messages=messages)
            if reply.native_message is None:
                break
            await asyncio.sleep(self.draw.lognormvariate(-1.9, 1.0) / self.options.speed)
            messages.append(reply.native_message)
            messages.append({"role": "user", "content": words(100, self.draw.random())})
        return {"termination_reason": "max_turns"}

    async def grade(self, grading: Grading) -> float:
        await asyncio.sleep(self.draw.lognormvariate(-0.9, 0.4) / self.options.speed)
        return float(grading.attempt % 2)
"""
CONFIG = """
recipe = "rl"
[runtime.config]
tasks = "tasks.jsonl"
episode = "scale_episode:Agent"
options = {{ turns = {turns}, speed = {speed} }}
[model]
base_model = "loops-demo-1m"
max_seq_len = 32768
renderer_chat_template_kwargs = {{ enable_thinking = false }}
[training]
mode = "async"
loss = "ppo"
group_size = {group}
groups_per_step = {groups}
max_steps = {max_steps}
max_steps_off_policy = {k}
max_concurrent_rollouts = {attempts}
[sampling]
max_tokens = 512
[compute]
scope = "local"
"""
REPLY = (
    "I look at the orders first, then I count those that are {word} and write the number into the file. " * 4
)


@dataclass
class Watch:
    """Reads the process's figures on the engine's loop and at each step's end."""

    lag: array[float] = field(default_factory=lambda: array("f"))
    memory: list[float] = field(default_factory=list)  # MB, at each step's end
    peak: float = 0.0
    files: int = 0
    threads: int = 0

    async def tick(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            self.lag.append(time.monotonic() - before - 0.02)
            self.peak = max(self.peak, resident())
            self.threads = max(self.threads, threading.active_count())
            if len(self.lag) % 25 == 0:
                self.files = max(self.files, len(os.listdir("/proc/self/fd")))

    def step_done(self) -> None:
        self.memory.append(resident())


def resident() -> float:
    """Resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MB


class Held:
    """Processor time of each callback of the event loop, and who the longest were. Use as a context."""

    def __init__(self) -> None:
        self.seconds = array("f")  # small: there are hundreds of thousands
        self.longest: list[tuple[float, str]] = []

    def __enter__(self) -> Self:
        self._run = asyncio.Handle._run
        record, thread = self._record, threading.get_ident()

        def timed(handle: Any) -> None:
            if threading.get_ident() != thread:
                return self._run(handle)
            before = time.thread_time()
            self._run(handle)
            record(handle, time.thread_time() - before)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]

    def _record(self, handle: Any, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.longest) < 8 or seconds > self.longest[-1][0]:
            owner = getattr(handle._callback, "__self__", handle._callback)
            name = owner.get_name() if isinstance(owner, asyncio.Task) else repr(owner)[:60]
            self.longest = sorted([*self.longest, (seconds, name)], reverse=True)[:8]


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Quantiles in milliseconds."""
    ordered = sorted(seconds)
    return {
        name: round(ordered[int(share * (len(ordered) - 1))] * 1000, 1)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
    }


def write_project(directory: Path, options: argparse.Namespace) -> Path:
    k = options.attempts // options.per_step - 1
    (directory / "scale_episode.py").write_text(EPISODE)
    (directory / "train.toml").write_text(
        CONFIG.format(
            turns=options.turns,
            speed=options.speed,
            group=GROUP,
            groups=options.per_step // GROUP,
            max_steps=options.steps + k + 1,  # as many in flight at the last step as at the first
            k=k,
            attempts=options.attempts,
        )
    )
    orders = ", ".join(
        f"order {number} of customer {number % 7} is paid" for number in range(options.opening // 11)
    )
    lines = [{"name": f"t{n}", "instruction": f"Task {n}. Count the orders. {orders}"} for n in range(40)]
    (directory / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory / "train.toml"


def replies(renderer: PolicyRenderer) -> list[list[int]]:
    """Token lists of a few replies of some hundred tokens."""
    texts = [f"{REPLY.format(word=word)}<|im_end|>" for word in ("paid", "open", "late")]
    return [list(renderer.tokenizer.encode(text, add_special_tokens=False)) for text in texts]


async def run(project: Project, store: Store, options: argparse.Namespace, watch: Watch) -> dict[str, Any]:
    """The run itself; returns what the trainer saw."""
    renderer = await asyncio.to_thread(renderer_of, project)
    trainer = SimulatedTrainer(replies(renderer), speed=options.speed)
    store.create_run(simulated_run(RUN, project, store))
    recorder, control = store.recorder(RUN), RunControl()
    handle = RunHandle(RUN, recorder, control, LoopsEndpoint("local", None, None), store=store)
    record = recorder.step

    def step(row: StepRow) -> None:
        record(row)
        if row.state == "done":
            watch.step_done()
            if row.step == options.steps:
                control.stop_after_step("bench")
            print(
                f"step {row.step}: {watch.memory[-1]:.0f} MB, peak {watch.peak:.0f} MB",
                file=sys.stderr,
                flush=True,
            )

    recorder.step = step  # type: ignore[method-assign]
    ticking = asyncio.create_task(watch.tick())
    try:
        await simulated_training(project, handle, trainer, renderer)
    finally:
        ticking.cancel()
    await asyncio.to_thread(recorder.close, 120.0)
    return {"at_once": trainer.most_at_once, "largest_request_mb": round(trainer.largest_request / 2**20, 2)}


def growth(memory: Sequence[float]) -> float:
    """MB by which the mean of the last quarter of the steps is above that of the second; 0 for less than 4 steps."""
    quarter = len(memory) // 4
    if not quarter:
        return 0.0
    return statistics.fmean(memory[-quarter:]) - statistics.fmean(memory[quarter : 2 * quarter])


def measure(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    project = load(write_project(directory, options), working_dir=directory)
    watch = Watch()
    with Store.open(directory) as store:
        # What the first paint and the imports of the first step cost is not the attempts'.
        import baseten.loops  # noqa: F401

        gc.collect()
        before, wall, cpu = resident(), time.monotonic(), time.process_time()
        with Held() as held:
            trainer = asyncio.run(run(project, store, options, watch))
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    rollouts = (directory / "runs" / RUN / "rollouts.jsonl").read_text().splitlines()
    ended = [json.loads(line) for line in rollouts]
    done = [row for row in ended if row["state"] == "done"]
    project.close()
    grown = growth(watch.memory)
    return {
        "attempts": options.attempts,
        "turns": options.turns,
        "steps": len(watch.memory),
        "trained": options.steps * options.per_step,
        "tokens_per_attempt": round(statistics.fmean(row["sampled_tokens"] for row in done)),
        "longest_prompt": round(max(row["prompt_tokens"] / row["turns"] for row in done) * 2),
        "peak_mb": round(watch.peak, 1),
        "before_mb": round(before, 1),
        "kb_per_attempt": round((watch.peak - before) * 1024 / options.attempts, 1),
        "growth_mb": round(grown, 1),
        "memory_mb": [round(value) for value in watch.memory],
        "open_files": watch.files,
        "threads": watch.threads,
        "loop_lag_ms": summary(watch.lag),
        "held_ms": summary(held.seconds),
        "longest_ms": [(round(seconds * 1000), name) for seconds, name in held.longest],
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1),
        "load": round(os.getloadavg()[0], 1),
        **trainer,
        "ok": watch.peak <= LIMIT_MB and grown <= LIMIT_GROWTH_MB and trainer["at_once"] > 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1024, help="in flight at once")
    parser.add_argument("--per-step", type=int, default=64, help="attempts that a step trains on")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--opening", type=int, default=2000, help="tokens of a task's instruction, about")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated latencies are divided by this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = measure(Path(directory), options)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
