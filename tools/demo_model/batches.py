"""Training batches: rows of similar length together, and drills in copying.

The batch of a step depends on the seed and the step's number alone, so a run that is stopped and taken up again sees
the same data.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .chat import opening, prefix_ids
from .dataset import FILE_TASK

LENGTHS = [64, 96, 128, 160, 208, 272]
TOKENS = 2304  # per batch, padding included: 36 rows of 64, 8 of 272
PREFIX = 224  # the longest opening is a little shorter
CONTEXT_WEIGHT = 0.1  # of the loss on prompts and tool results: they teach the words, but are not the aim
_OPENINGS = 48


@dataclass(frozen=True)
class Batch:
    tokens: np.ndarray  # [rows, length + 1]
    weights: np.ndarray  # [rows, length], for the tokens after the first
    prefix: np.ndarray | None = None  # [PREFIX], padded on the left
    pad: int = 0
    drill: bool = False


class Batches:
    def __init__(self, rows: Path, tokenizer: Any, renderer: Any, seed: int) -> None:
        self._seed = seed
        data = np.load(rows)
        ends = np.cumsum(data["lengths"])
        self._ids, self._sampled = data["ids"].astype(np.int32), data["sampled"]
        self._start, self._end = ends - data["lengths"], ends
        self._buckets: list[tuple[int, bool, np.ndarray]] = []
        below = 0
        for length in LENGTHS:
            fits = (data["lengths"] <= length + 1) & (data["lengths"] > below)
            for tools in (False, True):
                members = np.flatnonzero(fits & ((data["kinds"] == FILE_TASK) == tools))
                if len(members) >= TOKENS // length:
                    self._buckets.append((length, tools, members))
            below = length + 1
        sizes = np.array([len(members) / (TOKENS // length) for length, _, members in self._buckets])
        self._odds = sizes / sizes.sum()
        self._openings = self._render_openings(renderer)
        special = {tokenizer.convert_tokens_to_ids(t) for t in tokenizer.get_added_vocab()}
        self._plain = np.array(
            [i for i in range(len(tokenizer)) if i not in special and tokenizer.decode([i]).strip()]
        )
        self._digits = np.array([tokenizer.convert_tokens_to_ids(d) for d in "0123456789"])

    def _render_openings(self, renderer: Any) -> list[tuple[np.ndarray, int]]:
        rng = random.Random(self._seed)
        out = []
        for _ in range(_OPENINGS):
            ids = prefix_ids(renderer, *opening(rng))
            pad = PREFIX - len(ids)
            if pad >= 0:
                out.append((np.array([0] * pad + ids, np.int32), pad))
        return out

    def at(self, step: int, drill_share: float, prefix_share: float) -> Batch:
        rng = np.random.default_rng([self._seed, step])
        if rng.random() < drill_share:
            return self._drill(rng)
        length, tools, members = self._buckets[rng.choice(len(self._buckets), p=self._odds)]
        chosen = rng.choice(members, TOKENS // length, replace=False)
        tokens = np.zeros((len(chosen), length + 1), np.int32)
        weights = np.zeros((len(chosen), length), np.float32)
        for i, row in enumerate(chosen):
            ids = self._ids[self._start[row] : self._end[row]]
            sampled = self._sampled[self._start[row] : self._end[row]]
            tokens[i, : len(ids)] = ids
            weights[i, : len(ids) - 1] = np.where(sampled[1:], 1.0, CONTEXT_WEIGHT)
        if not tools or rng.random() >= prefix_share:
            return Batch(tokens, weights)
        prefix, pad = self._openings[rng.integers(len(self._openings))]
        return Batch(tokens, weights, prefix, pad)

    def _drill(self, rng: np.random.Generator, length: int = 96) -> Batch:
        """A few made-up "words" of 2-5 tokens that keep coming back; only a repeat's later tokens count.

        This is what teaches copying of names and numbers that no demonstration contains.
        """
        count = TOKENS // length
        tokens = np.zeros((count, length + 1), np.int32)
        weights = np.zeros((count, length + 1), np.float32)
        for i in range(count):
            words = [
                rng.choice(self._digits if rng.random() < 0.3 else self._plain, rng.integers(2, 6))
                for _ in range(rng.integers(4, 9))
            ]
            at, seen = 0, set()
            while at <= length:
                pick = int(rng.integers(len(words)))
                end = min(length + 1, at + len(words[pick]))
                tokens[i, at:end] = words[pick][: end - at]
                weights[i, at + 1 : end] = float(pick in seen)
                seen.add(pick)
                at = end
        return Batch(tokens, weights[:, 1:], drill=True)
