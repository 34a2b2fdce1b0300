"""How far the local server's sampler and trainer are apart on the tokens that were sampled: Schulman's k3 estimate of KL.

    uv run python -m tests.bench.divergence [--steps 4] [--json]

Two bundled examples are trained for a few steps, each step on what the policy just before it has sampled: the two should
agree to the last bits. k3 = mean over the tokens of exp(d) - 1 - d with d = logprob(trainer) - logprob(sampler); see
http://joschu.net/blog/kl-approx.html. The exit status is 0 if the largest of all steps is below 1e-6.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from engine.hosting.library import train
from engine.project import load
from engine.store.store import Store
from tests.faults.result import tell

EXAMPLES = ("examples/in_process_direct/train.toml", "examples/tool_agent/train_local.toml")
METRIC = "optim/train-sample-div/kl_sample_train_k3"
BOUND = 1e-6


async def largest(config: str, steps: int) -> tuple[float, int]:
    """The largest k3 of so many steps, and how many tokens were compared. Raises SystemExit where a step is missing."""
    small = {"training.max_steps": steps, "training.groups_per_step": 2}
    with tempfile.TemporaryDirectory() as place:
        project = load(config, small, working_dir=Path(place))
        try:
            await train(project)
        finally:
            project.close()
        with Store.open(Path(place)) as store:
            reader = store.reader()
            done = reader.steps(reader.runs(limit=1)[0].run_id)
    if len(done) != steps:
        raise SystemExit(f"{config}: {len(done)} of {steps} steps were trained")
    k3 = max(abs(step.metrics[METRIC]) for step in done)
    return k3, int(sum(step.metrics["tokens/trained"] for step in done))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=4, help="of each example")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    chosen = parser.parse_args()
    found = {config: asyncio.run(largest(config, chosen.steps)) for config in EXAMPLES}
    k3 = max(k3 for k3, _ in found.values())
    result = {
        "k3_by_config": {config: k3 for config, (k3, _) in found.items()},
        "tokens": sum(tokens for _, tokens in found.values()),
        "k3": k3,
        "ok": k3 < BOUND,
    }
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
