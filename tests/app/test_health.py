"""What is wrong with a run is said in plain words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from engine.store.rows import GroupRow, GroupState, HostRow, RunState, StepRow
from loops_tui.health import findings
from tools.sample_store import run_row

NOW = time.time()


def step(number: int, **metrics: float) -> StepRow:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return StepRow("r", number, "done", NOW, NOW, number, named)


def alike(count: int, mean: float) -> list[GroupRow]:
    return [
        GroupRow("r", number, GroupState.REJECTED, "t", 0, reason="no_variance", reward_mean=mean)
        for number in range(count)
    ]


def said(**values: Any) -> str:
    steps, groups, host = (values.pop(name, None) for name in ("steps", "groups", "host"))
    run = run_row("r", "demo", values.pop("state", RunState.RUNNING), Path("/"), **values)
    found = findings(run, steps or [], groups or [], host, NOW)
    return "\n".join(finding.text for finding in found)


def test_a_healthy_run_says_nothing() -> None:
    assert (
        said(steps=[step(1, reward__mean=0.5, rollout__truncated=0.1, loss__kl_sample_train_k3=1e-8)]) == ""
    )


def test_a_failed_run_says_its_sentence() -> None:
    assert said(state=RunState.FAILED, error="the server died") == "the server died"
    assert "interrupted" in said(state=RunState.INTERRUPTED)


def test_groups_that_score_alike() -> None:
    assert "every group scores alike" in said(groups=alike(6, 0.5))
    assert "no attempt succeeds" in said(groups=alike(8, 0.0))
    assert "every attempt succeeds" in said(groups=alike(8, 1.0))
    assert said(groups=alike(5, 0.0)) == ""


def test_how_many_groups_score_alike_is_counted_past_any_window() -> None:
    assert "the last 30" in said(groups=alike(30, 0.5))
    mixed = [*alike(7, 0.5), GroupRow("r", 9, GroupState.TRAINED, "t", 0), *alike(30, 0.5)]
    assert "the last 7" in said(groups=mixed)


def test_the_advice_follows_the_newest_groups() -> None:
    assert "no attempt succeeds" in said(groups=[*alike(12, 0.0), *alike(12, 1.0)])


def test_sandboxes_that_isolate_nothing_or_little_are_said_while_the_run_lives() -> None:
    assert "nothing isolates this run's sandboxes" in said(info={"isolation": "none"})
    assert "landlock" in said(info={"isolation": "landlock"})
    for info in ({"isolation": "bubblewrap"}, {"isolation": "remote"}, {"isolation": None}, {}):
        assert said(info=info) == ""
    assert said(state=RunState.DONE, info={"isolation": "none"}) == ""


def test_one_lost_attempt_is_one() -> None:
    run = {"group_size": 2, "groups_per_step": 2}
    assert "1 attempt of the last step was lost" in said(steps=[step(1, discard__attempts=1.0)], **run)


def test_attempts_that_run_out_of_room() -> None:
    turns = {"rollout/termination_reason/max_turns": 0.5}
    assert "run out of turns" in said(steps=[StepRow("r", 1, "done", NOW, NOW, 1, turns)])
    assert "token limit" in said(steps=[step(1, rollout__truncated=0.4)])


def test_a_sampler_that_disagrees_with_the_trainer() -> None:
    assert "disagree" in said(steps=[step(1, loss__kl_sample_train_k3=0.2)])


def test_lost_attempts_and_a_leaping_reward() -> None:
    assert "were lost" in said(steps=[step(1, discard__attempts=20.0)])
    leap = [step(number, reward__mean=value) for number, value in enumerate((0.2, 0.5, 0.97), 1)]
    assert "read transcripts" in said(steps=leap)


def test_a_silent_host() -> None:
    host = HostRow("h", 99, 0.0, "x", "app", NOW - 100, NOW - 40)
    assert "silent for 40s" in said(host=host)
