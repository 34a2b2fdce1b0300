"""How much the tool agent learns, and how soon: held-out reward against wall time, sync and async.

    uv run python -m tests.bench.tool_agent_learning --mode both [--seed 1] [--steps 25] [--json]

Trains ``examples/tool_agent/train_local.toml``, ``train_async.toml`` or one after the other on the eight tasks, through
the ordinary host and with a checkpoint every few steps. Afterwards, and not counted in the time, it grades the base
model and each checkpoint on ``heldout.jsonl`` (instances that were never trained on), one attempt per task and sampling
seed, in real sandboxes. With both modes the async run has some steps more, and ``compared`` tells after what share of
the sync run's whole time it has the held-out reward with which the sync run ends (``time_ratio``; null: it never has).

Time runs from the beginning of the first step, so that neither mode is charged for starting its server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.config.tasks import load_tasks
from engine.episodes.contract import Task
from engine.episodes.runtime import AttemptPlan, Deadlines, run_attempt
from engine.hosting.host import RunHost
from engine.hosting.local_server import LocalServer, ServerAddress
from engine.loops.pinned import PinnedSampler
from engine.loops.sampling import SamplingSettings
from engine.policy.conversation import Model, ReplyLimits
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.project import Project, load
from engine.recipes.rl.order import sampling_seed
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.settings import SandboxSettings
from engine.store.rows import CheckpointRow, StepRow
from engine.store.store import Store

EXAMPLE = Path(__file__).parents[2] / "examples" / "tool_agent"
CONFIGS = {"sync": "train_local.toml", "async": "train_async.toml"}
AT_ONCE = 16
#: Of a step's time; the rest is between two steps.
SHARES = ("rollout", "train", "held_publish", "publish")

#: A checkpoint, and when its step had ended, in seconds since the first one began.
type Saved = tuple[CheckpointRow, float]


@dataclass
class Point:
    """What the weights after ``step`` earn on held-out tasks: one mean for each sampling seed.

    ``seconds``: when they were there, counted from the beginning of the first step.
    """

    step: int
    seconds: float
    rewards: list[float]
    well_formed: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.rewards)


async def evaluate(
    project: Project, sandboxes: RunSandboxes, sampler: PinnedSampler, renderer: PolicyRenderer, seed: int
) -> tuple[float, float]:
    """(mean reward, share of attempts without a malformed call) of one attempt per held-out task."""
    episode, settings = project.episode(), project.rl
    held_out = load_tasks(EXAMPLE / "heldout.jsonl", episode.task_type)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(task: Any) -> tuple[float, bool]:
        plan = AttemptPlan(
            episode=episode.cls,
            task=Task(task.value, task.id, task.index),
            options=episode.options,
            attempt=0,
            deadlines=Deadlines(60, 120, 60),
            max_retries=2,
            model=lambda trace, tried, waiting: Model(
                sampler=sampler,
                renderer=renderer,
                limits=ReplyLimits(settings.model.max_seq_len, settings.sampling.max_tokens),
                trace=trace,
                seed=lambda call: sampling_seed(900 + seed, task.index, 0, tried, call),
                waiting=waiting,
            ),
            sandboxes=sandboxes.source(
                task.index, 0, lambda level, text: print(level, text, file=sys.stderr, flush=True)
            ),
        )
        async with slots:
            result = await run_attempt(plan)
        if result.reward is None:
            raise SystemExit(f"the attempt at {task.id} was lost: {result.error}")
        return result.reward, not result.metadata.get("malformed_calls")

    graded = await asyncio.gather(*(one(task) for task in held_out))
    return statistics.fmean(reward for reward, _ in graded), statistics.fmean(well for _, well in graded)


async def points(
    project: Project, store: Store, address: ServerAddress, saved: list[Saved], sampling_seeds: int
) -> list[Point]:
    """The base model and each checkpoint, graded."""
    renderer = load_renderer(
        model_name="loops-demo-1m",
        tokenizer_source=project.tokenizer_source,
        template_kwargs=project.config.model.renderer_chat_template_kwargs,
    )
    places: list[tuple[int, float, dict[str, Any]]] = [(0, 0.0, {"base_model": str(project.model_dir)})]
    places += [(row.step, seconds, {"model_path": row.sampler_path}) for row, seconds in saved]
    sandboxes = await RunSandboxes.open(
        store,
        project.working_dir,
        SandboxSettings(memory_mb=256, disk_mb=16),
        attempt_seconds=300,
        run_id=saved[0][0].run_id,
        host_id=None,
    )
    found: list[Point] = []
    try:
        for step, seconds, place in places:
            sampler = await PinnedSampler.open(
                url=address.url,
                api_key=address.key,
                settings=SamplingSettings(stop=renderer.stop_token_ids),
                **place,
            )
            drawn = [
                await evaluate(project, sandboxes, sampler, renderer, number)
                for number in range(sampling_seeds)
            ]
            await sampler.close()
            point = Point(
                step,
                round(seconds, 1),
                [round(reward, 3) for reward, _ in drawn],
                round(statistics.fmean(well for _, well in drawn), 3),
            )
            print(f"step {step}, {point.seconds:.0f} s: {point.mean:.3f}", file=sys.stderr, flush=True)
            found.append(point)
    finally:
        await sandboxes.close()
    return found


def shares(steps: list[StepRow], seconds: float) -> dict[str, float]:
    """What the run waited for, as shares of its whole time; ``between``: what no step counts, such as a save."""
    spent = {name: sum(row.metrics.get(f"time/{name}", 0.0) for row in steps) / seconds for name in SHARES}
    spent["between"] = 1.0 - sum(spent.values())
    return {name: round(share, 3) for name, share in spent.items()}


async def measure(mode: str, seed: int, steps: int, every: int, sampling_seeds: int) -> dict[str, Any]:
    """Train in one mode, then grade what was saved."""
    overrides = {
        "training.seed": seed,
        "model.seed": seed,
        "training.max_steps": steps,
        "output.checkpoint_every": every,
    }
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        project = load(EXAMPLE / CONFIGS[mode], overrides=overrides, working_dir=directory)
        server = LocalServer(directory)
        try:
            host = RunHost(project, directory, server, kind="headless")
            host.begin()
            run = await host.run()
            if run.error:
                raise SystemExit(f"the run failed: {run.error}")
            with Store.open(directory) as store:
                reader = store.reader()
                rows = reader.steps(run.run_id)
                ended = {row.step: (row.ended_at or 0.0) - rows[0].started_at for row in rows}
                saved = [(row, ended[row.step]) for row in reader.checkpoints(run.run_id) if row.sampler_path]
                saved.sort(key=lambda each: each[0].step)
                address = await asyncio.to_thread(server.start)
                found = await points(project, store, address, saved, sampling_seeds)
        finally:
            server.close()
            project.close()
    last = [row.metrics for row in rows]
    return {
        "mode": mode,
        "seed": seed,
        "steps": run.step,
        "seconds": round(ended[run.step], 1),
        "shares": shares(rows, ended[run.step]),
        "slots_busy": round(statistics.fmean(row["slots/busy"] for row in last), 3),
        "lag_mean": round(statistics.fmean(row.get("lag/mean", 0.0) for row in last), 3),
        "lag_max": max(row.get("lag/max", 0.0) for row in last),
        "train_reward": [round(row["reward/mean_with_unusable"], 3) for row in last],
        "held_out": [asdict(point) | {"mean": round(point.mean, 3)} for point in found],
        "gain": round(found[-1].mean - found[0].mean, 3),
    }


def seconds_to(reward: float, points: list[dict[str, Any]]) -> float | None:
    """When the best held-out reward so far reaches this one, on straight lines between checkpoints; None: never."""
    before, best = 0.0, points[0]["mean"]
    if best >= reward:
        return 0.0
    for point in points[1:]:
        if point["mean"] >= reward:
            share = (reward - best) / (point["mean"] - best)
            return before + share * (point["seconds"] - before)
        if point["mean"] > best:
            before, best = point["seconds"], point["mean"]
    return None


def compared(sync: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """How the async run's wall time stands to the sync run's.

    ``time_ratio``: until the sync run's last reward, over the sync run's whole time. ``level_ratios``: to each reward
    of the sync run's curve, over the time in which the sync run got there; their mean forgives a lucky last point.
    ``step_ratio``: of the mean time for a step.
    """
    wanted = sync["held_out"][-1]["mean"]
    reached = seconds_to(wanted, other["held_out"])
    ratios: list[float | None] = []
    for point in sync["held_out"][1:]:
        first = seconds_to(point["mean"], sync["held_out"])
        there = seconds_to(point["mean"], other["held_out"])
        ratios.append(round(there / first, 3) if there is not None and first else None)
    told = [ratio for ratio in ratios if ratio is not None]
    per_step = (other["seconds"] / other["steps"]) / (sync["seconds"] / sync["steps"])
    return {
        "wanted_reward": wanted,
        "sync_seconds": sync["seconds"],
        "async_seconds": None if reached is None else round(reached, 1),
        "time_ratio": None if reached is None else round(reached / sync["seconds"], 3),
        "level_ratios": ratios,
        "level_ratio_mean": round(statistics.fmean(told), 3) if told else None,
        "step_ratio": round(per_step, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mode", choices=("sync", "async", "both"), default="sync")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--every", type=int, default=5, help="steps between two checkpoints that are graded")
    parser.add_argument("--sampling-seeds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    result: dict[str, Any] = {}
    for mode in CONFIGS if chosen.mode == "both" else [chosen.mode]:
        print(f"{mode}:", file=sys.stderr, flush=True)
        # With both, the async run goes on for a while: it learns from older samples, and luck may favour the sync run.
        steps = chosen.steps + (chosen.every if (mode, chosen.mode) == ("async", "both") else 0)
        result[mode] = asyncio.run(measure(mode, chosen.seed, steps, chosen.every, chosen.sampling_seeds))
    if chosen.mode == "both":
        result["compared"] = compared(result["sync"], result["async"])
    if chosen.json:
        print(json.dumps(result))
        return
    for name, part in result.items():
        print(f"{name}:")
        for key, value in part.items():
            print(f"  {key}: {value}")


if __name__ == "__main__":
    main()
