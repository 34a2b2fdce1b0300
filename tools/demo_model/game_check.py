"""Check that the one-word game can be learnt: plain policy gradient, LoRA rank 8, 16 attempts a step.

python -m tools.demo_model.game_check --model MODEL_DIR --out game.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import numpy as np

from . import network, optimizer
from .chat import load_renderer
from .checkpoint import read
from .rollout import Policy
from .short_answers import GAME_PROMPTS, GAMES

RANK, SCALE, RATE, ATTEMPTS, LENGTH = 8, 2.0, 3e-3, 16, 64


def _lora(shape: network.Shape, seed: int) -> dict[str, Any]:
    keys = iter(jax.random.split(jax.random.key(seed), 8))
    return {
        name: (
            jax.random.normal(next(keys), (shape.layers, RANK, inner)) / np.sqrt(inner),
            jnp.zeros((shape.layers, outer, RANK)),
        )
        for name, (outer, inner) in shape.matrices().items()
    }


def learn(policy: Policy, hidden: str, seed: int, steps: int) -> list[float]:
    """Mean reward of each step."""
    shape, base = policy.shape, policy.params
    messages = [{"role": "user", "content": GAME_PROMPTS[0]}]
    prompt = list(policy.renderer.render_ids(messages, add_generation_prompt=True))

    @jax.jit
    def advance(lora: Any, state: Any, step: Any, tokens: Any, weights: Any) -> Any:
        def loss(lora: Any) -> Any:
            merged = network.merge_lora(base, lora, SCALE)
            return -(network.log_probs(shape, merged, tokens) * weights).sum()

        return optimizer.update(lora, jax.grad(loss)(lora), state, step, RATE, second=0.95)

    lora = _lora(shape, seed)
    state = optimizer.start(lora)
    merge = jax.jit(lambda lora: network.merge_lora(base, lora, SCALE))
    rewards = []
    for step in range(1, steps + 1):
        current = Policy(shape, merge(lora), policy.tokenizer, policy.renderer)
        replies = current.reply([prompt] * ATTEMPTS, [], seed * 1000 + step, count=8)
        found = [policy.renderer.parse_response(r, prompt_ids=prompt).content == hidden for r in replies]
        advantage = np.array(found, np.float32) - np.mean(found)
        rewards.append(float(np.mean(found)))
        if not advantage.any():
            continue
        tokens, mask = np.zeros((ATTEMPTS, LENGTH), np.int32), np.zeros((ATTEMPTS, LENGTH - 1), np.float32)
        for i, reply in enumerate(replies):
            ids = prompt + reply
            tokens[i, : len(ids)] = ids
            mask[i, len(prompt) - 1 : len(ids) - 1] = 1
        lora, state = advance(lora, state, float(step), tokens, mask / mask.sum() * advantage[:, None])
    return rewards


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25)
    arguments = parser.parse_args()
    policy = Policy(*read(arguments.model), *load_renderer(arguments.model))
    runs = []
    for seed in range(arguments.seeds):
        started = time.time()
        hidden = GAMES[(seed * 5) % len(GAMES)]
        rewards = learn(policy, hidden, seed, arguments.steps)
        above = next((i for i in range(len(rewards) - 2) if np.mean(rewards[i : i + 3]) > 0.9), None)
        runs.append({"seed": seed, "hidden": hidden, "rewards": rewards, "above_0.9_at_step": above})
        shown = [round(r, 2) for r in rewards[:14]]
        print(
            f"{hidden}: {shown} last five {np.mean(rewards[-5:]):.2f}, above 0.9 at {above}, {time.time() - started:.0f} s"
        )
    arguments.out.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
