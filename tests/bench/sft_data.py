"""How quickly training files are rendered, and whether memory grows with them.

``uv run python -m tests.bench.sft_data [--rows 2000 20000] [--json]``

Each number of rows is prepared in a process of its own: conversations of two turns, about 60 tokens each. Told: rows and
tokens per second, and by how much the largest resident memory grew over that of a file of one row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_MEASURE = """
import json, resource, sys, time
from pathlib import Path
from engine.config.local_models import model_directory
from engine.policy.rendering import load_renderer
from engine.recipes.sft.prepared import prepare
cache, warm, rows = map(Path, sys.argv[1:])
renderer = load_renderer(
    model_name="m", tokenizer_source=str(model_directory("loops-demo-1m")), renderer="default"
)
prepare([warm], renderer, 256, cache)
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
data = prepare([rows], renderer, 256, cache)
seconds = time.perf_counter() - began
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"samples": len(data), "tokens": data.summary.tokens, "seconds": seconds, "grown_kib": grown}))
"""


def row(number: int) -> str:
    asked = [f"Question {number}: which is it?", f"And then, after {number}?"]
    messages = [
        message
        for text in asked
        for message in (
            {"role": "user", "content": text},
            {"role": "assistant", "content": f"It is number {number}, as before."},
        )
    ]
    return json.dumps({"messages": messages}) + "\n"


def measure(rows: int, place: Path) -> dict[str, Any]:
    """Prepare so many rows in a fresh process."""
    warm, file = place / "warm.jsonl", place / f"{rows}.jsonl"
    warm.write_text(row(0))
    with file.open("w") as stream:
        for number in range(rows):
            stream.write(row(number))
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(place / f"cache-{rows}"), str(warm), str(file)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "rows": rows,
        "file_mib": round(file.stat().st_size / 2**20, 1),
        "rows_per_second": round(rows / found["seconds"], 1),
        "tokens_per_second": round(found["tokens"] / found["seconds"]),
        "grown_mib": round(found["grown_kib"] / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 20_000])
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = [measure(rows, Path(place)) for rows in chosen.rows]
    print(json.dumps(found) if chosen.json else "\n".join(map(str, found)))


if __name__ == "__main__":
    main()
