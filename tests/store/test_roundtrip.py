"""What is recorded comes back: every row type, odd content, coalescing, files."""

from __future__ import annotations

import json
import math
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from engine.store import Store, StoreError
from engine.store.errors import PartLost
from engine.store.rows import (
    AttemptState,
    CommandState,
    GroupState,
    RunState,
    StepRow,
    TranscriptRow,
)
from tests.store.conftest import make_attempt, make_group, make_host, make_run, make_transcript

RUN = "20261129-143501-k3f9"


def test_every_row_comes_back(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path, info={"seed": 3})
    store.create_run(run)
    recorder = store.recorder(RUN)
    step = StepRow(RUN, 1, "done", 1.0, 2.0, 1, {"reward/mean": 0.5, "time/total": 3.25})
    group = make_group(RUN, 0, GroupState.TRAINED, step=1, reward_mean=0.5, reward_std=0.1)
    attempt = make_attempt(
        RUN,
        0,
        1,
        AttemptState.DONE,
        reward=0.5,
        timeline={"setup": [1.0, 2.0]},
        metadata={"k": "v"},
        timed_out=True,
    )
    transcript = make_transcript(RUN, 0, 1, "hello", "world", metadata={"n": 1}, tools=[{"name": "shell"}])
    recorder.step(step)
    recorder.group(group)
    recorder.attempt(attempt)
    recorder.transcript(transcript)
    recorder.log("info", "run", "first line")
    recorder.run(state=RunState.RUNNING, step=1, phase="sampling", reward_last=0.5)
    recorder.flush_blocking()

    reader = store.reader()
    run.state, run.step, run.phase, run.reward_last = RunState.RUNNING, 1, "sampling", 0.5
    assert reader.run(RUN) == run
    assert reader.steps(RUN) == [step]
    assert reader.steps(RUN, after_step=1) == []
    assert reader.groups(RUN) == [group]
    assert reader.groups(RUN, step=2) == []
    assert reader.attempts(RUN, 0) == [attempt]
    assert reader.transcript(RUN, 0, 1) == transcript
    assert reader.transcript(RUN, 0, 2) is None
    assert [(row.level, row.source, row.text) for row in reader.log(RUN)] == [("info", "run", "first line")]
    assert reader.rewards([RUN]) == {RUN: [0.5]}


