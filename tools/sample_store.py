"""A project's store filled with runs that never happened, the same ones every time: for screenshots and tests."""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.store.leases import LeaseJournal
from engine.store.processes import hostname, process_started
from engine.store.recorder import RunRecorder
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
    TranscriptRow,
)
from engine.store.store import Store
from tools.sample_progress import surround
from tools.sample_transcript import transcript_turns

GROUP_SIZE = 8
GROUPS_PER_STEP = 8
STEPS = 14

_TASKS = (
    # the task of the group in the pictures: the one that the sample's transcript solves
    ("count-errors", "Write the number of lines with ERROR in app.log into count.txt."),
    ("rename-log", "Rename app.log to old.log and leave an empty app.log behind."),
    ("sum-column", "Sum the second column of sales.csv into total.txt."),
    ("sort-names", "Sort names.txt alphabetically in place, without duplicates."),
    ("split-config", "Move the [cache] section of app.ini into cache.ini."),
    ("fix-typo", "Replace every 'recieve' in README.md by 'receive'."),
)
_DIVERGENCE = "optim/train-sample-div"
_ENDINGS = ("solved", "wrong_answer", "max_turns", "truncated")


@dataclass(frozen=True, slots=True)
class Sample:
    """Ids of what was made."""

    live: str
    failed: str
    host: HostRow


def run_row(run_id: str, name: str, state: RunState, root: Path, **values: Any) -> RunRow:
    """A run's row with everything that is not said filled in."""
    row = RunRow(
        run_id=run_id,
        name=name,
        recipe="rl",
        state=state,
        created_at=time.time(),
        config_path=str(root / "examples" / name / "train.toml"),
        config_toml='recipe = "rl"\n',
        run_dir=str(root / "runs" / name / run_id),
        base_model="demo-model",
        max_steps=40,
        group_size=GROUP_SIZE,
        groups_per_step=GROUPS_PER_STEP,
    )
    for key, value in values.items():
        setattr(row, key, value)
    return row


def reward_at(step: int, rng: random.Random) -> float:
    """A learning curve as one sees them: slow, quick, slow, with noise."""
    return round(0.12 + 0.76 / (1 + math.exp(-(step - 7) / 2.2)) + rng.uniform(-0.035, 0.035), 4)


def step_metrics(reward: float, step: int, rng: random.Random) -> dict[str, float]:
    """The numbers of one step under the names of steps.jsonl."""
    alike = float(max(0, round(GROUPS_PER_STEP * abs(reward - 0.5) ** 2)))
    solved = max(0.0, min(1.0, reward))
    return {
        "reward/mean": reward,
        "reward/mean_with_unusable": round(reward - 0.02, 4),
        "reward/group_std_mean": round(0.46 - abs(reward - 0.5) * 0.5, 4),
        "discard/groups/no_variance": alike,
        "discard/groups/too_many_losses": 0.0,
        "discard/attempts": 0.0,
        "groups/trained": float(GROUPS_PER_STEP),
        "groups/finished": GROUPS_PER_STEP + alike,
        "rollout/turns": round(3.4 - reward, 3),
        "rollout/truncated": round(0.22 * (1 - solved), 3),
        "rollout/termination_reason/solved": round(solved, 3),
        "rollout/termination_reason/max_turns": round((1 - solved) * 0.2, 3),
        "rollout/termination_reason/wrong_answer": round((1 - solved) * 0.8, 3),
        "tokens/sampled": float(5200 + 60 * step),
        "tokens/sampled_per_second": round(880 + rng.uniform(-40, 40), 1),
        "tokens/sampled_per_attempt": round(74 + 9 * (1 - reward), 1),
        "tokens/segments_per_attempt": 1.0,
        f"{_DIVERGENCE}/kl_sample_train_k3": (kl := 2.1e-08 * rng.uniform(0.6, 1.5)),
        f"{_DIVERGENCE}/kl_sample_train_v1_loops": kl * math.cos(step),
        f"{_DIVERGENCE}/kl_sample_train_v2_loops": kl * 1.04,
        f"{_DIVERGENCE}/ess_fraction": 1.0,
        f"{_DIVERGENCE}/entropy": round(0.61 - 0.3 * reward, 4),
        "optim/grad_norm": round(1.9 - reward, 3),
        "loss": round(-0.04 + rng.uniform(-0.01, 0.01), 4),
        "time/step": round(8.4 + rng.uniform(-0.5, 0.5), 2),
        "time/share/rollout": 0.68,
        "time/share/train": 0.27,
        "time/share/publish": 0.05,
        "time/attempt_share/setup": 0.04,
        "time/attempt_share/sampling": 0.61,
        "time/attempt_share/acting": round(0.22 + 0.03 * math.sin(step), 3),
        "time/attempt_share/grading": round(0.13 - 0.03 * math.sin(step), 3),
    }


