"""How fast the numpy back end samples and trains.

``python -m tests.bench.sampling [--model DIR] [--json]``. Rates are the best of a few
repetitions, per second of wall time and per second of processor time: on a busy machine the second is the steadier.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

# Before numpy is imported: one thread, as in the server.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from engine.local_loops.compute.interface import Backend, Decoder

#: Seconds, as time.perf_counter or time.process_time give them.
Clock = Callable[[], float]

SHIPPED = Path(__file__).resolve().parents[2] / "engine/local_loops/models/loops-demo-1m"
BATCHES = (1, 16, 64)
PROMPT, GENERATED = 200, 100
TRAIN_ROWS, TRAIN_LENGTH, RANK = 16, 300, 8


def direct_decode_rate(
    backend: Backend,
    batch: int,
    tokens: int = GENERATED,
    *,
    prompt: int = PROMPT,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
    with_prefill: bool = False,
) -> float:
    """Tokens per second of ``batch`` completions of one prompt, without a server.

    The prefill counts only ``with_prefill``: for a comparison with something that has to do it as well.
    """
    best = 0.0
    for repeat in range(repeats):
        decoder = backend.decoder(backend.weights(None))
        start = clock()
        _admit(decoder, backend, batch, prompt, seed=repeat)
        if not with_prefill:
            start = clock()
        for _ in range(tokens):
            decoder.step()
        best = max(best, batch * tokens / (clock() - start))
    return best


def prefill_rate(
    backend: Backend, *, prompt: int = PROMPT, requests: int = 8, clock: Clock = time.perf_counter
) -> float:
    """Prompt tokens per second of different prompts that are admitted together."""
    from engine.local_loops.compute.interface import DecodeRequest

    decoder = backend.decoder(backend.weights(None))
    asked = [DecodeRequest(f"p{i}", _tokens(backend, prompt, i)) for i in range(requests)]
    start = clock()
    decoder.admit(asked)
    return requests * prompt / (clock() - start)


def training_rate(
    backend: Backend,
    *,
    rows: int = TRAIN_ROWS,
    length: int = TRAIN_LENGTH,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
) -> float:
    """Tokens per second of a LoRA forward and backward pass over ``rows`` sequences."""
    import numpy as np

    from engine.local_loops.compute.interface import ScoreRow

    adapter = backend.new_adapter(RANK, seed=0)
    weights, into = backend.weights(adapter), backend.zero_gradients(adapter)
    data = []
    for i in range(rows):
        tokens = np.array(_tokens(backend, length + 1, i))
        data.append(ScoreRow(tokens[:-1], tokens[1:]))
    slopes = np.full(length, -1.0, dtype=np.float32)
    best = 0.0
    for _ in range(repeats):
        start = clock()
        backend.accumulate(weights, adapter, data, lambda indices, _: [slopes for _ in indices], into)
        best = max(best, rows * length / (clock() - start))
    return best


def _admit(decoder: Decoder, backend: Backend, batch: int, prompt: int, seed: int) -> None:
    from engine.local_loops.compute.interface import DecodeRequest

    decoder.admit([DecodeRequest("bench", _tokens(backend, prompt, 0), n=batch, seed=seed)])


def _tokens(backend: Backend, count: int, seed: int) -> list[int]:
    import numpy as np

    return np.random.default_rng(seed).integers(0, backend.card.vocab_size, count).tolist()


def _timed(measure: Callable[[Clock], float]) -> dict[str, float]:
    return {
        "tokens_per_s": round(measure(time.perf_counter), 1),
        "tokens_per_cpu_s": round(measure(time.process_time), 1),
    }


def measure(directory: Path, *, quick: bool = False) -> dict[str, object]:
    """All rates of one model directory; ``quick`` takes fewer tokens and repetitions, for large models."""
    from engine.local_loops.compute.numpy_backend import load_backend

    start = time.perf_counter()
    backend = load_backend(directory)
    loaded = time.perf_counter() - start
    generated, repeats = (20, 1) if quick else (GENERATED, 3)
    return {
        "model": directory.name,
        "parameters": backend.card.parameters,
        "load_s": round(loaded, 2),
        "prompt": PROMPT,
        "generated": generated,
        "sampling": {
            str(batch): _timed(
                lambda clock, batch=batch: direct_decode_rate(
                    backend, batch, generated, repeats=repeats, clock=clock
                )
            )
            for batch in BATCHES
        },
        "prefill": _timed(lambda clock: prefill_rate(backend, clock=clock, requests=2 if quick else 8)),
        "training": _timed(
            lambda clock: training_rate(
                backend, rows=2 if quick else TRAIN_ROWS, repeats=repeats, clock=clock
            )
        ),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a model directory; the shipped model by default")
    parser.add_argument("--quick", action="store_true", help="fewer tokens and repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON value on standard output")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        directory: Path = options.model or SHIPPED
        if options.model is None and not (SHIPPED / "config.json").exists():
            from tests.local_loops.random_models import RandomModel

            sizes = RandomModel(hidden=128, layers=4, head_dim=32, feed_forward=384, vocab=1024)
            directory = sizes.write(Path(scratch) / "random-1m")
        result = measure(directory, quick=options.quick)
    if options.json:
        print(json.dumps(result))
        return 0
    for name, value in result.items():
        print(f"{name:12} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
