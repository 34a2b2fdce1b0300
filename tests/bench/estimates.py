"""How near the estimate of a check is to what the next run then does, after one earlier run.

    uv run python -m tests.bench.estimates [CONFIG …] [--steps N] [--seed N] [--json]

Each config is run twice in a project directory of its own: the first run, with seed 1, is what the estimate is made
from; the second, with seed 2 or ``--seed``, is what it is compared with. A sync run with the seed of the first repeats
it on this machine; another seed is the harder question, for it has luck of its own: how many groups are rejected, since
all their attempts earn the same. So each example has a number of steps in which that luck does not decide (see
``EXAMPLES``), and the range of attempts that the check calls likely is compared, too. Without a config: every bundled
example that needs no account; the one of the library trains in_process_direct. Fine-tuning is known from its data alone:
its steps and tokens are compared, and it has no bounds of time.

Bounds of time are for the steps of a run, without its start and its evaluations, and hold where the machine is as busy
in the second run as in the first: ``load`` is its load average as each began.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine.hosting.library import train
from engine.project import Project, load
from engine.store.store import Store

#: Each example with the steps that it is run for; None: as it ships.
EXAMPLES: dict[str, int | None] = {
    # Its one task is learned by step 12. Of the 32 attempts at it, one has to fail then for a group to train: a step
    # takes anything from 1 to 18 groups, and 16 steps take from 22 to 40.
    "examples/in_process_direct/train.toml": 10,
    "examples/tool_agent/train_local.toml": 4,
    "examples/tool_agent/train_async.toml": 4,
    "examples/test_suite_agent/train_local.toml": 6,
    "examples/sft_tool_use/sft.toml": 20,
    # Two groups of five are rejected: a step takes 13 groups, give or take 3, and 8 steps 107, give or take 8.
    "examples/sft_tool_use/rl.toml": None,
}
#: What begins with the weights of another example, which is trained to its end before.
AFTER = {"examples/sft_tool_use/rl.toml": "examples/sft_tool_use/sft.toml"}
WITHIN = 0.25


async def compare(config: str, steps: int | None, seed: int, directory: Path) -> dict[str, Any]:
    """The estimate and what the run then did, by amount; ``wall`` is seconds, against its two bounds."""

    overrides: dict[str, Any] = {} if steps is None else {"training.max_steps": steps}
    if (before := AFTER.get(config)) is not None:
        project = load(before, working_dir=directory)
        await train(project)
        project.close()
        overrides["model.from_checkpoint"] = _newest(directory)

    if steps is not None and load(config, working_dir=directory).config.recipe == "sft":
        overrides["training.warmup_steps"] = 0  # so few steps have no room for it

    def loaded(seed: int) -> Project:
        return load(config, {**overrides, "training.seed": seed}, working_dir=directory)

    first = loaded(1)
    recipe = first.config.recipe
    loads = [os.getloadavg()[0]]
    await train(first)
    first.close()
    second = loaded(seed)
    try:
        report = await second.check()
        estimated = report.estimate
        if estimated is None or not (estimated["measured"] or recipe == "sft"):
            raise SystemExit(f"{config}: the check made no estimate from the earlier run")
        loads.append(os.getloadavg()[0])
        await train(second)
    finally:
        second.close()
    did = _trained(directory) if recipe == "sft" else _sampled(directory)
    likely = None
    if recipe != "sft":
        low, high = estimated["attempts_low"], estimated["attempts_high"]
        likely = {"low": low, "high": high, "holds": low <= did["attempts"] <= high}
    return {
        "config": config,
        "steps": estimated["steps"],
        "amounts": {
            name: {"estimated": estimated[name], "did": amount, "off": estimated[name] / amount - 1}
            for name, amount in did.items()
        },
        "likely": likely,
        "wall": {
            "low": estimated.get("wall_low"),
            "high": estimated.get("wall_high"),
            "did": _seconds(directory),
        },
        "load": loads,
    }


def _newest(directory: Path) -> str:
    with Store.open(directory) as store:
        return store.reader().runs(limit=1)[0].run_id


def _sampled(directory: Path) -> dict[str, int]:
    """What the newest run of a project did, counted from its rows, without evaluations."""
    with Store.open(directory) as store:
        reader = store.reader()
        run_id = _newest(directory)
        groups = [group.group_id for group in reader.groups(run_id, 1_000_000) if group.group_id >= 0]
        rows = [row for group in groups for row in reader.attempts(run_id, group) if row.ended_at is not None]
    return {
        "attempts": len(rows),
        "calls": sum(row.turns for row in rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "sampled_tokens": sum(row.sampled_tokens for row in rows),
    }


def _trained(directory: Path) -> dict[str, int]:
    """The same of fine-tuning."""
    with Store.open(directory) as store:
        reader = store.reader()
        steps = reader.steps(_newest(directory))
    return {"steps": len(steps), "tokens": int(sum(step.metrics["tokens/total"] for step in steps))}


def _seconds(directory: Path) -> float:
    """How long the steps of the newest run took, together."""
    with Store.open(directory) as store:
        steps = store.reader().steps(_newest(directory))
    return sum(step.ended_at - step.started_at for step in steps if step.ended_at is not None)


def holds(found: dict[str, Any]) -> bool:
    """Whether every amount is near enough, and the time within its bounds."""
    wall = found["wall"]
    near = all(abs(amount["off"]) <= WITHIN for amount in found["amounts"].values())
    return near and (wall["low"] is None or wall["low"] <= wall["did"] <= wall["high"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", default=list(EXAMPLES))
    parser.add_argument("--steps", type=int, help="of each config; without it, as listed, or as it ships")
    parser.add_argument("--seed", type=int, default=2, help="of the second run; 1 repeats the first")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found: list[dict[str, Any]] = []
    for config in chosen.configs:
        steps = EXAMPLES.get(config) if chosen.steps is None else chosen.steps
        with tempfile.TemporaryDirectory() as scratch:
            found.append(asyncio.run(compare(config, steps, chosen.seed, Path(scratch))))
        if not chosen.json:
            _tell(found[-1])
    if chosen.json:
        print(json.dumps(found))
    missed = [each["config"] for each in found if not holds(each)]
    sys.exit(f"the estimate missed: {', '.join(missed)}" if missed else 0)


def _tell(found: dict[str, Any]) -> None:
    first, second = found["load"]
    print(f"{found['config']}, {found['steps']} steps, load {first:.1f} and {second:.1f}")
    for name, amount in found["amounts"].items():
        print(
            f"  {name:16} {amount['estimated']:>10,} estimated {amount['did']:>10,} did {amount['off']:>+7.1%}"
        )
    if (likely := found["likely"]) is not None:
        verdict = "so it was" if likely["holds"] else "it was not"
        print(f"  {'likely':16} {likely['low']:,} to {likely['high']:,} attempts: {verdict}")
    wall = found["wall"]
    bounds = "no bounds" if wall["low"] is None else f"{wall['low']:.1f} to {wall['high']:.1f} s estimated"
    print(f"  {'wall':16} {bounds}, {wall['did']:.1f} s did", flush=True)


if __name__ == "__main__":
    main()
