"""Write the model card from the measured figures, so that the two cannot drift apart."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

_INTRODUCTION = """---
license: mit
library_name: loops-tui
tags: [demonstration]
---

# loops-demo-1m

**This is a demonstration policy, not a language model.** It exists so that the local Loops server has something
that calls tools, is right only some of the time, and learns within minutes on one core. It knows a handful of file
tasks, twelve names of games and a few short questions, all from generated text, and nothing else. Do not expect
it to understand a sentence it was not made for.

## What it is

- {parameters:,} parameters: Llama architecture (4 layers, width 128, 4 heads, 2 key/value heads, MLP 384, tied
  head), fp16, {megabytes:.1f} MB. Vocabulary 1280 (byte-level BPE), trained on episodes of up to about 490 tokens;
  `max_position_embeddings` is 2048, but nothing longer was seen.
- Chat format: Qwen3's, with thinking off (`<tool_call>` markup; `<|im_end|>` ends a turn).
- Tools it knows: `shell(command)` and `write_file(path, content)`. Other names and schemas are ignored.

## How it was made

60,000 generated demonstrations (13 families of file tasks, of which 35-50 % go right and the others fall into the
task's trap; 7 % one-word game, 7 % short questions) and drills in copying; no text from anywhere else.
{steps} steps of about 2,300 tokens from seed {seed} (data seed 11, tokenizer seed 3), Adam at 2e-3, the last
{decay_steps} steps with a falling rate; {wall_seconds:,} s on one core. Loss on the policy's own tokens at the
end: {loss:.3f}. `tools/demo_model` holds the code, and one command there repeats it.
"""


def _reward(figures: dict[str, float]) -> str:
    return f"{figures['reward']:.2f} ± {figures['standard_error']:.2f}"


def _tasks(measured: dict[str, Any]) -> list[str]:
    new, held = measured["new_instances"], measured["held_out_words"]
    whole, seeds = new["all"], new["reward_per_seed"]
    lines = [
        "## Measured",
        "",
        "Temperature 1, commands really run, groups of 4 attempts at tasks never seen in training. *Held-out words*: the "
        "names come from words that never occur in training, so they must be copied piece by piece.",
        "",
        f"New instances: {whole['episodes']} episodes with {len(seeds)} sampling seeds (mean reward per seed "
        f"{', '.join(f'{r:.2f}' for r in seeds)}). Held-out words: {held['all']['episodes']} episodes. ± is "
        "one standard error, from the means of the groups. An episode has "
        f"{whole['calls']:.1f} calls and {whole['tokens']:.0f} tokens in the mean, about 200 of them the block of tools.",
        "",
        "| family | reward | held-out words | valid calls | groups of 4 that disagree |",
        "|---|---|---|---|---|",
    ]
    rows = [("**all**", whole, held["all"])]
    rows += [(f"`{f}`", new["families"][f], held["families"][f]) for f in new["families"]]
    for name, a, b in rows:
        lines.append(
            f"| {name} | {_reward(a)} | {_reward(b)} | {a['valid_calls']:.3f} "
            f"| {a['groups_that_disagree']:.2f} |"
        )
    known = ", ".join(f"`{name}` {f['reward']:.2f}" for name, f in measured["known_tasks"].items())
    lines += ["", f"The two tasks of `tools/demo_model/known_tasks.py`, 64 attempts each: {known}."]
    return lines


def _games(measured: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "The one-word game, 256 answers to each prompt (`-`: no system prompt):",
        "",
        "| prompt | a known game | each game's share |",
        "|---|---|---|",
    ]
    for prompt, found in measured["games"].items():
        shares = found["shares"].values()
        lines.append(
            f"| {prompt.replace('|', '·')} | {found['known']:.3f} | {min(shares):.3f}-{max(shares):.3f} |"
        )
    lines += [
        "",
        "Learning it (`Name the hidden game.`, LoRA rank 8 on all seven projections, alpha 16, plain policy gradient, "
        "Adam 3e-3, 16 attempts a step):",
        "",
        "| hidden | mean reward of steps 1-3 | first three-step mean above 0.9 | last five |",
        "|---|---|---|---|",
    ]
    for run in runs:
        rewards, above = run["rewards"], run["above_0.9_at_step"]
        shown = "not reached" if above is None else f"from step {above + 1}"
        lines.append(
            f"| {run['hidden']} | {np.mean(rewards[:3]):.2f} | {shown} | {np.mean(rewards[-5:]):.2f} |"
        )
    return lines


def write(model_dir: Path, measured: Path, game: Path, summary: Path) -> None:
    figures = json.loads(measured.read_text())
    facts = json.loads(summary.read_text())
    size = (model_dir / "model.safetensors").stat().st_size / 1e6
    lines = [
        _INTRODUCTION.format(megabytes=size, **facts),
        *_tasks(figures),
        *_games(figures, json.loads(game.read_text())),
    ]
    (model_dir / "README.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("model", "measured", "game", "summary"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    write(arguments.model, arguments.measured, arguments.game, arguments.summary)


if __name__ == "__main__":
    main()
