"""What a run will take: bounds from the config before a first run, means of earlier runs afterwards."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.project import Project
from engine.store.leases import LeaseJournal
from engine.store.processes import process_started
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    GroupRow,
    GroupState,
    HostRow,
    LeaseRow,
    LeaseState,
    RunRow,
    RunState,
    StepRow,
)
from engine.store.store import Store

Make = Callable[..., Project]


async def record(
    project: Project, *, steps: int, groups: int, attempts: int, calls: int, leased: float | None = None
) -> None:
    """A run of the project as it is after it was stopped.

    ``groups`` groups of ``attempts`` a step: the last one trains, the others are rejected. Each attempt waits for 5 s
    and is at work for 4, 3 of them in its slot, and has a sandbox for ``leased`` seconds; each update takes 6 s, 5 of
    them training. Besides there are a group that no step came to, one that was cut off, and one of an evaluation.
    """
    now, model = time.time(), project.config.model.base_model
    beyond = steps * groups
    sampled = [*range(beyond + 1), -1]
    with Store.open(project.working_dir) as store:
        run = RunRow(
            "r1", "r", "rl", RunState.STOPPED, now, str(project.path), "", str(project.runs_dir / "r1"), model, steps,
            step=steps, group_size=attempts, groups_per_step=1,
        )  # fmt: skip
        store.create_run(run)
        recorder = store.recorder("r1", files=False)
        for step in range(1, steps + 1):
            recorder.step(
                StepRow("r1", step, "done", now, now, step, {"time/train": 5.0, "time/publish": 1.0})
            )
        for group_id in range(beyond + 2):
            trains = group_id < beyond and group_id % groups == groups - 1
            state = GroupState.TRAINED if trains else GroupState.REJECTED
            recorder.group(GroupRow("r1", group_id, state, "t", 0, group_id // groups + 1))
        recorder.group(GroupRow("r1", -1, GroupState.EVALUATED, "t", 0, eval_id="base"))
        for group_id in sampled:
            for attempt in range(attempts):
                recorder.attempt(_ended(group_id, attempt, now, calls if 0 <= group_id < beyond else 99))
        recorder.attempt(AttemptRow("r1", beyond + 1, 0, AttemptState.CANCELLED, ended_at=now + 1))
        store.flush()
        for group_id in sampled if leased is not None else ():
            for attempt in range(attempts):
                name = f"box-{group_id}-{attempt}"
                lease = LeaseRow(
                    name, "local", "none", "r1", group_id, attempt, None, LeaseState.RELEASED, now
                )
                lease.active_at, lease.released_at = now, now + (leased or 0.0)
                await LeaseJournal(store).add(lease)


def _ended(group_id: int, attempt: int, now: float, calls: int) -> AttemptRow:
    return AttemptRow(
        "r1",
        group_id,
        attempt,
        AttemptState.DONE,
        turns=calls,
        prompt_tokens=100,
        sampled_tokens=20,
        started_at=now,
        ended_at=now + 9.0,
        timeline={
            "queued": [now, now + 5.0, 5.0],
            "acting": [now + 5.0, now + 8.0, 1.0],
            "sampling": [now + 5.0, now + 8.0, 2.0],
            "grading": [now + 8.0, now + 9.0, 1.0],
        },
    )


async def estimate(project: Project) -> tuple[dict[str, float], str]:
    report = await project.check()
    assert report.estimate is not None
    return report.estimate, "\n".join(report.describe())


async def test_before_a_first_run_the_limits_bound_it(make: Make) -> None:
    found, lines = await estimate(make())
    # 3 steps of one group of 4; the episode's options allow 2 turns; replies of 16 tokens, prompts of 128
    assert (found["attempts"], found["calls"], found["sampled_tokens"]) == (12, 24, 24 * 16)
    assert found["prompt_tokens"] == 24 * 128
    clock = 600 + 120 + 120
    assert (found["wall_low"], found["wall_high"]) == (3 * clock, 12 * clock)
    assert "from the config alone: 3 steps × 1 × 4 = 12 attempts" in lines
    assert "at most 24" in lines
    assert "sandbox-hours" not in lines
    assert "cost" not in lines


async def test_afterwards_it_is_what_earlier_runs_measured(make: Make) -> None:
    project = make(overrides=("training.max_concurrent_rollouts=2", "training.max_steps=10"))
    await record(project, steps=10, groups=2, attempts=4, calls=3, leased=30.0)
    found, lines = await estimate(project)
    assert found["attempts"] == 10 * 8  # a group was rejected for each one that trained
    assert found["calls"] == 80 * 3
    assert found["prompt_tokens"] == 80 * 100
    assert found["sampled_tokens"] == 80 * 20
    assert found["sandbox_hours"] == pytest.approx(80 * 30 / 3600)
    assert (
        "Estimate, from what an earlier run measured: 80 attempts, likely 60 to 128 (2.00 × 10 steps × 1 × 4"
        in lines
    )


async def test_what_a_short_run_measured_is_said_to_be_of_so_few_steps(make: Make) -> None:
    project = make(overrides=("training.max_steps=10",))
    await record(project, steps=2, groups=2, attempts=4, calls=3)
    found, lines = await estimate(project)
    assert (found["attempts"], found["attempts_low"], found["attempts_high"]) == (80, 60, 196)
    assert "from what an earlier run measured in 2 steps: 80 attempts, likely 60 to 196" in lines


async def test_a_shorter_run_takes_what_the_first_steps_took(make: Make) -> None:
    project = make(overrides=("training.max_steps=2",))
    await record(project, steps=10, groups=2, attempts=4, calls=3)
    with Store.open(project.working_dir) as store:  # later steps took more
        recorder = store.recorder("r1", files=False)
        for attempt in range(4):
            recorder.attempt(_ended(4, attempt, time.time(), 50))
        store.flush()
    found, _ = await estimate(project)
    assert (found["attempts"], found["calls"]) == (16, 48)


async def test_a_run_of_other_batches_takes_as_much_more(make: Make) -> None:
    project = make(overrides=("training.max_steps=10", "training.groups_per_step=3", "training.group_size=8"))
    await record(project, steps=10, groups=2, attempts=4, calls=3)
    found, lines = await estimate(project)
    assert (
        "from what an earlier run with groups of another size measured: 480 attempts, or quite another"
        in lines
    )
    assert "likely" not in lines
    assert found["attempts"] == 10 * 2 * 24
    assert found["wall_high"] == pytest.approx(found["attempts_high"] * 4 + 10 * 6 * 6)


async def test_runs_with_groups_of_the_same_size_are_what_counts(make: Make) -> None:
    """How often all attempts of a group score alike depends on how many they are."""
    project = make()
    await record(project, steps=3, groups=2, attempts=4, calls=3)
    now, model = time.time() + 9, project.config.model.base_model
    with Store.open(project.working_dir) as store:
        store.create_run(
            RunRow(
                "r2", "r", "rl", RunState.DONE, now, str(project.path), "", str(project.runs_dir / "r2"), model, 1,
                step=1, group_size=2, groups_per_step=1,
            )
        )  # fmt: skip
        recorder = store.recorder("r2", files=False)
        recorder.step(StepRow("r2", 1, "done", now, now, 1, {}))
        recorder.group(GroupRow("r2", 0, GroupState.TRAINED, "t", 0, 1))
        recorder.attempt(AttemptRow("r2", 0, 0, AttemptState.DONE, ended_at=now, turns=50))
        store.flush()
    found, lines = await estimate(project)
    assert "from what an earlier run measured: 24 attempts" in lines
    assert found["calls"] == 24 * 3


async def test_what_another_model_did_says_nothing(make: Make) -> None:
    await record(make(), steps=3, groups=2, attempts=4, calls=3)
    _, lines = await estimate(make(overrides=("model.base_model=elsewhere/other-model",)))
    assert "Estimate, from the config alone" in lines


async def test_a_run_without_a_rejected_group_may_have_been_lucky(make: Make) -> None:
    project = make()
    await record(project, steps=3, groups=1, attempts=4, calls=3)
    found, lines = await estimate(project)
    assert (found["attempts_low"], found["attempts"], found["attempts_high"]) == (12, 12, 36)
    assert "12 attempts, likely 12 to 36 (3 steps × 1 × 4)" in lines


async def test_a_long_run_without_one_was_no_luck(make: Make) -> None:
    project = make(overrides=("training.max_steps=200",))
    await record(project, steps=200, groups=1, attempts=4, calls=3)
    assert "likely" not in (await estimate(project))[1]


@pytest.mark.parametrize(
    ("slots", "k", "low"),
    [
        (2, 1, 80 * 3 / 2 + 5),  # sampling is what takes long; the last update comes after it
        (80, 4, 10 * 5 + 3),  # the updates are, and the first waits for an attempt
        (80, 1, 10 * 5 + 3),
        (8, 0, 10 * (80 / 10 * 3 / 8 + 5)),  # by turns
        (80, 0, 10 * (3 + 5)),  # a step is no shorter than an attempt and an update
    ],
)
async def test_the_least_time_knows_what_overlaps(make: Make, slots: int, k: int, low: float) -> None:
    """And a publish: the next attempts begin before the run has looked whether it serves."""
    mode = () if k == 0 else ("training.mode=async", f"training.max_steps_off_policy={k}")
    size = ("training.group_size=8", "training.max_steps=10")
    project = make(overrides=(f"training.max_concurrent_rollouts={slots}", *size, *mode))
    await record(project, steps=10, groups=1, attempts=8, calls=3)
    found, lines = await estimate(project)
    assert found["wall_low"] == pytest.approx(low)
    assert found["wall_high"] == pytest.approx(found["attempts_high"] * 4 + 10 * 6)
    assert ("sampling while it trains" in lines) is (k > 0)


async def test_a_bound_that_the_estimate_passes_is_warned_about(make: Make) -> None:
    project = make(more="[budget]\nmax_tokens = 500\n")
    await record(project, steps=3, groups=1, attempts=4, calls=1)
    _, lines = await estimate(project)
    assert (
        "passes [budget] max_tokens: 1,440 of 500; the run would end before its last step, after about step 1"
        in lines
    )


@pytest.mark.parametrize(
    ("config", "output", "told"),
    [("train.toml", "mine", True), ("other.toml", "mine", True), ("other.toml", "theirs", False)],
    ids=["the same config", "another one with the same output", "another one"],
)
async def test_a_run_that_is_going_on_is_told(make: Make, config: str, output: str, told: bool) -> None:
    project = make(more='[output]\nname = "mine"\n')
    now = time.time()
    with Store.open(project.working_dir) as store:
        for run_id in ("going", "gone"):
            directory, path = str(project.runs_dir.parent / output / run_id), str(project.directory / config)
            store.create_run(RunRow(run_id, "r", "rl", RunState.RUNNING, now, path, "", directory, "m", 3))
        pid = os.getpid()
        host = HostRow("h", pid, process_started(pid) or now, socket.gethostname(), "app", now, now)
        store.claim("going", host, RunState.RUNNING)
    report = await project.check()
    assert report.ok
    assert [str(finding) for finding in report.findings if "going on already" in finding.text] == told * [
        f"warning: {project.path}:16: a run of this config, or of one with the same output, is going on already: "
        "going. Watch or stop that one, or go on: another run gets a directory of its own."
    ]


async def test_a_store_that_cannot_be_read_is_a_warning(make: Make) -> None:
    project = make()
    with Store.open(project.working_dir) as store:
        path = store.path
    path.write_bytes(b"this is no database, however long it may be" * 100)
    report = await project.check()
    assert report.ok
    assert any("the earlier runs could not be read" in finding.text for finding in report.findings)


async def test_prices_give_a_cost(make: Make, tmp_path: Path) -> None:
    more = '[prices]\nsandbox_gb_hour = 2.0\ncurrency = "EUR"\n[runtime.config.sandbox]\nmemory_mb = 512\n'
    found, lines = await estimate(make(more=more))
    clock = 300 + 600 + 120 + 120
    assert found["sandbox_hours"] == pytest.approx(12 * clock / 3600)
    assert found["cost"] == pytest.approx(12 * clock / 3600 * 0.5 * 2.0)
    assert f"at most {found['cost']:.2f} EUR" in lines
