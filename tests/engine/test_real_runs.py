"""Whole runs: the real engine, the real SDK, the real local server, the shipped model."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.engine.own_process import said_until, started, to_end

KL = "optim/train-sample-div/kl_sample_train_k3"


def run(directory: Path, *sets: str, steps: int = 3) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A headless run of the smallest example: its final JSON value, and its steps."""
    settings = [f"training.max_steps={steps}", *sets]
    value = to_end(
        directory, "run", "examples/in_process_direct/train.toml", *(f"--set={each}" for each in settings)
    )
    lines = (Path(value["run_dir"]) / "steps.jsonl").read_text().splitlines()
    return value, [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory):
    return [run(tmp_path_factory.mktemp(f"run{number}"), "training.group_size=16") for number in range(2)]


def test_a_run_trains_the_shipped_model_and_reports_it(twice) -> None:
    value, steps = twice[0]
    assert value["status"] == "done"
    assert value["steps"] == 3
    assert value["error"] is None
    assert value["leases"] == {"live": 0, "lost": 0}
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert value["reward"]["first"] == steps[0]["reward/mean_with_unusable"]
    assert all(step["tokens/trained"] > 0 for step in steps)
    assert steps[-1]["policy_version"] == 3
    directory = Path(value["run_dir"])
    for name in ("run.json", "config.toml", "rollouts.jsonl", "run.log"):
        assert (directory / name).stat().st_size > 0
    transcript = json.loads(next((directory / "transcripts").iterdir()).read_text())
    sampled = transcript["turns"][-1]["sampled"]
    assert len(sampled["tokens"]) == len(sampled["logprobs"]) == len(sampled["texts"]) > 0


def test_sampler_and_trainer_agree_on_every_step(twice) -> None:
    for _, steps in twice:
        assert max(step[KL] for step in steps) < 1e-6


def test_the_same_seed_gives_the_same_rewards(twice) -> None:
    first, second = (
        (Path(value["run_dir"]) / "rollouts.jsonl").read_text().splitlines() for value, _ in twice
    )
    picked = ("group_id", "attempt", "reward", "advantage", "sampled_tokens")

    def rewards(lines: list[str]) -> list[list[Any]]:
        return sorted([json.loads(line)[key] for key in picked] for line in lines)

    assert rewards(first) == rewards(second)


def test_a_server_that_dies_in_mid_run_ends_it_with_one_sentence(tmp_path: Path) -> None:
    running = started(
        tmp_path,
        "run",
        "examples/in_process_direct/train.toml",
        "--json",
        "--set=training.max_steps=5000",
        "--set=training.max_consecutive_unusable_groups=5000",
    )
    said = said_until(running, "step 1/")
    (told,) = [line for line in said if "Local Loops server" in line]
    server = int(told.rsplit("process ", 1)[1].split(")")[0])
    os.kill(server, signal.SIGKILL)
    out, rest = running.communicate(timeout=120)
    value = json.loads(out)
    assert running.returncode == 1, rest
    assert value["status"] == "failed"
    assert "server" in value["error"]
    assert "Traceback" not in rest
    record = json.loads((Path(value["run_dir"]) / "run.json").read_text())
    assert (record["state"], record["error"]) == ("failed", value["error"])
