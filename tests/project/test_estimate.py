"""What a run will take: bounds from the config before a first run, means of earlier runs afterwards."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.project import Project
from engine.store.processes import process_started
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    GroupRow,
    GroupState,
    HostRow,
    RunRow,
    RunState,
    StepRow,
)
from engine.store.store import Store

Make = Callable[..., Project]


def record(project: Project, *, steps: int, groups: int, attempts: int, calls: int) -> None:
    """A finished run of the project: ``groups`` groups a step, each attempt 4 s long, 3 of them in its slot, each
    update 6 s."""
    now = time.time()
    with Store.open(project.working_dir) as store:
        run = RunRow(
            "r1", "r", "rl", RunState.DONE, now, str(project.path), "", str(project.runs_dir / "r1"), "m", steps,
            step=steps,
        )  # fmt: skip
        store.create_run(run)
        recorder = store.recorder("r1", files=False)
        for step in range(1, steps + 1):
            recorder.step(
                StepRow("r1", step, "done", now, now, step, {"time/train": 5.0, "time/publish": 1.0})
            )
            for group in range(groups):
                group_id = (step - 1) * groups + group
                recorder.group(GroupRow("r1", group_id, GroupState.TRAINED, "t", 0, step))
                for attempt in range(attempts):
                    recorder.attempt(
                        AttemptRow(
                            "r1",
                            group_id,
                            attempt,
                            AttemptState.DONE,
                            turns=calls,
                            prompt_tokens=100,
                            sampled_tokens=20,
                            started_at=now,
                            ended_at=now + 4.0,
                            timeline={
                                "acting": [now, now + 3.0, 1.0],
                                "sampling": [now, now + 3.0, 2.0],
                                "grading": [now + 3.0, now + 4.0, 1.0],
                            },
                        )
                    )
        recorder.group(GroupRow("r1", -1, GroupState.EVALUATED, "t", 0, eval_id="base"))
        recorder.attempt(
            AttemptRow("r1", -1, 0, AttemptState.DONE, turns=99, started_at=now, ended_at=now + 99)
        )
        store.flush()


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
    record(project, steps=2, groups=2, attempts=4, calls=3)
    found, lines = await estimate(project)
    assert found["attempts"] == 10 * 8  # two groups were sampled for each one that trained
    assert found["calls"] == 80 * 3
    assert found["prompt_tokens"] == 80 * 100
    assert found["sampled_tokens"] == 80 * 20
    assert found["wall_low"] == pytest.approx(80 * 3 / 2 + 10 * 6)  # an attempt is graded outside of its slot
    assert found["wall_high"] == pytest.approx(80 * 4 + 10 * 6)
    assert "from what an earlier run measured: 80 attempts (2.00 × 10 steps × 1 × 4" in lines


@pytest.mark.parametrize(
    ("slots", "k", "low"),
    [
        (2, 1, 80 * 3 / 2 + 6),  # sampling is what takes long; the last update comes after it
        (80, 4, 10 * 6 + 3),  # the updates are, and the first waits for an attempt
        (80, 1, 10 * 6 + 3),
        (8, 0, 10 * (80 / 10 * 3 / 8 + 6)),  # by turns
        (80, 0, 10 * (3 + 6)),  # a step is no shorter than an attempt and an update
    ],
)
async def test_the_least_time_knows_what_overlaps(make: Make, slots: int, k: int, low: float) -> None:
    mode = () if k == 0 else ("training.mode=async", f"training.max_steps_off_policy={k}")
    project = make(overrides=(f"training.max_concurrent_rollouts={slots}", "training.max_steps=10", *mode))
    record(project, steps=2, groups=2, attempts=4, calls=3)
    found, lines = await estimate(project)
    assert found["wall_low"] == pytest.approx(low)
    assert found["wall_high"] == pytest.approx(80 * 4 + 10 * 6)
    assert ("sampling while it trains" in lines) is (k > 0)


async def test_a_bound_that_the_estimate_passes_is_warned_about(make: Make) -> None:
    project = make(more="[budget]\nmax_tokens = 500\n")
    record(project, steps=3, groups=1, attempts=4, calls=1)
    _, lines = await estimate(project)
    assert (
        "passes [budget] max_tokens: 1,440 of 500; the run would end before its last step, after about step 1"
        in lines
    )


async def test_a_run_of_the_same_config_that_is_going_on_is_told(make: Make) -> None:
    project = make()
    now = time.time()
    with Store.open(project.working_dir) as store:
        for run_id in ("going", "gone"):
            directory = str(project.runs_dir / run_id)
            store.create_run(
                RunRow(run_id, "r", "rl", RunState.RUNNING, now, str(project.path), "", directory, "m", 3)
            )
        pid = os.getpid()
        host = HostRow("h", pid, process_started(pid) or now, socket.gethostname(), "app", now, now)
        store.claim("going", host, RunState.RUNNING)
    report = await project.check()
    assert report.ok
    assert [str(finding) for finding in report.findings if "going on already" in finding.text] == [
        "warning: a run of this config is going on already: going. Watch or stop that one, or go on: another run "
        "gets a directory of its own."
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
