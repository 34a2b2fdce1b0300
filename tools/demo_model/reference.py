"""Write a few logits of the JAX network beside the tests, which compare an independent NumPy forward with them.

python -m tools.demo_model.reference --model MODEL_DIR --out tests/local_loops/demo_model_reference.json
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np

from . import network
from .chat import SYSTEM_PROMPTS, load_renderer, tools
from .checkpoint import read
from .demonstrations import demonstrate
from .families import make_task


def write(model_dir: Path, out: Path) -> None:
    shape, params = read(model_dir)
    _, renderer = load_renderer(model_dir)
    messages = demonstrate(make_task("config_set", "reference"), random.Random(5))
    system = {"role": "system", "content": SYSTEM_PROMPTS[0]}
    ids = list(renderer.render_ids([system, *messages], tools=tools()))
    found = np.asarray(network.logits(shape, params, np.array([ids])))[0]
    positions = [0, 1, 17, len(ids) // 2, len(ids) - 3]
    entries = list(range(0, shape.vocabulary, 37))
    kept = [[round(float(found[p, v]), 5) for v in entries] for p in positions]
    text = json.dumps({"ids": ids, "positions": positions, "entries": entries, "logits": kept})
    out.write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    write(arguments.model, arguments.out)


if __name__ == "__main__":
    main()