def fill(project_dir: Path, *, live_state: RunState = RunState.RUNNING) -> Sample:
    """Fill the store of ``project_dir`` and return the ids."""
    now = time.time()
    rng = random.Random(7)
    started = process_started(os.getpid()) or 0.0
    # The heartbeat lies ahead: nobody beats for this host while pictures are taken.
    host = HostRow("host-1", os.getpid(), started, hostname(), "detached", now - 140, now + 3600)
    with Store.open(project_dir) as store:
        _past_runs(store, project_dir, now, rng)
        live = run_row(
            "20261129-143501-k3f9",
            "tool_agent",
            RunState.STARTING,
            project_dir,
            created_at=now - 133,
            started_at=now - 132,
        )
        store.create_run(live)
        store.claim(live.run_id, host, RunState.RUNNING)
        record_live(store, live.run_id, host, now=now, rng=rng, state=live_state)
        store.flush()
        surround(store, live.run_id, now=now, rng=rng)
    return Sample(live.run_id, "20261129-091210-b7c1", host)


def fill_leases(project_dir: Path, sample: Sample) -> None:
    """Sandboxes of the live run, and a few that another one left behind."""
    now = time.time()
    places = [("host-1", sample.live, "k3f9", 120 + number // 4, number % 4) for number in range(14)]
    left = [("host-0", "20261128-174502-q9aa", "q9aa", 31, number) for number in range(3)]

    async def add() -> None:
        journal = LeaseJournal(store)
        for host_id, run_id, short, group_id, attempt in [*left, *places]:
            gone = host_id == "host-0"
            state = LeaseState.LOST if gone and attempt == 2 else LeaseState.ACTIVE
            row = LeaseRow(
                f"ltui-{short}-g{group_id}a{attempt}t1-{group_id * 7919 + attempt * 104729:08x}", "local", "bubblewrap",
                run_id, group_id, attempt, host_id, state, now - (1900 if gone else 17), now - (1899 if gone else 16),
                ttl_seconds=3600.0, memory_mb=512,
            )  # fmt: skip
            if state is LeaseState.LOST:
                row.tries, row.last_error = 6, "its processes would not end: [48121]"
            await journal.add(row)

    with Store.open(project_dir) as store:
        asyncio.run(add())


def record_live(
    store: Store, run_id: str, host: HostRow, *, now: float, rng: random.Random, state: RunState
) -> None:
    """Fourteen trained steps and a fifteenth in hand."""
    recorder = store.recorder(run_id, host_id=host.host_id, files=False)
    rewards: list[float] = []
    unusable = group_id = 0
    for step in range(1, STEPS + 1):
        rewards.append(reward_at(step, rng))
        started = now - 130 + (step - 1) * 8.8
        metrics = step_metrics(rewards[-1], step, rng)
        recorder.step(StepRow(run_id, step, "done", started, started + 8.4, step + 1, metrics))
        for index in range(int(metrics["groups/finished"])):
            reason = "no_variance" if index >= GROUPS_PER_STEP else None
            _group(recorder, group_id, step=step, mean=rewards[-1], started=started, reason=reason, rng=rng)
            unusable += reason is not None
            group_id += 1
    recorder.step(StepRow(run_id, STEPS + 1, "collecting", now - 4, None, None, {}))
    states = (
        [AttemptState.DONE] * 8,
        [AttemptState.DONE] * 7 + [AttemptState.GRADING],
        [AttemptState.DONE] * 5 + [AttemptState.GRADING, AttemptState.ACTING, AttemptState.SAMPLING],
        [AttemptState.DONE] * 3 + [AttemptState.SAMPLING] * 4 + [AttemptState.ACTING],
        [AttemptState.DONE] * 4 + [AttemptState.SAMPLING] * 2 + [AttemptState.ACTING, AttemptState.LOST],
        [AttemptState.SAMPLING] * 4 + [AttemptState.QUEUED] * 4,
    )
    for attempts in states:
        _open_group(recorder, group_id, attempts, now=now, rng=rng)
        group_id += 1
    for level, source, text in _LOG:
        recorder.log(level, source, text)
    recorder.run(
        state=state,
        phase="sampling",
        step=STEPS,
        policy_version=STEPS + 1,
        reward_first=rewards[0],
        reward_last=rewards[-1],
        unusable_groups=unusable,
        loops_run_id="loops-5d1c",
        loops_url="http://127.0.0.1:41873",
    )


_LOG = (
    ("info", "host", "claimed by process 4711 (detached)"),
    ("info", "loops", "local server ready at http://127.0.0.1:41873 after 1.9 s"),
    ("info", "trainer", "demo-model, LoRA rank 16, 1.2M trainable parameters"),
    ("info", "run", "step 13: reward 0.86, spread 0.28, 1 group all alike, 8.3 s"),
    (
        "warning",
        "episode",
        "group 121 attempt 7 was lost: the sandbox did not answer within 30 s; retried twice",
    ),
    ("info", "run", "step 14: reward 0.84, spread 0.29, 1 group all alike, 8.6 s"),
    ("info", "run", "published policy v15"),
)


def _group(
    recorder: RunRecorder,
    group_id: int,
    *,
    step: int,
    mean: float,
    started: float,
    reason: str | None,
    rng: random.Random,
) -> None:
    run_id = recorder.run_id
    task_id, text = _TASKS[group_id % len(_TASKS)]
    rewards = [1.0] * GROUP_SIZE if reason else [float(rng.random() < mean) for _ in range(GROUP_SIZE)]
    if reason is None and len(set(rewards)) == 1:
        rewards[0] = 1.0 - rewards[0]
    average = sum(rewards) / GROUP_SIZE
    spread = (sum((reward - average) ** 2 for reward in rewards) / GROUP_SIZE) ** 0.5
    state = GroupState.REJECTED if reason else GroupState.TRAINED
    recorder.group(
        GroupRow(
            run_id, group_id, state, task_id, group_id % 6, step, 0, step, reason,
            average, spread, min(rewards), max(rewards), GROUP_SIZE, 0, started, started + 5,
        )
    )  # fmt: skip
    for attempt, reward in enumerate(rewards):
        ending = "solved" if reward else rng.choice(_ENDINGS[1:])
        turns = transcript_turns(text, bool(reward), step, rng)
        row = AttemptRow(
            run_id, group_id, attempt, AttemptState.DONE, 1, reward, None if reason else round(reward - average, 4), 3,
            812 + 11 * attempt, 96 + 7 * attempt, 1, step, step, ending, False, None, started, started + 0.2,
            started + 3.1 + 0.2 * attempt,
            {
                "setup": [started, started + 0.2, 0.2],
                "sampling": [started + 0.2, started + 2.6, 1.9],
                "acting": [started + 0.9, started + 2.7, 0.7],
                "grading": [started + 2.7, started + 3.1, 0.4],
            },
            {"termination_reason": ending, "tool_calls": 2},
        )  # fmt: skip
        recorder.attempt(row)
        if step >= STEPS - 1:
            recorder.transcript(
                TranscriptRow(
                    run_id, group_id, attempt, task_id, reward, ending, turns, metadata=row.metadata
                )
            )


def _open_group(
    recorder: RunRecorder, group_id: int, states: list[AttemptState], *, now: float, rng: random.Random
) -> None:
    run_id = recorder.run_id
    done = sum(state is AttemptState.DONE for state in states)
    lost = sum(state is AttemptState.LOST for state in states)
    task_id, text = _TASKS[group_id % len(_TASKS)]
    ready = done == len(states)
    state = GroupState.READY if ready else GroupState.RUNNING
    row = GroupRow(
        run_id, group_id, state, task_id, group_id % 6, STEPS + 1, 0, STEPS + 1, started_at=now - 4
    )
    row.attempts_done, row.attempts_lost = done, lost
    if ready:
        row.reward_mean, row.reward_std, row.reward_min, row.reward_max = 0.875, 0.331, 0.0, 1.0
    recorder.group(row)
    for attempt, attempt_state in enumerate(states):
        item = AttemptRow(
            run_id, group_id, attempt, attempt_state, queued_at=now - 4, version_min=15, version_max=15
        )
        if attempt_state is not AttemptState.QUEUED:
            item.started_at, item.turns = now - 3.5, 1 + attempt % 2
            item.sampled_tokens, item.prompt_tokens, item.segments = 60 + 9 * attempt, 800, 1
        if attempt_state is AttemptState.DONE:
            item.reward, item.ended_at, item.turns = float(attempt != 3), now - 1, 3
            item.ending = "solved" if item.reward else "wrong_answer"
            item.timeline = {
                "provisioning": [now - 3.5, now - 3.3, 0.2],
                "setup": [now - 3.3, now - 3.1, 0.2],
                "sampling": [now - 3.1, now - 1.4, 1.1],
                "acting": [now - 2.8, now - 1.5, 0.6],
                "grading": [now - 1.4, now - 1.0, 0.4],
            }
            item.advantage = round(item.reward - 0.875, 4) if ready else None
            recorder.transcript(
                TranscriptRow(run_id, group_id, attempt, task_id, item.reward, item.ending,
                              transcript_turns(text, bool(item.reward), 15, rng))
            )  # fmt: skip
        if attempt_state is AttemptState.LOST:
            item.ended_at, item.tries = now - 1, 3
            item.error = "the sandbox did not answer within 30 s"
        recorder.attempt(item)


def _past_runs(store: Store, root: Path, now: float, rng: random.Random) -> None:
    past = (
        ("20261129-112044-x2p8", "in_process_direct", RunState.DONE, 20, 3 * 3600, 96, 0, None, 1.0),
        ("20261129-091210-b7c1", "test_suite_agent", RunState.FAILED, 6, 5 * 3600, 412, 11,
         "Loops at Baseten answered 500 while training step 7: out of memory", 0.34),
        ("20261128-174502-q9aa", "tool_agent", RunState.INTERRUPTED, 23, 21 * 3600, 1290, 14, None, 0.79),
        ("20261128-150310-m4d2", "in_process_direct", RunState.STOPPED, 9, 24 * 3600, 51, 3, None, 0.66),
        ("20261127-101500-c0de", "json_answers", RunState.ABORTED, 2, 52 * 3600, 33, 16, None, 0.05),
    )  # fmt: skip
    for run_id, name, state, steps, age, took, unusable, error, last in past:
        created = now - age
        host = HostRow(f"host-{run_id}", 1, 0.0, "elsewhere", "headless", created, created + took)
        row = run_row(
            run_id, name, RunState.CREATED, root, created_at=created, max_steps=40 if steps > 20 else 20
        )
        rate = 0.001 if state is RunState.STOPPED else 0.003  # learned too slowly, and was begun again
        row.config_toml = f'recipe = "rl"\n\n[training]\nlearning_rate = {rate}\n'
        if state is RunState.FAILED:  # its Loops run was not deactivated
            row.scope, row.loops_run_id, row.loops_state, row.loops_since = (
                "dedicated",
                "loops-77ab",
                "ACTIVE",
                created,
            )
        store.create_run(row)
        store.claim(run_id, host, RunState.RUNNING)
        recorder = store.recorder(run_id, host_id=host.host_id, files=False)
        rewards = [
            round(0.1 + (last - 0.1) * (1 - math.exp(-3 * (step + 1) / steps)), 4) for step in range(steps)
        ]
        for step, reward in enumerate(rewards, 1):
            at = created + step * took / steps
            recorder.step(
                StepRow(run_id, step, "done", at - 4, at, step + 1, step_metrics(reward, step, rng))
            )
        recorder.run(
            step=steps,
            reward_first=rewards[0],
            reward_last=rewards[-1],
            unusable_groups=unusable,
            started_at=created + 1,
        )
        recorder.flush_blocking()
        store.end_run(run_id, host.host_id, state, error)
        recorder.run(ended_at=created + took)
    sft = run_row(
        "20261126-080000-sft1", "sft_tool_use", RunState.CREATED, root,
        recipe="sft", mode="", created_at=now - 75 * 3600, max_steps=30, group_size=0, groups_per_step=0,
    )  # fmt: skip
    store.create_run(sft)
    store.claim(sft.run_id, HostRow("host-sft", 1, 0.0, "elsewhere", "headless", now, now), RunState.RUNNING)
    store.end_run(sft.run_id, "host-sft", RunState.DONE, None)
    store.recorder(sft.run_id, files=False).run(
        step=30,
        info={"loss": {"first": 2.31, "last": 0.58, "best": 0.57}},
        started_at=sft.created_at,
        ended_at=sft.created_at + 204,
    )
