"""The files beside the store say what was committed, also of rows that come in while a commit is under way."""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import asdict
from pathlib import Path

from engine.store import Store
from engine.store.rows import AttemptState, GroupRow, GroupState, StepRow, TranscriptRow
from engine.store.rundir import RunDirectory, RunFiles, dump_file_json
from tests.store.conftest import make_attempt, make_group, make_run

RUN = "20261129-143501-k3f9"


def lines(directory: Path, name: str) -> list[dict[str, object]]:
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_row_that_is_not_committed_yet_waits_for_its_commit(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store.create_run(run)
    recorder = store.recorder(RUN, files=False)
    directory = Path(run.run_dir)
    files = RunFiles(RUN, RunDirectory(directory))
    group, step = make_group(RUN, 0), StepRow(RUN, 1, "collecting", 1.0)

    def told(changed: GroupRow, begun: StepRow) -> None:
        files.group_changed(changed)
        files.step_changed(begun)

    recorder.group(group)
    recorder.step(step)
    recorder.attempt(make_attempt(RUN, 0, 0))
    told(group, step)
    store.flush()
    # The engine hands the last rows over just when the writer has committed the ones before.
    group.state, step.state = GroupState.TRAINED, "done"
    told(group, step)
    store.submit(files.after_commit).result(120)
    assert lines(directory, "rollouts.jsonl") == lines(directory, "steps.jsonl") == []
    recorder.attempt(make_attempt(RUN, 0, 0, AttemptState.DONE, reward=0.5))
    recorder.group(group)
    recorder.step(step)
    store.flush()
    for _ in range(2):  # once and not again
        store.submit(files.after_commit).result(120)
    ((rollout,), (line,)) = lines(directory, "rollouts.jsonl"), lines(directory, "steps.jsonl")
    assert (rollout["group_state"], rollout["reward"]) == ("trained", 0.5)
    assert line["step"] == 1
    store.submit(files.finish).result(120)
    assert len(lines(directory, "rollouts.jsonl")) == 1


def test_who_waits_for_a_row_does_not_wait_for_the_files(store: Store, tmp_path: Path) -> None:
    """A checkpoint's or sandbox's intent is committed to the store; the files beside it may take their time."""
    written, blocked = threading.Event(), threading.Event()

    def slow_disk(_: sqlite3.Connection) -> None:
        blocked.set()
        assert written.wait(120)

    store.create_run(make_run(tmp_path))
    store._writer.after_commit.append(slow_disk)
    recorder = store.recorder(RUN, files=False)
    recorder.group(make_group(RUN, 0))
    try:
        recorder.flush_blocking(20)
        assert blocked.wait(120)
    finally:
        written.set()


def test_a_log_line_handed_over_after_the_commit_is_not_forgotten(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store.create_run(run)
    recorder = store.recorder(RUN, files=False)
    files = RunFiles(RUN, RunDirectory(Path(run.run_dir)))
    store.submit(files.after_commit).result(120)  # the commit before the line's own
    recorder.log("info", "engine", "the sampler is ready")
    store.flush()
    store.submit(files.after_commit).result(120)
    assert "the sampler is ready" in (Path(run.run_dir) / "run.log").read_text()


def test_a_transcript_file_is_its_row_as_json(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": 'Naïve "quotes"'},
        {"role": "assistant", "content": None, "sampled": {"logprobs": [-0.5, float("nan")]}},
    ]
    for said in ([], turns):
        row = TranscriptRow(RUN, 3, 1, "t", 1.0, "done", turns=said, tools=[{"a": 1}], metadata={"b": "c"})
        directory = RunDirectory(tmp_path)
        (tmp_path / "transcripts").mkdir(exist_ok=True)
        directory.write_transcript(row)
        text = (tmp_path / "transcripts" / "000003-001.json").read_text()
        assert text == dump_file_json(asdict(row)) + "\n"
