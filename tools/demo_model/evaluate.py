"""Measure the policy at temperature 1: tasks it has never seen, real commands, several sampling seeds.

python -m tools.demo_model.evaluate --model MODEL_DIR --out measured.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

from .chat import load_renderer
from .checkpoint import read
from .families import FAMILIES, make_task
from .known_tasks import KNOWN_TASKS
from .rollout import Episode, Policy, play
from .short_answers import GAME_PROMPTS, GAME_SYSTEM_PROMPTS, GAMES

ATTEMPTS = 4


def _figures(episodes: list[Episode]) -> dict[str, float]:
    groups = [episodes[i : i + ATTEMPTS] for i in range(0, len(episodes), ATTEMPTS)]
    sums = [sum(e.reward for e in group) for group in groups]
    return {
        "reward": float(np.mean([e.reward for e in episodes])),
        # Attempts at one task are alike, so the error is that of the groups' means.
        "standard_error": float(np.std(sums) / ATTEMPTS / np.sqrt(len(groups))),
        "valid_calls": sum(e.valid_calls for e in episodes) / max(1, sum(e.calls for e in episodes)),
        "final_reply": float(np.mean([e.state == "final" for e in episodes])),
        "groups_that_disagree": float(np.mean([0 < s < ATTEMPTS for s in sums])),
        "tokens": float(np.mean([len(e.ids) for e in episodes])),
        "calls": float(np.mean([e.calls for e in episodes])),
        "episodes": len(episodes),
    }


def file_tasks(policy: Policy, instances: int, seeds: list[int], held_out: bool = False) -> dict[str, Any]:
    found: dict[str, list[Episode]] = defaultdict(list)
    per_seed = []
    for seed in seeds:
        tasks = [
            make_task(family, f"evaluation{seed}/{i}", held_out)
            for family in FAMILIES
            for i in range(instances)
            for _ in range(ATTEMPTS)
        ]
        episodes = play(policy, tasks, seed)
        per_seed.append(float(np.mean([e.reward for e in episodes])))
        for episode in episodes:
            found[episode.task.family].append(episode)
    everything = [e for episodes in found.values() for e in episodes]
    return {
        "all": _figures(everything),
        "reward_per_seed": per_seed,
        "families": {family: _figures(episodes) for family, episodes in found.items()},
        "traces": {
            family: [(e.task.instruction, e.reward, e.state, e.trace) for e in es[:3]]
            for family, es in found.items()
        },
    }


def known_tasks(policy: Policy, attempts: int = 64) -> dict[str, Any]:
    out = {}
    for name, task in KNOWN_TASKS.items():
        episodes = play(policy, [task] * attempts, 900)
        out[name] = _figures(episodes)
    return out


def games(policy: Policy, samples: int = 256) -> dict[str, Any]:
    """Each game's share of the answers, for every wording of the prompt."""
    out = {}
    for system in (None, GAME_SYSTEM_PROMPTS[0]):
        for prompt in GAME_PROMPTS:
            messages = [] if system is None else [{"role": "system", "content": system}]
            messages = [*messages, {"role": "user", "content": prompt}]
            ids = policy.renderer.render_ids(messages, add_generation_prompt=True)
            replies = policy.reply([ids] * samples, [], 77, count=8)
            words = Counter(policy.renderer.parse_response(r, prompt_ids=ids).content for r in replies)
            shares = {game: words[game] / samples for game in GAMES}
            out[f"{system or '-'} | {prompt}"] = {"known": sum(shares.values()), "shares": shares}
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--instances", type=int, default=6, help="tasks per family and seed, 4 attempts each")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--traces", action="store_true", help="print a few episodes")
    arguments = parser.parse_args()
    started = time.time()
    policy = Policy(*read(arguments.model), *load_renderer(arguments.model))
    seeds = list(range(1, arguments.seeds + 1))
    measured = {
        "new_instances": file_tasks(policy, arguments.instances, seeds),
        "held_out_words": file_tasks(policy, max(2, arguments.instances // 2), seeds[:2], held_out=True),
        "known_tasks": known_tasks(policy),
        "games": games(policy),
    }
    for pool in ("new_instances", "held_out_words"):
        traces = measured[pool].pop("traces")
        if arguments.traces:
            for family, shown in traces.items():
                print(*[(family, *t) for t in shown], sep="\n")
    for family in FAMILIES:
        new, held = (measured[p]["families"][family] for p in ("new_instances", "held_out_words"))
        print(
            f"{family:14s} reward {new['reward']:.2f} (held-out words {held['reward']:.2f})  "
            f"valid {new['valid_calls']:.3f}  disagree {new['groups_that_disagree']:.2f}"
        )
    print(
        {k: round(v, 3) for k, v in measured["new_instances"]["all"].items()},
        measured["new_instances"]["reward_per_seed"],
    )
    print({k: round(v, 3) for k, v in measured["held_out_words"]["all"].items()})
    for name, figures in measured["known_tasks"].items():
        print(f"{name}: reward {figures['reward']:.2f}, valid {figures['valid_calls']:.3f}")
    for prompt, found in measured["games"].items():
        shares = found["shares"].values()
        print(f"{prompt}: known {found['known']:.3f}, shares {min(shares):.3f}-{max(shares):.3f}")
    arguments.out.write_text(json.dumps(measured, indent=1) + "\n")
    print(f"measured in {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
