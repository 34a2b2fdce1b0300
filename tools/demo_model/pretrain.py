"""Pretrain the policy: a fixed number of steps from a fixed seed, on one core.

The rate stays constant until the last `--decay-steps`, and what changes over time changes only there. So a
checkpoint of a long run can be finished early: continuing it with a smaller `--steps` gives exactly what a run of
that many steps would have given.

    python -m tools.demo_model.pretrain --tokenizer DIR --rows rows.npz --out run/ --steps 3950
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

# One thread, set before JAX is imported: figures then do not depend on what else the machine does.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import numpy as np

from . import network, optimizer
from .batches import Batches
from .chat import load_renderer

RATE, WARMUP = 2e-3, 100
STEADY_DRILLS, FINAL_DRILLS = 0.15, 0.05
STEADY_PREFIX, FINAL_PREFIX = 0.25, 0.35


def save(path: Path, params: Any, state: Any, step: int, history: list[list[float]]) -> None:
    leaves = jax.tree.leaves((params, state))
    part = path.with_suffix(".part.npz")
    np.savez(part, *[np.asarray(x) for x in leaves], step=step, history=np.array(history))
    part.replace(path)


def load(path: Path, shape: network.Shape) -> tuple[Any, Any, int, list[list[float]]]:
    params = network.init(shape, 0)
    structure = jax.tree.structure((params, optimizer.start(params)))
    data = np.load(path)
    leaves = [jnp.asarray(data[f"arr_{i}"]) for i in range(structure.num_leaves)]
    params, state = jax.tree.unflatten(structure, leaves)
    return params, state, int(data["step"]), data["history"].tolist()


def _rate(step: int, steps: int, decay_steps: int) -> float:
    if step <= steps - decay_steps:
        return RATE * min(1.0, step / WARMUP)
    left = (steps - step) / decay_steps
    return RATE * max(0.02, 0.5 * (1 - math.cos(math.pi * left)))


def run(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    tokenizer, renderer = load_renderer(arguments.tokenizer)
    shape = network.Shape(vocabulary=len(tokenizer))
    batches = Batches(arguments.rows, tokenizer, renderer, arguments.seed)

    def loss(params: Any, tokens: Any, weights: Any, prefix: Any, pad: Any) -> tuple[Any, Any]:
        found = network.log_probs(shape, params, tokens, prefix, pad)
        sampled = weights >= 1
        return -(found * weights).sum() / weights.sum(), -jnp.where(sampled, found, 0).sum() / sampled.sum()

    @jax.jit
    def advance(  # noqa: PLR0917
        params: Any, state: Any, step: Any, rate: Any, tokens: Any, weights: Any, prefix: Any, pad: Any
    ) -> Any:
        (_, shown), grads = jax.value_and_grad(loss, has_aux=True)(params, tokens, weights, prefix, pad)
        return *optimizer.update(params, grads, state, step, rate, decay=0.02), shown

    if arguments.resume:
        params, state, first, history = load(arguments.resume, shape)
    else:
        params, first, history = network.init(shape, arguments.seed), 0, []
        state = optimizer.start(params)
    started = time.time() - (history[-1][2] if history else 0.0)  # with the time before a resume
    recent: list[float] = []
    for step in range(first + 1, arguments.steps + 1):
        steady = step <= arguments.steps - arguments.decay_steps
        batch = batches.at(
            step, STEADY_DRILLS if steady else FINAL_DRILLS, STEADY_PREFIX if steady else FINAL_PREFIX
        )
        rate = _rate(step, arguments.steps, arguments.decay_steps)
        params, state, shown = advance(
            params, state, float(step), rate, batch.tokens, batch.weights, batch.prefix, batch.pad
        )
        if not batch.drill:
            recent.append(float(shown))
        if recent and (step % arguments.report_every == 0 or step == arguments.steps):
            history.append([step, float(np.mean(recent)), time.time() - started])
            print(f"step {step} loss {history[-1][1]:.4f} after {history[-1][2]:.0f} s", flush=True)
            recent = []
        if step % arguments.save_every == 0 or step == arguments.steps:
            save(out / f"step-{step}.npz", params, state, step, history)
    print(f"{arguments.steps} steps in {time.time() - started:.0f} s, {arguments.steps - first} of them now")
    summary = {
        "steps": arguments.steps,
        "decay_steps": arguments.decay_steps,
        "seed": arguments.seed,
        "rate": RATE,
        "loss": history[-1][1] if history else None,
        "parameters": int(sum(x.size for x in jax.tree.leaves(params))),
        "wall_seconds": round(time.time() - started),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3950)
    parser.add_argument("--decay-steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report-every", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--resume", type=Path, help="a checkpoint to continue from")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
