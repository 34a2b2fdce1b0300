"""Checkpoints, evaluations, spend and bills for the runs of ``tools.sample_store``, the same ones every time."""

from __future__ import annotations

import time
from pathlib import Path

from engine.store.rows import CheckpointRow, CheckpointState, EvalRow, RunState
from engine.store.store import Store
from tools.sample_store import Sample, run_row

DONE = "20261129-112044-x2p8"
INTERRUPTED = "20261128-174502-q9aa"
BILLING = "20261129-060000-b111"
MB = 1_000_000

_BUDGETED = """recipe = "rl"

[model]
base_model = "demo-model"

[training]
learning_rate = 0.0001
max_steps = 40

[compute]
scope = "dedicated"

[budget]
max_cost = 40.0
max_hours = 12.0

[prices]
currency = "USD"
trainer_hour = 6.5
"""


def fill_checkpoints(project_dir: Path, sample: Sample) -> None:
    """Checkpoints of four runs, one of which has ended and still bills."""
    now = time.time()
    with Store.open(project_dir) as store:
        _billing_run(store, project_dir, now)
        _save(store, sample.live, [(5, "every"), (10, "every")], now - 90, evals=False)
        live = store.recorder(sample.live, files=False)
        live.checkpoint(
            CheckpointRow(
                sample.live, "step-000014", 14, CheckpointState.SAVING, "asked", now - 3, policy_version=15
            )
        )
        _save(store, DONE, [(10, "every"), (20, "end")], now - 3 * 3600, evals=True)
        _save(store, INTERRUPTED, [(10, "every"), (20, "every")], now - 21 * 3600, evals=False)
        _save(
            store,
            BILLING,
            [(10, "every"), (20, "every"), (28, "stop")],
            now - 9 * 3600,
            evals=True,
            paid=True,
        )
        store.recorder(sample.failed, files=False).checkpoint(
            CheckpointRow(
                sample.failed, "step-000005", 5, CheckpointState.FAILED, "every", now - 5 * 3600,
                error="the local Loops server did not answer: connection refused",
            )
        )  # fmt: skip
        store.flush()


def _billing_run(store: Store, root: Path, now: float) -> None:
    row = run_row(
        BILLING, "tool_agent", RunState.STOPPED, root, created_at=now - 10 * 3600, started_at=now - 9.9 * 3600,
        ended_at=now - 6 * 3600, step=28, max_steps=40, scope="dedicated", config_toml=_BUDGETED, reward_first=0.11,
        reward_last=0.81, loops_run_id="run-7f3c21", loops_state="ACTIVE", loops_since=now - 9.8 * 3600,
        spend={"hours": 3.9, "sandbox_hours": 21.5, "prompt_tokens": 41_200_000, "sampled_tokens": 3_900_000,
               "cost": 33.15, "near": "max_cost"},
    )  # fmt: skip
    store.create_run(row)


def _save(
    store: Store, run_id: str, steps: list[tuple[int, str]], at: float, *, evals: bool, paid: bool = False
) -> None:
    recorder = store.recorder(run_id, files=False)
    loops = "run-7f3c21" if paid else "local"
    for number, (step, why) in enumerate(steps):
        name, saved = f"step-{step:06d}", at + number * 1200
        reward = round(0.15 + 0.65 * (1 - 0.5 ** (step / 8)), 3)
        recorder.checkpoint(
            CheckpointRow(
                run_id, name, step, CheckpointState.SAVED, why, saved - 2, saved, step + 1, loops,
                f"bt://loops:{loops}/weights/{name}", f"bt://loops:{loops}/sampler_weights/{name}",
                (184 if paid else 4) * MB + 1000 * step, reward,
            )
        )  # fmt: skip
        if evals:
            recorder.evaluation(
                EvalRow(
                    run_id, name, "checkpoint", "done", "every", saved + 5, saved + 95, step, name, 24, 4, 96, 0,
                    reward - 0.04, reward - 0.11, reward + 0.03, {"1": reward - 0.04, "4": min(1.0, reward + 0.14)},
                )
            )  # fmt: skip
    if evals:
        recorder.evaluation(
            EvalRow(
                run_id,
                "base",
                "base",
                "done",
                "start",
                at - 3000,
                at - 2900,
                None,
                None,
                24,
                4,
                96,
                0,
                0.13,
                0.07,
                0.2,
            )
        )
