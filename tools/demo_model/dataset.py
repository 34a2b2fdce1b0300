"""Render demonstrations to token ids, once, before training.

A row of a file task leaves out the block of system prompt and tools: training puts one in front of a whole batch,
where its keys and values are computed once. `SHORT` rows have no such block.

    python -m tools.demo_model.dataset --tokenizer DIR --out rows.npz
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import short_answers
from .chat import load_renderer
from .demonstrations import demonstrate
from .families import FAMILIES, make_task

FILE_TASK, SHORT = 0, 1
GAME_SHARE, QUESTION_SHARE = 0.07, 0.07


def _messages(rng: random.Random) -> tuple[list[dict[str, Any]], int]:
    draw = rng.random()
    if draw < GAME_SHARE:
        return short_answers.game(rng), SHORT
    if draw < GAME_SHARE + QUESTION_SHARE:
        return short_answers.question(rng), SHORT
    task = make_task(rng.choice(list(FAMILIES)), f"train{rng.random()}")
    return demonstrate(task, rng), FILE_TASK


def build(tokenizer_dir: Path, out: Path, count: int, seed: int) -> None:
    started = time.time()
    _, renderer = load_renderer(tokenizer_dir)
    rng = random.Random(seed)
    ids: list[int] = []
    sampled: list[bool] = []
    lengths, kinds = [], []
    for _ in range(count):
        messages, kind = _messages(rng)
        rendered = renderer.render(messages)
        # What follows the last sampled token (the line break after the turn) is never predicted.
        length = len(rendered.sampled_mask)
        while not rendered.sampled_mask[length - 1]:
            length -= 1
        ids += rendered.token_ids[:length]
        sampled += rendered.sampled_mask[:length]
        lengths.append(length)
        kinds.append(kind)
    np.savez(
        out,
        ids=np.array(ids, np.int16),
        sampled=np.array(sampled, np.bool_),
        lengths=np.array(lengths, np.int32),
        kinds=np.array(kinds, np.int8),
    )
    sizes = np.array(lengths)
    print(
        f"{count} rows in {time.time() - started:.0f} s: length mean {sizes.mean():.0f}, "
        f"90 % {np.percentile(sizes, 90):.0f}, longest {sizes.max()}, sampled {np.mean(sampled):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    build(arguments.tokenizer, arguments.out, arguments.rows, arguments.seed)


if __name__ == "__main__":
    main()
