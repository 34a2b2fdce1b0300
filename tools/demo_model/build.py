"""Make the demonstration policy from nothing: tokenizer, data, pretraining, export, evaluation, model card.

    uv run --group pretrain python -m tools.demo_model.build --out engine/local_loops/models/loops-demo-1m

Stages whose result is already in `--work` are not repeated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from . import model_card


def _stage(module: str, *arguments: str | Path) -> None:
    """Each stage in a process of its own: JAX's settings and memory do not outlive it."""
    argv = [sys.executable, "-m", f"tools.demo_model.{module}", *map(str, arguments)]
    print(f"== {module}", flush=True)
    subprocess.run(argv, check=True)


def build(out: Path, work: Path, steps: int, decay_steps: int, rows: int) -> None:
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n")  # hundreds of megabytes that are never committed
    tokenizer, data, run = work / "tokenizer", work / "rows.npz", work / "run"
    checkpoint = run / f"step-{steps}.npz"
    if not (tokenizer / "tokenizer.json").exists():
        _stage("tokenizer", "--out", tokenizer)
    if not data.exists():
        _stage("dataset", "--tokenizer", tokenizer, "--out", data, "--rows", str(rows))
    if not checkpoint.exists():
        size = ["--steps", str(steps), "--decay-steps", str(decay_steps)]
        _stage("pretrain", "--tokenizer", tokenizer, "--rows", data, "--out", run, *size)
    _stage("export", "--checkpoint", checkpoint, "--tokenizer", tokenizer, "--out", out)
    _stage("evaluate", "--model", out, "--out", work / "measured.json")
    _stage("game_check", "--model", out, "--out", work / "game.json")
    model_card.write(out, work / "measured.json", work / "game.json", run / "summary.json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, default=Path("build/demo_model"), help="where the stages leave their results"
    )
    parser.add_argument("--steps", type=int, default=3950)
    parser.add_argument("--decay-steps", type=int, default=1200)
    parser.add_argument("--rows", type=int, default=60_000)
    arguments = parser.parse_args()
    build(arguments.out, arguments.work, arguments.steps, arguments.decay_steps, arguments.rows)


if __name__ == "__main__":
    main()
