"""How much the tool agent learns: held-out reward before and after training, over several sampling seeds.

    uv run python -m tests.bench.tool_agent_learning --seed 1 --steps 25 [--json]

Trains ``examples/tool_agent/train_local.toml`` on its eight tasks through the ordinary host, then grades the base
model and the trained weights on ``heldout.jsonl`` (instances that were never trained on), one attempt per task and
sampling seed, in real sandboxes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.config.tasks import load_tasks
from engine.episodes.contract import Task
from engine.episodes.runtime import AttemptPlan, Deadlines, run_attempt
from engine.hosting.host import RunHost
from engine.hosting.local_server import LocalServer
from engine.loops.pinned import PinnedSampler
from engine.loops.sampling import SamplingSettings
from engine.policy.conversation import Model, ReplyLimits
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.project import Project, load
from engine.recipes.rl.order import sampling_seed
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.settings import SandboxSettings
from engine.store.store import Store

EXAMPLE = Path(__file__).parents[2] / "examples" / "tool_agent"
AT_ONCE = 16


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
            sandboxes=sandboxes.source(task.index, 0, lambda level, text: print(level, text, flush=True)),
        )
        async with slots:
            result = await run_attempt(plan)
        if result.reward is None:
            raise SystemExit(f"the attempt at {task.id} was lost: {result.error}")
        return result.reward, not result.metadata.get("malformed_calls")

    graded = await asyncio.gather(*(one(task) for task in held_out))
    return statistics.fmean(reward for reward, _ in graded), statistics.fmean(well for _, well in graded)


async def measure(seed: int, steps: int, sampling_seeds: int, directory: Path) -> dict[str, Any]:
    overrides = {"training.seed": seed, "model.seed": seed, "training.max_steps": steps}
    project = load(EXAMPLE / "train_local.toml", overrides=overrides, working_dir=directory)
    server = LocalServer(directory)
    try:
        host = RunHost(project, directory, server, kind="headless")
        host.begin()
        began = time.monotonic()
        run = await host.run()
        seconds = time.monotonic() - began
        if run.error or run.loops_run_id is None:
            raise SystemExit(f"the run failed: {run.error}")
        store = Store.open(directory)
        curve = [
            step.metrics["reward/mean_with_unusable"]
            for step in store.reader().steps(run.run_id)
            if "reward/mean_with_unusable" in step.metrics
        ]
        address = await asyncio.to_thread(server.start)
        renderer = load_renderer(
            model_name="loops-demo-1m",
            tokenizer_source=project.tokenizer_source,
            template_kwargs=project.config.model.renderer_chat_template_kwargs,
        )
        chosen = SamplingSettings(stop=renderer.stop_token_ids)
        sandboxes = await RunSandboxes.open(
            store,
            directory,
            SandboxSettings(memory_mb=256, disk_mb=16),
            attempt_seconds=300,
            run_id=run.run_id,
            host_id=None,
        )
        try:
            result: dict[str, Any] = {
                "seed": seed,
                "steps": run.step,
                "train_seconds": round(seconds, 1),
                "train_reward": [round(value, 3) for value in curve],
            }
            trained = f"bt://loops:{run.loops_run_id}/sampler_weights/default"
            base = str(project.model_dir)
            places: dict[str, dict[str, Any]] = {
                "before": {"base_model": base},
                "after": {"model_path": trained},
            }
            for name, place in places.items():
                sampler = await PinnedSampler.open(
                    url=address.url, api_key=address.key, settings=chosen, **place
                )
                drawn = [
                    await evaluate(project, sandboxes, sampler, renderer, number)
                    for number in range(sampling_seeds)
                ]
                await sampler.close()
                result[f"held_out_{name}"] = [round(reward, 3) for reward, _ in drawn]
                result[f"well_formed_{name}"] = round(statistics.fmean(well for _, well in drawn), 3)
            before = statistics.fmean(result["held_out_before"])
            after = statistics.fmean(result["held_out_after"])
            result["gain"] = round(after - before, 3)
            return result
        finally:
            await sandboxes.close()
            store.close()
    finally:
        server.close()
        project.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--sampling-seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = asyncio.run(measure(chosen.seed, chosen.steps, chosen.sampling_seeds, Path(directory)))
    if chosen.json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
