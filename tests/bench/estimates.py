"""How near the estimate of a check is to what the next run then does, after one earlier run.

    uv run python -m tests.bench.estimates [CONFIG …] [--steps N] [--json]

Each config is run twice in a project directory of its own: the first run is what the estimate is made from, the second
is what it is compared with. Without a config: the two bundled RL examples that need no account.
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

EXAMPLES = ("examples/in_process_direct/train.toml", "examples/tool_agent/train_local.toml")
AMOUNTS = ("attempts", "calls", "prompt_tokens", "sampled_tokens")
WITHIN = 0.25


async def compare(config: str, steps: int, directory: Path) -> dict[str, Any]:
    """The estimate and what the run then did, by amount; ``wall`` is seconds, against its two bounds."""

    def loaded(seed: int) -> Project:
        overrides = {"training.max_steps": steps, "training.seed": seed}
        return load(config, overrides=overrides, working_dir=directory)

    first = loaded(1)
    await train(first)
    first.close()
    second = loaded(2)
    try:
        report = await second.check()
        estimated = report.estimate
        if estimated is None or not estimated["measured"]:
            raise SystemExit(f"{config}: the check made no estimate from the earlier run")
        began = time.monotonic()
        await train(second)
        wall = time.monotonic() - began
    finally:
        second.close()
    did = _amounts(directory)
    return {
        "config": config,
        **{
            name: {"estimated": estimated[name], "did": did[name], "off": estimated[name] / did[name] - 1}
            for name in AMOUNTS
        },
        "wall": {"low": estimated["wall_low"], "high": estimated["wall_high"], "did": wall},
    }


def _amounts(directory: Path) -> dict[str, int]:
    """What the newest run of a project did, counted from its rows."""
    with Store.open(directory) as store:
        reader = store.reader()
        run = reader.runs(limit=1)[0]
        groups = [group.group_id for group in reader.groups(run.run_id, 1_000_000) if group.group_id >= 0]
        rows = [
            row for group in groups for row in reader.attempts(run.run_id, group) if row.ended_at is not None
        ]
    return {
        "attempts": len(rows),
        "calls": sum(row.turns for row in rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "sampled_tokens": sum(row.sampled_tokens for row in rows),
    }


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
    worst = max(abs(each[name]["off"]) for each in found for name in AMOUNTS)
    sys.exit(f"the estimate is {worst:.0%} off" if worst > WITHIN else 0)


def _tell(found: dict[str, Any]) -> None:
    print(found["config"])
    for name in AMOUNTS:
        amount = found[name]
        print(
            f"  {name:16} {amount['estimated']:>10,} estimated {amount['did']:>10,} did {amount['off']:>+7.1%}"
        )
    wall = found["wall"]
    print(
        f"  {'wall':16} {wall['low']:.1f} to {wall['high']:.1f} s estimated, {wall['did']:.1f} s did",
        flush=True,
    )


if __name__ == "__main__":
    main()
