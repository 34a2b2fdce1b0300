"""What surrounds a sample run's training: evaluations with their attempts, checkpoints, spend, groups of older policies."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.store.recorder import RunRecorder
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    CheckpointRow,
    CheckpointState,
    EvalRow,
    GroupRow,
    GroupState,
)
from engine.store.store import Store

CONFIG = """recipe = "rl"

[training]
mode = "async"
group_size = 8
groups_per_step = 8
max_steps = 40
max_steps_off_policy = 2

[output]
checkpoint_every = 5

[eval]
tasks = "heldout.jsonl"
every_steps = 5

[budget]
max_hours = 0.5
max_sandbox_hours = 12.0
"""
_HELD_OUT = (
    "rename-log-held",
    "count-errors-held",
    "sum-column-held",
    "sort-names-held",
    "split-config-held",
)
_EVALS = (
    (None, "base", 0.14, "start"),
    (5, "step-000005", 0.31, "every"),
    (10, "step-000010", 0.66, "every"),
)
ATTEMPTS_PER_TASK = 4


def surround(store: Store, run_id: str, *, now: float, rng: random.Random) -> None:
    """Add to a recorded live run what an evaluation, ``checkpoint_every`` and a budget leave in its rows."""
    recorder = store.recorder(run_id, host_id="host-1", files=False)
    group_id = 0
    for place, what in enumerate(_EVALS):
        group_id = _evaluation(recorder, group_id, what, now - 128 + place * 44, rng)
    rewards = {row.step: row.metrics["reward/mean"] for row in store.reader().steps(run_id) if row.metrics}
    for step in (5, 10):
        saved = now - 128 + step * 8.8
        recorder.checkpoint(
            CheckpointRow(
                run_id, f"step-{step:06d}", step, CheckpointState.SAVED, "every", saved, saved + 1.2, step + 1,
                "loops-5d1c", f"bt://loops:loops-5d1c/weights/step-{step:06d}",
                f"bt://loops:loops-5d1c/sampler/step-{step:06d}", 4_812_000, rewards[step],
            )
        )  # fmt: skip
    recorder.run(
        mode="async",
        config_toml=CONFIG,
        info={
            "isolation": "bubblewrap",
            "sandbox_warnings": [],
            "pace": {
                "attempts_per_minute": 437.0,
                "tokens_per_second": 3_090.0,
                "slots_busy": 0.94,
                "waits_for": "group 120, 1 attempt left",
                "ahead": 4,
                "loop_lag_p99": 0.008,
            },
        },
        spend={
            "hours": 0.037,
            "sandbox_hours": 0.9,
            "sandbox_gb_hours": 0.45,
            "prompt_tokens": 2_912_000,
            "sampled_tokens": 411_000,
            "trained_tokens": 318_000,
        },
    )
    _older_policies(store, recorder)
    recorder.flush_blocking()


def _older_policies(store: Store, recorder: RunRecorder) -> None:
    """Every fourth group began one publish earlier, every eighth two: what max_steps_off_policy = 2 allows."""
    reader = store.reader()
    for group in reader.groups(recorder.run_id, 1000):
        lag = 2 if group.group_id % 8 == 7 else 1 if group.group_id % 4 == 3 else 0
        if not lag or group.policy_version is None or group.policy_version <= lag:
            continue
        version = group.policy_version - lag
        recorder.group(replace(group, policy_version=version))
        for attempt in reader.attempts(recorder.run_id, group.group_id):
            recorder.attempt(replace(attempt, version_min=version))
    reader.close()


def _evaluation(
    recorder: RunRecorder,
    group_id: int,
    what: tuple[int | None, str, float, str],
    at: float,
    rng: random.Random,
) -> int:
    """One evaluation with its groups, whose ids count down; returns the last id that it took."""
    step, name, mean, why = what
    run_id, version = recorder.run_id, 1 if step is None else step + 1
    means: dict[str, float] = {}
    for index, task in enumerate(_HELD_OUT):
        group_id -= 1
        rewards = [float(rng.random() < mean) for _ in range(ATTEMPTS_PER_TASK)]
        means[task] = sum(rewards) / len(rewards)
        spread = (sum((reward - means[task]) ** 2 for reward in rewards) / len(rewards)) ** 0.5
        recorder.group(
            GroupRow(
                run_id, group_id, GroupState.EVALUATED, task, index, step, 0, version, None, means[task], spread,
                min(rewards), max(rewards), len(rewards), 0, at, at + 3, eval_id=name,
            )
        )  # fmt: skip
        for attempt, reward in enumerate(rewards):
            recorder.attempt(
                AttemptRow(
                    run_id, group_id, attempt, AttemptState.DONE, 1, reward, None, 3, 820, 101, 1, version, version,
                    "solved" if reward else "wrong_answer", False, None, at, at + 0.1, at + 2.4,
                    {
                        "setup": [at + 0.1, at + 0.2, 0.1],
                        "sampling": [at + 0.2, at + 1.9, 1.5],
                        "acting": [at + 0.5, at + 2.0, 0.3],
                        "grading": [at + 2.0, at + 2.4, 0.4],
                    },
                )
            )  # fmt: skip
    average = sum(means.values()) / len(means)
    graded = len(_HELD_OUT) * ATTEMPTS_PER_TASK
    half = 1.96 * (average * (1 - average) / graded) ** 0.5
    recorder.evaluation(
        EvalRow(
            run_id, name, "base" if step is None else "live", "done", why, at, at + 3, step, None, len(_HELD_OUT),
            ATTEMPTS_PER_TASK, graded, 0, average, max(0.0, average - half), min(1.0, average + half),
            {"1": average, "4": min(1.0, average * 1.6)},
            {task: {"mean": value, "graded": 4, "passed": round(value * 4)} for task, value in means.items()},
            {}, {"temperature": 1.0, "max_tokens": 80},
        )
    )  # fmt: skip
    return group_id
