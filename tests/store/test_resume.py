"""Taking a run up again: what came after its checkpoint is gone, everywhere; what came before is untouched."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from engine.store import Store, UnknownRun
from engine.store.errors import RunTaken, UnknownCheckpoint
from engine.store.resume import TakeUp
from engine.store.rows import (
    AttemptState,
    CheckpointRow,
    CheckpointState,
    EvalRow,
    GroupState,
    LeaseRow,
    LeaseState,
    RunState,
    StepRow,
)
from tests.store.conftest import make_attempt, make_group, make_host, make_run, make_transcript

RUN, OTHER = "20261129-143501-k3f9", "20261129-150000-aaaa"


def checkpoint(step: int, state: CheckpointState = CheckpointState.SAVED, **changes: Any) -> CheckpointRow:
    name = f"step-{step:06d}"
    path = f"bt://loops:r/weights/{name}" if state is CheckpointState.SAVED else None
    return CheckpointRow(RUN, name, step, state, "every", float(step), trainer_path=path, **changes)


@pytest.fixture
def ended(store: Store, tmp_path: Path) -> Store:
    """Two runs of four steps with two groups each, stopped; the first has evaluations and checkpoints."""
    for run_id in (RUN, OTHER):
        store.create_run(make_run(tmp_path, run_id, info={"isolation": "none"}))
        store.claim(run_id, make_host(f"host-{run_id}"))
        recorder = store.recorder(run_id)
        for step in (1, 2, 3, 4):
            for group_id in (2 * step - 2, 2 * step - 1):
                recorder.transcript(make_transcript(run_id, group_id, 0, f"word{group_id}"))
                recorder.attempt(make_attempt(run_id, group_id, 0, AttemptState.DONE, reward=0.5))
                recorder.group(make_group(run_id, group_id, GroupState.TRAINED, step=step))
            recorder.step(StepRow(run_id, step, "done", 1.0, 2.0, step, {"reward/mean": step / 10}))
            recorder.run(step=step, policy_version=step)
        if run_id == RUN:
            for row in (
                checkpoint(2),
                checkpoint(3, CheckpointState.FAILED),
                checkpoint(4, CheckpointState.SAVING),
            ):
                recorder.checkpoint(row)
            for number, (target, step) in enumerate([("base", None), ("live", 2), ("live", 4)], start=1):
                eval_id = f"eval-{number}"
                recorder.evaluation(EvalRow(RUN, eval_id, target, "done", "every", 1.0, 2.0, step))
                recorder.group(make_group(RUN, -number, GroupState.EVALUATED, eval_id=eval_id))
                recorder.transcript(make_transcript(RUN, -number, 0, f"held{number}"))
        store.flush()
        store.end_run(run_id, f"host-{run_id}", RunState.STOPPED, None)
        recorder.close()
    lease = LeaseRow("box", "local", "none", RUN, 7, 0, f"host-{RUN}", LeaseState.LOST, 1.0)
    columns = [getattr(lease, name) for name in LeaseRow.__dataclass_fields__]
    marks = ", ".join("?" * len(columns))
    names = ", ".join(LeaseRow.__dataclass_fields__)
    store.submit(
        lambda connection: (
            connection.execute(f"INSERT INTO leases ({names}) VALUES ({marks})", columns).rowcount
        )
    ).result(120)
    return store


def after_two(**changes: Any) -> TakeUp:
    return TakeUp(RUN, f"host-{RUN}", 2, 4, {"reward_last": 0.2, **changes})


def test_what_came_after_is_gone_and_the_rest_is_not(ended: Store) -> None:
    reader = ended.reader()
    run = ended.take_up(make_host("new"), after_two(max_steps=9, info={"resumed": [1]}))
    assert (run.state, run.host_id, run.step, run.policy_version) == (RunState.STARTING, "new", 2, 2)
    assert (run.max_steps, run.reward_last, run.info, run.ended_at) == (9, 0.2, {"resumed": [1]}, None)
    assert [row.step for row in reader.steps(RUN)] == [1, 2]
    assert sorted(row.group_id for row in reader.groups(RUN)) == [-2, -1, 0, 1, 2, 3]
    assert [reader.attempts(RUN, group_id) != [] for group_id in (3, 4)] == [True, False]
    assert [row.eval_id for row in reader.evals(RUN)] == ["eval-1", "eval-2"]
    for text, found in (("word3", 1), ("word4", 0), ("held2", 1), ("held3", 0)):
        assert len(reader.search(RUN, text)) == found, text
    states = {row.name: row.state for row in reader.checkpoints(RUN)}
    assert states == {
        "step-000002": CheckpointState.SAVED,
        "step-000003": CheckpointState.FAILED,
        "step-000004": CheckpointState.FAILED,
    }
    assert [row.name for row in reader.leases() if row.state is LeaseState.LOST] == ["box"]
    assert len(reader.steps(OTHER)) == 4
    assert len(reader.search(OTHER, "word7")) == 1


def test_the_run_directory_says_the_same(ended: Store) -> None:
    directory = Path(ended.reader().run(RUN).run_dir)
    kept = directory / "transcripts" / "000000-000.json"
    (directory / "transcripts" / "000001-000.json").unlink()  # a kill came before it was written
    with (directory / "steps.jsonl").open("a") as file:
        file.write('{"step": 4, "half')
    before = kept.stat().st_mtime_ns
    ended.take_up(make_host("new"), after_two())
    steps = [json.loads(line)["step"] for line in (directory / "steps.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
    groups = [
        json.loads(line)["group_id"] for line in (directory / "rollouts.jsonl").read_text().splitlines()
    ]
    assert groups == [0, 1, 2, 3]
    names = {path.name for path in (directory / "transcripts").iterdir()}
    assert {"000000-000.json", "000001-000.json", "000003-000.json"} <= names
    assert "000004-000.json" not in names
    assert kept.stat().st_mtime_ns == before
    assert json.loads((directory / "run.json").read_text())["state"] == "starting"
    # What is recorded from now on follows what was kept.
    recorder = ended.recorder(RUN, host_id="new")
    recorder.step(StepRow(RUN, 3, "done", 1.0, 2.0, 3, {}))
    recorder.close()
    steps = [json.loads(line)["step"] for line in (directory / "steps.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]


def test_the_time_in_which_it_was_stopped_is_not_its_time(ended: Store) -> None:
    """It began 5,000 s ago, worked for 100 s, and was stopped until now."""
    began = time.time() - 5000
    ended.submit(
        lambda connection: connection.execute(
            "UPDATE runs SET started_at = ?, ended_at = ? WHERE run_id = ?", (began, began + 100, RUN)
        )
    ).result(120)
    assert ended.reader().run(RUN).seconds(began + 9000) == pytest.approx(100)
    run = ended.take_up(make_host("new"), after_two())
    assert run.stopped_seconds == pytest.approx(4900, abs=60)
    worked = run.seconds(began + run.stopped_seconds + 100 + 30)  # half a minute into the second sitting
    assert worked == pytest.approx(130, abs=0.01)
    assert ended.reader().run(OTHER).stopped_seconds == 0


def test_only_an_ended_run_and_only_once(ended: Store) -> None:
    ended.take_up(make_host("new"), after_two())
    host = make_host("new")
    who = f"process {host.pid} on {host.hostname} ({host.kind})"
    with pytest.raises(RunTaken, match=re.escape(f"is starting, in {who}; only a run that has ended")):
        ended.take_up(make_host("newer"), after_two())
    ended.end_run(RUN, "new", RunState.STOPPED, None)
    with pytest.raises(RunTaken, match=re.escape(f"was resumed by {who} meanwhile and is stopped again")):
        ended.take_up(make_host("newer"), after_two())
    assert ended.reader().run(RUN).state is RunState.STOPPED


def test_which_checkpoint_is_meant(ended: Store) -> None:
    reader = ended.reader()
    last = reader.last_checkpoint(RUN)
    assert last is not None
    assert last.step == 2
    assert reader.last_checkpoint(OTHER) is None
    for ref in (RUN, RUN[:-2], f"{RUN}@step-000002", reader.run(RUN).run_dir):
        assert reader.checkpoint(ref).name == "step-000002"
    with pytest.raises(
        UnknownCheckpoint, match=r"no saved checkpoint 'step-000003', it is failed; saved are step-000002"
    ):
        reader.checkpoint(f"{RUN}@step-000003")
    with pytest.raises(UnknownCheckpoint, match="has no saved checkpoint"):
        reader.checkpoint(OTHER)
    with pytest.raises(UnknownRun):
        reader.checkpoint("nothing@step-000002")
