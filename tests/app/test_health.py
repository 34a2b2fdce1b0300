"""What is wrong with a run is said in plain words, with its numbers and what to do; a healthy run says nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from engine.store.rows import EvalRow, GroupRow, GroupState, HostRow, RunState, StepRow
from loops_tui.health import Finding
from loops_tui.signals import findings, signals
from tools.sample_store import run_row

NOW = time.time()


def step(number: int, **metrics: float) -> StepRow:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return StepRow("r", number, "done", NOW, NOW, number, named)


def steps_of(name: str, *values: float, **others: float) -> list[StepRow]:
    return [step(number, **{name: value, **others}) for number, value in enumerate(values, 1)]


def alike(count: int, mean: float, task: str = "t") -> list[GroupRow]:
    return [
        GroupRow("r", number, GroupState.REJECTED, task, 0, reason="no_variance", reward_mean=mean)
        for number in range(count)
    ]


def trained(count: int, task: str = "t") -> list[GroupRow]:
    return [GroupRow("r", number, GroupState.TRAINED, task, 0, reward_mean=0.5) for number in range(count)]


def evaluation(at: int | None, mean: float, half: float = 0.05) -> EvalRow:
    return EvalRow(
        "r", f"e{at}", "live", "done", "every", NOW + (at or 0), step=at, mean=mean, low=mean - half, high=mean + half
    )  # fmt: skip


def found(**values: Any) -> list[Finding]:
    """The findings about a run; ``groups`` are in the order in which they began."""
    steps, groups, host, evals = (values.pop(name, None) for name in ("steps", "groups", "host", "evals"))
    sandboxes = values.pop("sandboxes", 0)
    run = run_row("r", "demo", values.pop("state", RunState.RUNNING), Path("/"), **values)
    learning = signals(run, steps or [], groups or [], evals or [])
    return findings(run, learning, host, NOW, sandboxes)


def said(**values: Any) -> str:
    return "\n".join(f"{finding.line} [{finding.basis}]" for finding in found(**values))


def test_a_healthy_run_says_nothing() -> None:
    healthy = {
        "reward__mean": 0.5,
        "rollout__truncated": 0.1,
        "rollout__termination_reason__max_turns": 0.1,
        "optim__train-sample-div__kl_sample_train_k3": 1e-8,
        "tokens__segments_per_attempt": 1.0,
        "loss": -0.03,
    }
    steps = [step(number, **healthy) for number in range(1, 9)]
    evals = [evaluation(None, 0.3), evaluation(5, 0.5)]
    assert said(steps=steps, groups=[*trained(14), *alike(3, 1.0)], evals=evals) == ""


def test_a_failed_run_says_its_sentence() -> None:
    assert said(state=RunState.FAILED, error="the server died") == "the server died []"
    assert "interrupted" in said(state=RunState.INTERRUPTED)


def test_groups_that_score_alike() -> None:
    assert "every group scores alike" in said(groups=alike(6, 0.5))
    assert "no attempt succeeds" in said(groups=alike(8, 0.0))
    assert "every attempt succeeds" in said(groups=alike(8, 1.0))
    assert said(groups=alike(5, 0.0)) == ""
    assert "every group" not in said(groups=[*alike(8, 0.0), *trained(1)])


def test_how_many_groups_score_alike_is_counted_past_any_window() -> None:
    assert "the last 30" in said(groups=alike(30, 0.5))
    mixed = [*alike(30, 0.5), *trained(1), *alike(7, 0.5)]
    assert "the last 7" in said(groups=mixed)


def test_the_advice_follows_the_newest_groups() -> None:
    assert "no attempt succeeds" in said(groups=[*alike(12, 1.0), *alike(12, 0.0)])


def test_most_groups_teach_nothing() -> None:
    mixed = [*alike(5, 0.0), *trained(2), *alike(5, 1.0), *trained(4)]
    assert "most groups teach nothing (10 of the last 16)" in said(groups=mixed)
    assert "most groups" not in said(groups=[*trained(9), *alike(5, 1.0), *trained(2)])
    # Just half of them.
    assert "most groups" not in said(groups=[*alike(4, 0.0), *trained(8), *alike(4, 1.0)])
    ended = [GroupRow("r", 1, GroupState.LOST, "t", 0, reason="the run ended") for _ in range(16)]
    assert said(groups=ended) == ""


def test_a_task_that_always_scores_alike_is_named() -> None:
    groups = [*alike(3, 0.0, "hopeless"), *trained(3, "fine"), *alike(2, 1.0, "young")]
    words = said(groups=groups)
    assert "1 of 3 tasks scores alike every time" in words
    assert "hopeless (0.00)" in words
    assert "young" not in words
    assert said(groups=[*alike(2, 0.0, "hopeless"), *trained(3, "fine")]) == ""


def test_sandboxes_that_isolate_nothing_or_little_are_said_while_the_run_lives() -> None:
    assert "nothing isolates this run's sandboxes" in said(info={"isolation": "none"})
    assert "landlock" in said(info={"isolation": "landlock"})
    assert "sandboxes: no bubblewrap here" in said(info={"sandbox_warnings": ["no bubblewrap here"]})
    for info in ({"isolation": "bubblewrap"}, {"isolation": "remote"}, {"isolation": None}, {}):
        assert said(info=info) == ""
    assert said(state=RunState.DONE, info={"isolation": "none"}) == ""


def test_lost_attempts_are_counted_with_their_reasons() -> None:
    run = {"group_size": 2, "groups_per_step": 2}
    assert "1 attempt of the last step was lost" in said(steps=[step(1, discard__attempts=1.0)], **run)
    lost = step(1, discard__attempts=20.0, discard__attempts__setup_failed=20.0)
    assert "20 attempts of the last step were lost" in said(steps=[lost])
    assert "20 setup failed" in said(steps=[lost])
    assert said(steps=[step(1, discard__attempts=2.0)]) == ""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rollout__termination_reason__max_turns", "attempts run out of turns"),
        ("rollout__truncated", "cut off by the token limit"),
        ("rollout__timed_out", "run into their deadline"),
    ],
)
def test_attempts_that_run_out_of_room(name: str, sentence: str) -> None:
    assert sentence in said(steps=steps_of(name, 0.5))
    assert "20% of the last step, 5% at first" in said(steps=steps_of(name, 0.05, 0.05, 0.05, 0.1, 0.2))
    assert said(steps=steps_of(name, 0.2, 0.2, 0.2, 0.2, 0.2)) == ""


def test_replies_that_cannot_be_parsed() -> None:
    name = "rollout__termination_reason__unusable_reply"
    assert "replies cannot be parsed (25% of attempts)" in said(steps=steps_of(name, 0.25))
    assert said(steps=steps_of(name, 0.1)) == ""


def test_a_sampler_that_disagrees_with_the_trainer() -> None:
    name = "optim__train-sample-div__kl_sample_train_k3"
    words = said(steps=steps_of(name, 0.2, **{"optim__train-sample-div__ess_fraction": 0.41}))
    assert "sampler and trainer disagree (KL k3 0.200)" in words
    assert "effective samples 41%" in words
    assert "stale weights" in words
    hot = said(steps=steps_of(name, 0.2), config_toml="[sampling]\ntemperature = 0.6\n")
    assert "temperature 0.6" in hot
    assert "drift apart" in said(steps=steps_of(name, 1e-5, 1e-5, 2e-5, 4e-3))
    assert said(steps=steps_of(name, 4e-3, 4e-3, 4e-3)) == ""


def test_a_leaping_reward() -> None:
    words = said(steps=steps_of("reward__mean", 0.2, 0.5, 0.97))
    assert "reward climbs faster than the task should allow: read transcripts" in words
    assert "0.20 at step 1, 0.97 at step 3" in words
    assert said(steps=steps_of("reward__mean", 0.2, 0.4, 0.6, 0.8, 0.97)) == ""
    assert "0.20 at step 1" in said(steps=steps_of("reward__mean", 0.2, 0.5, 0.97, *[0.98] * 30))


def test_held_out_reward_that_does_not_follow() -> None:
    steps = steps_of("reward__mean", 0.2, 0.3, 0.5, 0.6, 0.7, 0.7)
    assert "held-out reward does not" in said(steps=steps, evals=[evaluation(None, 0.2), evaluation(6, 0.22)])
    assert said(steps=steps, evals=[evaluation(None, 0.2), evaluation(6, 0.6)]) == ""
    assert said(steps=steps, evals=[evaluation(None, 0.2)]) == ""
    assert said(steps=steps[:1] * 6, evals=[evaluation(None, 0.2), evaluation(6, 0.22)]) == ""


def test_held_out_reward_that_falls() -> None:
    steps = steps_of("reward__mean", 0.2, 0.3, 0.5, 0.6, 0.7, 0.7)
    evals = [evaluation(None, 0.2), evaluation(3, 0.7), evaluation(6, 0.5)]
    words = said(steps=steps, evals=evals)
    assert "held-out reward falls (0.70 at step 3, 0.50 at step 6)" in words
    assert "keep the checkpoint of step 3" in words
    near = [evaluation(None, 0.2), evaluation(3, 0.7, 0.3), evaluation(6, 0.5)]
    assert "falls" not in said(steps=steps, evals=near)


def test_an_update_that_is_not_a_number() -> None:
    assert "not a number" in said(steps=steps_of("loss", -0.1, float("nan")))
    assert "not a number" in said(steps=steps_of("optim__grad_norm", float("inf")))


def test_conversations_that_break() -> None:
    assert "1.80 segments an attempt" in said(steps=steps_of("tokens__segments_per_attempt", 1.8))


def test_a_silent_host() -> None:
    host = HostRow("h", 99, 0.0, "x", "app", NOW - 100, NOW - 40)
    assert "silent for 40s" in said(host=host)
    assert said(host=HostRow("h", 99, 0.0, "x", "app", NOW - 100, NOW - 4)) == ""


def test_a_loops_run_that_still_bills() -> None:
    billing: dict[str, Any] = {
        "scope": "dedicated", "loops_run_id": "loops-1", "loops_state": "ACTIVE", "loops_since": NOW - 7200
    }  # fmt: skip
    assert "loops-1 is ACTIVE and bills since 2h 00m" in said(state=RunState.DONE, **billing)
    assert said(state=RunState.DONE, **{**billing, "loops_state": "INACTIVE"}) == ""
    assert said(state=RunState.DONE, **{**billing, "scope": "local"}) == ""
    assert said(state=RunState.RUNNING, **billing) == ""


def test_a_budget_that_is_nearly_used() -> None:
    assert "[budget] max_hours is used to more than 80 %" in said(spend={"near": "max_hours"})
    assert said(spend={"hours": 1.0}) == ""


def test_sandboxes_left_behind() -> None:
    assert "left 2 sandboxes behind" in said(state=RunState.DONE, sandboxes=2)
    assert said(sandboxes=2) == ""


def test_a_run_that_ended_before_its_last_step_says_what_ended_it() -> None:
    solved = {"ended_by": "[training] max_consecutive_unusable_groups"}
    (finding,) = found(state=RunState.DONE, step=18, max_steps=400, info=solved)
    assert finding.text == (
        "ended after step 18: its last groups all earned the best reward, these tasks have nothing left to teach "
        "(max_consecutive_unusable_groups)"
    )
    spent = {"ended_by": "[budget] max_hours"}
    words = said(state=RunState.STOPPED, step=18, max_steps=400, info=spent)
    assert "ended after step 18: its budget is used up ([budget] max_hours)" in words
    assert found(state=RunState.DONE, step=400, max_steps=400, info=spent) == []
    assert found(step=18, max_steps=400, info=solved) == []  # it was resumed
