"""Sampling through the server against the same decoder called directly, in one run.

``python -m tests.bench.server_throughput [--model DIR] [--requests 16] [--tokens 128] [--rounds 5] [--json]``

The requests go through the SDK, as one group of a GRPO step does: the same prompt, one request per completion. Both
ways are measured in turns, and the medians are compared, so that a busy machine disturbs them alike. Both do the same
work, the prompts' prefill included; the server's time is all that lies between the call and the last answer.
``cpu_ratio`` (Linux) compares the processor time of the decoder alone with that of the server's whole process, and is
the steadier of the two on a busy machine.
The model is copied without its end-of-text ids: every completion then has its full length.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

# Before numpy is imported: one thread, as in the server.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NO_PROXY", "127.0.0.1,localhost")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

if TYPE_CHECKING:
    from baseten.loops import SamplingClient

from tests.bench.sampling import SHIPPED, direct_decode_rate
from tests.local_loops.server_process import ServerProcess

PROMPT_TOKENS = 200


def without_end(model: Path, into: Path) -> Path:
    """A copy of a model directory that never ends a completion of itself."""
    shutil.copytree(model, into, ignore=shutil.ignore_patterns("generation_config.json"))
    config = json.loads((into / "config.json").read_text())
    (into / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    return into


def _cpu_seconds(server: ServerProcess) -> float:
    """Processor time that the server's threads have used so far; 0 where the system does not tell."""
    assert server.process is not None
    tasks = Path(f"/proc/{server.process.pid}/task")
    if not tasks.exists():
        return 0.0
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


async def _group(sampler: SamplingClient, requests: int, tokens: int, seed: int) -> float:
    """Seconds for a group of requests sent at once."""
    from baseten.loops import ModelInput, SamplingParams

    prompt = ModelInput.from_ints([(7 * i + seed) % 1000 for i in range(PROMPT_TOKENS)])
    started = time.perf_counter()
    answers = await asyncio.gather(
        *(
            sampler.sample_async(prompt, 1, SamplingParams(max_tokens=tokens, seed=seed * 1000 + i))
            for i in range(requests)
        )
    )
    elapsed = time.perf_counter() - started
    drawn = sum(len(answer.sequences[0].tokens) for answer in answers)
    if drawn != requests * tokens:
        raise RuntimeError(f"{drawn} tokens came back, not {requests * tokens}")
    return elapsed


async def _rounds(server: ServerProcess, directory: Path, options: argparse.Namespace) -> dict[str, object]:
    from baseten.loops import ServiceClient

    from engine.local_loops.compute.numpy_backend import load_backend

    backend = load_backend(directory)
    service = await asyncio.to_thread(ServiceClient, api_key=server.key, base_url=server.url)
    sampler = await service.create_sampling_client_async(base_model="bench", ready_timeout=30.0)
    await _group(sampler, options.requests, 4, seed=0)  # connections, readiness, first touch of the weights
    volume = options.requests * options.tokens
    served: list[float] = []
    direct: list[float] = []
    served_cpu = direct_cpu = 0.0
    before = server.stats()
    for number in range(1, options.rounds + 1):
        used = _cpu_seconds(server)
        served.append(volume / await _group(sampler, options.requests, options.tokens, seed=number))
        served_cpu += _cpu_seconds(server) - used
        rates = [
            direct_decode_rate(
                backend,
                options.requests,
                options.tokens,
                prompt=PROMPT_TOKENS,
                repeats=1,
                clock=clock,
                with_prefill=True,
            )
            for clock in (time.perf_counter, time.process_time)
        ]
        direct.append(rates[0])
        direct_cpu += volume / rates[1]
    after = server.stats()
    await sampler.aclose()
    steps = after["decode_steps"] - before["decode_steps"]
    return {
        "requests": options.requests,
        "tokens": options.tokens,
        "server_tokens_per_s": round(statistics.median(served), 1),
        "direct_tokens_per_s": round(statistics.median(direct), 1),
        "ratio": round(statistics.median(served) / statistics.median(direct), 3),
        "ratio_of_best": round(max(served) / max(direct), 3),
        "cpu_ratio": round(direct_cpu / served_cpu, 3) if served_cpu else None,
        "rounds": [round(one / other, 3) for one, other in zip(served, direct, strict=True)],
        "mean_batch": round((after["tokens"] - before["tokens"]) / steps, 2),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", type=Path, default=SHIPPED, help="a model directory (default: the shipped one)"
    )
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON value on standard output")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        directory = without_end(options.model, Path(scratch) / "bench")
        with ServerProcess(Path(scratch) / "state", {"bench": directory}) as server:
            result = asyncio.run(_rounds(server, directory, options))
    if options.json:
        print(json.dumps(result))
        return 0
    for name, value in result.items():
        print(f"{name:22} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
