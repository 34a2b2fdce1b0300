"""Load, check and train a config from a program; stop early when the reward is good enough.

python train_from_python.py [CONFIG] [--steps N] [--until REWARD]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from engine.project import Project, load
from engine.recipes.contract import RunFailed
from engine.recipes.control import RunControl
from engine.store import Store

EXAMPLE = "examples/in_process_direct/train.toml"  # a bundled example's path works from any directory
LOOK_SECONDS = 0.5


async def main(config: str, steps: int, until: float) -> int:
    project = load(config, overrides={"training.max_steps": steps})
    try:
        report = await project.check()
        print("\n".join([*project.describe(), *report.describe()]))
        if not report.ok:
            return 2
        control = RunControl()  # stop, pause or abort the run from another task, or from another thread
        watching = asyncio.create_task(stop_when_good(project, control, until))
        try:
            outcome = await project.train(control=control)
        except RunFailed as failure:
            print(f"failed: {failure}")
            return 1
        finally:
            watching.cancel()
        print(f"{outcome.state} after {outcome.steps} steps: {outcome.reward_first} to {outcome.reward_last}")
        return 0
    finally:
        project.close()  # forgets the modules that the config's directory brought


async def stop_when_good(project: Project, control: RunControl, until: float) -> None:
    """Everything a run does is in the project's store while it happens; here it is asked now and then."""
    while not control.stopping:
        await asyncio.sleep(LOOK_SECONDS)
        reward = await asyncio.to_thread(last_reward, project.working_dir)
        if reward is not None and reward >= until:
            control.stop_after_step(f"the mean reward is {reward:.2f}")


def last_reward(project_dir: Path) -> float | None:
    if not Store.exists(project_dir):
        return None
    with Store.open(project_dir) as store:
        newest = store.reader().runs(limit=1)
    return newest[0].reward_last if newest and not newest[0].state.final else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?", default=EXAMPLE)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--until", type=float, default=0.9)
    chosen = parser.parse_args()
    sys.exit(asyncio.run(main(chosen.config, chosen.steps, chosen.until)))