def test_odd_content_is_stored_and_never_loses_its_neighbours(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    hostile = "\x1b]52;c;AAAA\x07 lone \udc80 nul \0 \u202e \U0001f600"
    recorder.attempt(make_attempt(RUN, 0, 0, error=hostile, metadata={"text": hostile, "n": np.float32(0.5)}))
    recorder.attempt(make_attempt(RUN, 0, 1, reward=math.nan))
    recorder.attempt(make_attempt(RUN, 0, 2, turns=2**80))
    recorder.attempt(make_attempt(RUN, 0, 3))
    recorder.transcript(make_transcript(RUN, 0, 0, hostile))
    recorder.step(StepRow(RUN, 1, "done", 1.0, metrics={"loss": float("nan"), "n": np.int64(3)}))  # type: ignore[dict-item]
    recorder.flush_blocking()

    reader = store.reader()
    attempts = reader.attempts(RUN, 0)
    assert [attempt.attempt for attempt in attempts] == [0, 1, 3]
    assert attempts[0].metadata == {"text": hostile, "n": 0.5}
    assert attempts[0].error == hostile.replace("\udc80", "\\udc80")
    assert attempts[1].reward is None
    transcript = reader.transcript(RUN, 0, 0)
    assert transcript is not None
    assert transcript.turns[0]["content"] == hostile
    metrics = reader.steps(RUN)[0].metrics
    assert math.isnan(metrics["loss"])
    assert metrics["n"] == 3
    # The row that no column can hold is not forgotten: closing says so.
    with pytest.raises(StoreError, match="64 bits"):
        store.close()


def test_a_directory_that_cannot_be_written_is_told_once_and_rows_go_on(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store.create_run(run)
    recorder = store.recorder(RUN)
    told: list[StoreError] = []
    store.on_error(told.append)
    shutil.rmtree(run.run_dir)
    for number in range(3):
        recorder.log("info", "run", f"line {number}")
        recorder.flush_blocking()
    recorder.close()
    (error,) = told
    assert isinstance(error, PartLost)
    assert "run directory" in str(error)
    assert len(store.reader().log(RUN)) == 3


def test_rows_are_what_they_were_when_handed_over(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    attempt = make_attempt(RUN, 0, 0, metadata={"a": 1})
    transcript = make_transcript(RUN, 0, 0, "one")
    transcript.turns[0]["sampled"] = {"tokens": [1, 2], "texts": ["a", "b"]}
    recorder.attempt(attempt)
    recorder.transcript(transcript)
    attempt.metadata["b"] = 2
    transcript.turns.append({"role": "user", "content": "later"})
    transcript.turns[0]["sampled"]["tokens"].append(3)
    recorder.flush_blocking()
    reader = store.reader()
    assert reader.attempts(RUN, 0)[0].metadata == {"a": 1}
    stored = reader.transcript(RUN, 0, 0)
    assert stored is not None
    assert len(stored.turns) == 1
    assert stored.turns[0]["sampled"]["tokens"] == [1, 2]


def test_later_rows_win_and_run_fields_are_merged(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    for number in range(100):
        recorder.attempt(make_attempt(RUN, 0, 0, turns=number))
        recorder.run(step=number)
    recorder.run(phase="training")
    recorder.transcript(make_transcript(RUN, 0, 0, "old words"))
    recorder.flush_blocking()
    recorder.transcript(make_transcript(RUN, 0, 0, "new words"))
    recorder.flush_blocking()
    reader = store.reader()
    assert reader.attempts(RUN, 0)[0].turns == 99
    run = reader.run(RUN)
    assert (run.step, run.phase) == (99, "training")
    assert reader.search(RUN, "old") == []
    assert len(reader.search(RUN, "new")) == 1


def test_unknown_run_fields_and_foreign_rows_are_refused(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    with pytest.raises(TypeError, match="stat"):
        recorder.run(stat="running")
    with pytest.raises(ValueError, match="another"):
        recorder.group(make_group("another", 0))


async def test_flush_waits_in_an_event_loop(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    recorder.log("info", "run", "line")
    await recorder.flush()
    assert len(store.reader().log(RUN)) == 1


def test_data_version_tells_of_changes(store: Store, tmp_path: Path) -> None:
    reader = store.reader()
    before = reader.data_version()
    assert reader.data_version() == before
    store.create_run(make_run(tmp_path))
    assert reader.data_version() != before


def test_checks_keep_the_newest(store: Store) -> None:
    for number in range(25):
        store.add_check("a.toml", ok=number % 2 == 0, findings=[{"key": "x"}], lines=[f"line {number}"])
    checks = store.reader().checks("a.toml", limit=100)
    assert len(checks) == 20
    assert checks[0].lines == ["line 24"]
    assert checks[0].ok is True
    assert checks[0].findings == [{"key": "x"}]


def test_commands_are_taken_once_and_answered(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    asked = store.request(RUN, "save", {"name": "best"})
    assert asked.state is CommandState.QUEUED
    (taken,) = store.take_commands(RUN)
    assert (taken.command_id, taken.kind, taken.args) == (asked.command_id, "save", {"name": "best"})
    assert store.take_commands(RUN) == []
    store.answer(asked.command_id, CommandState.DONE, "saved as best")
    row = store.reader().command(asked.command_id)
    assert row is not None
    assert (row.state, row.answer) == (CommandState.DONE, "saved as best")
    with pytest.raises(StoreError, match="there are pause"):
        store.request(RUN, "explode")
    with pytest.raises(StoreError, match="there is no run"):
        store.request("nobody", "stop")


def test_deleting_a_run_leaves_nothing_of_it(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    store.create_run(make_run(tmp_path, "other"))
    for run_id in (RUN, "other"):
        recorder = store.recorder(run_id)
        recorder.group(make_group(run_id, 0))
        recorder.attempt(make_attempt(run_id, 0, 0))
        recorder.transcript(make_transcript(run_id, 0, 0, "some words"))
        recorder.log("info", "run", "line")
    store.flush()
    host = make_host()
    store.claim(RUN, host)
    store.end_run(RUN, host.host_id, RunState.STOPPED, None)
    store.delete_run(RUN)
    reader = store.reader()
    assert [hit.run_id for hit in reader.search(None, "words")] == ["other"]
    assert reader.groups(RUN) == []
    with pytest.raises(StoreError, match="no run"):
        reader.run(RUN)


def test_run_directory_is_written_and_rebuilt(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store.create_run(run)
    recorder = store.recorder(RUN)
    recorder.group(make_group(RUN, 0, step=1))
    for attempt in range(2):
        recorder.attempt(make_attempt(RUN, 0, attempt, AttemptState.DONE, reward=float(attempt)))
        recorder.transcript(make_transcript(RUN, 0, attempt, f"said {attempt}"))
    recorder.log("warning", "episode", "two\nlines")
    recorder.step(StepRow(RUN, 1, "training", 1.0))
    recorder.flush_blocking()
    directory = Path(run.run_dir)
    assert not (directory / "rollouts.jsonl").exists()
    assert not (directory / "steps.jsonl").exists()
    recorder.group(make_group(RUN, 0, GroupState.TRAINED, step=1))
    recorder.step(StepRow(RUN, 1, "done", 1.0, 2.0, 1, {"reward/mean": 0.5, "kl": float("inf")}))
    recorder.run(state=RunState.DONE, loops_run_id="lr-1")
    recorder.flush_blocking()
    recorder.step(StepRow(RUN, 1, "done", 1.0, 2.5, 1, {"reward/mean": 0.5}))
    recorder.flush_blocking()

    written = json.loads((directory / "run.json").read_text())
    assert (written["state"], written["loops_run_id"], written["run_id"]) == ("done", "lr-1", RUN)
    assert (directory / "config.toml").read_text() == run.config_toml
    (line,) = (directory / "steps.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "step": 1, "started_at": 1.0, "ended_at": 2.0, "policy_version": 1, "reward/mean": 0.5, "kl": None,
    }  # fmt: skip
    rollouts = [json.loads(line) for line in (directory / "rollouts.jsonl").read_text().splitlines()]
    assert [(row["attempt"], row["reward"], row["group_state"]) for row in rollouts] == [
        (0, 0.0, "trained"),
        (1, 1.0, "trained"),
    ]
    told = json.loads((directory / "transcripts" / "000000-001.json").read_text())
    assert told["turns"][0]["content"] == "said 1"
    assert "two\n    lines" in (directory / "run.log").read_text()

    elsewhere = tmp_path / "exported"
    store.rebuild_directory(RUN, elsewhere)
    for name in ("rollouts.jsonl", "run.log", "run.json", "config.toml", "transcripts/000000-000.json"):
        assert (elsewhere / name).read_text() == (directory / name).read_text()
    store.rebuild_directory(RUN, elsewhere)
    assert len((elsewhere / "rollouts.jsonl").read_text().splitlines()) == 2


def test_what_the_end_cut_off_is_in_the_directory_too(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store.create_run(run)
    host = make_host()
    store.claim(RUN, host)
    recorder = store.recorder(RUN, host_id=host.host_id)
    recorder.group(make_group(RUN, 0, GroupState.TRAINED))
    recorder.attempt(make_attempt(RUN, 0, 0, AttemptState.DONE))
    recorder.group(make_group(RUN, 1))
    recorder.attempt(make_attempt(RUN, 1, 0, AttemptState.SAMPLING))
    recorder.flush_blocking()
    store.end_run(RUN, host.host_id, RunState.ABORTED, None)
    recorder.close()
    recorder.close()
    rollouts = [json.loads(line) for line in (Path(run.run_dir) / "rollouts.jsonl").read_text().splitlines()]
    assert [(row["group_id"], row["state"], row["group_state"]) for row in rollouts] == [
        (0, "done", "trained"),
        (1, "cancelled", "lost"),
    ]
    assert json.loads((Path(run.run_dir) / "run.json").read_text())["state"] == "aborted"


def test_the_rewards_of_steps_are_of_every_group_where_that_is_known(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    for step, metrics in enumerate(
        [{"reward/mean": 0.5, "reward/mean_with_unusable": 0.25}, {"reward/mean": 0.5}, {}], 1
    ):
        recorder.step(StepRow(RUN, step, "done", 1.0, metrics=metrics))
    store.flush()
    assert store.reader().rewards([RUN]) == {RUN: [0.25, 0.5]}


def test_files_are_private(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store.create_run(run)
    store.recorder(RUN).log("info", "run", "x")
    store.flush()
    for path in (tmp_path / ".loops", Path(run.run_dir)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in [*(tmp_path / ".loops").glob("loops.db*"), Path(run.run_dir) / "run.json"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_transcripts_of_parts_are_searchable(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "alpha part"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "thinking about bravo",
            "tool_calls": [{"id": "1", "name": "write_file", "arguments": '{"path": "charlie.txt"}'}],
        },
    ]
    store.recorder(RUN).transcript(TranscriptRow(RUN, 0, 0, "t", 1.0, "graded", turns))
    store.flush()
    reader = store.reader()
    for words in ("alpha", "bravo", "write_file", "charlie.txt", "cha"):
        assert len(reader.search(RUN, words)) == 1, words
