"""How near the estimate of a check is to what the next run then does, after one earlier run.

    uv run python -m tests.bench.estimates [CONFIG …] [--steps N] [--json]

Each config is run twice in a project directory of its own: the first run is what the estimate is made from, the second
is what it is compared with. Without a config: every bundled example that needs no account; the one of the library trains
in_process_direct. Fine-tuning is known from its data alone: its steps and tokens are compared, and it has no bounds of
time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.hosting.library import train
from engine.project import Project, load
from engine.store.store import Store

EXAMPLES = (
    "examples/in_process_direct/train.toml",
    "examples/tool_agent/train_local.toml",
    "examples/tool_agent/train_async.toml",
    "examples/test_suite_agent/train_local.toml",
    "examples/sft_tool_use/sft.toml",
    "examples/sft_tool_use/rl.toml",
)
#: What begins with the weights of another example, which is trained to its end before.
AFTER = {"examples/sft_tool_use/rl.toml": "examples/sft_tool_use/sft.toml"}
WITHIN = 0.25


async def compare(config: str, steps: int, directory: Path) -> dict[str, Any]:
    """The estimate and what the run then did, by amount; ``wall`` is seconds, against its two bounds."""

    overrides: dict[str, Any] = {"training.max_steps": steps}
    if (before := AFTER.get(config)) is not None:
        project = load(before, working_dir=directory)
        await train(project)
        project.close()
        overrides["model.from_checkpoint"] = _newest(directory)

    if load(config, working_dir=directory).config.recipe == "sft":
        overrides["training.warmup_steps"] = 0  # so few steps have no room for it

    def loaded(seed: int) -> Project:
        return load(config, {**overrides, "training.seed": seed}, working_dir=directory)

    first = loaded(1)
    recipe = first.config.recipe
    await train(first)
    first.close()
    second = loaded(2)
    try:
        report = await second.check()
        estimated = report.estimate
        if estimated is None or not (estimated["measured"] or recipe == "sft"):
            raise SystemExit(f"{config}: the check made no estimate from the earlier run")
        began = time.monotonic()
        await train(second)
        wall = time.monotonic() - began
    finally:
        second.close()
    did = _trained(directory) if recipe == "sft" else _sampled(directory)
    return {
        "config": config,
        "amounts": {
            name: {"estimated": estimated[name], "did": amount, "off": estimated[name] / amount - 1}
            for name, amount in did.items()
        },
        "wall": {"low": estimated.get("wall_low"), "high": estimated.get("wall_high"), "did": wall},
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


def holds(found: dict[str, Any]) -> bool:
    """Whether every amount is near enough, and the time within its bounds."""
    wall = found["wall"]
    near = all(abs(amount["off"]) <= WITHIN for amount in found["amounts"].values())
    return near and (wall["low"] is None or wall["low"] <= wall["did"] <= wall["high"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", default=EXAMPLES)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found: list[dict[str, Any]] = []
    for config in chosen.configs:
        with tempfile.TemporaryDirectory() as scratch:
            found.append(asyncio.run(compare(config, chosen.steps, Path(scratch))))
        if not chosen.json:
            _tell(found[-1])
    if chosen.json:
        print(json.dumps(found))
    missed = [each["config"] for each in found if not holds(each)]
    sys.exit(f"the estimate missed: {', '.join(missed)}" if missed else 0)


def _tell(found: dict[str, Any]) -> None:
    print(found["config"])
    for name, amount in found["amounts"].items():
        print(
            f"  {name:16} {amount['estimated']:>10,} estimated {amount['did']:>10,} did {amount['off']:>+7.1%}"
        )
    wall = found["wall"]
    bounds = "no bounds" if wall["low"] is None else f"{wall['low']:.1f} to {wall['high']:.1f} s estimated"
    print(f"  {'wall':16} {bounds}, {wall['did']:.1f} s did", flush=True)


if __name__ == "__main__":
    main()
