"""The learning rate of each step, and which samples it trains on. All of it follows from settings and seed alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.config.sft import SftTrainingSettings

Order = npt.NDArray[np.int64]


def learning_rate(step: int, steps: int, training: SftTrainingSettings) -> float:
    """The rate of optimizer step ``step`` (1-based) of ``steps``.

    Warm-up: ``peak · step / (warmup + 1)``, so that no step is wasted on a rate of 0 and step ``warmup + 1`` is the
    first at the peak. After it ``linear`` and ``cosine`` (Loshchilov and Hutter 2017, without restarts) fall towards
    ``min_learning_rate``, which the step after the last one would have.
    """
    peak, low, warmup = training.learning_rate, training.min_learning_rate, training.warmup_steps
    if step <= warmup:
        return peak * step / (warmup + 1)
    if training.schedule == "constant":
        return peak
    done = (step - warmup - 1) / max(1, steps - warmup)
    if training.schedule == "linear":
        return low + (peak - low) * (1.0 - done)
    return low + (peak - low) * 0.5 * (1.0 + math.cos(math.pi * done))


def epoch_order(epoch: int, samples: int, training: SftTrainingSettings) -> Order:
    """The order of the samples in an epoch (0-based); the same on every machine and after every resume."""
    if not training.shuffle:
        return np.arange(samples, dtype=np.int64)
    return np.random.Generator(np.random.PCG64([training.seed, epoch])).permutation(samples).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one optimizer step: ``order[start:end]`` of an epoch."""

    epoch: int
    start: int
    end: int
    indices: Order


def batches_of_epoch(
    epoch: int, lengths: npt.NDArray[np.int32], training: SftTrainingSettings, start: int = 0
) -> Iterator[Batch]:
    """The batches of an epoch from place ``start`` of its order on, which must be where a batch begins."""
    order = epoch_order(epoch, len(lengths), training)
    while start < len(order):
        end = _end(start, order, lengths, training)
        yield Batch(epoch, start, end, order[start:end])
        start = end


def _end(start: int, order: Order, lengths: npt.NDArray[np.int32], training: SftTrainingSettings) -> int:
    if training.batch_tokens is None:
        return min(start + training.batch_size, len(order))
    end, tokens = start, 0
    while end < len(order):
        tokens += int(lengths[order[end]])
        if tokens > training.batch_tokens and end > start:
            break
        end += 1
    return end


def steps_of_run(lengths: npt.NDArray[np.int32], training: SftTrainingSettings) -> int:
    """How many optimizer steps the run has."""
    if training.batch_tokens is None:
        steps = training.epochs * -(-len(lengths) // training.batch_size)
    else:
        steps = sum(
            sum(1 for _ in batches_of_epoch(epoch, lengths, training)) for epoch in range(training.epochs)
        )
    return steps if training.max_steps is None else min(steps, training.max_steps)
