"""Evaluations and trials with the real engine, the real SDK, the local server and the shipped model."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.hosting.evaluate import evaluate
from engine.hosting.local_server import LocalServer
from engine.hosting.trying import TrialSampling, WeightsAsked, open_trial
from engine.loops.management import LoopsManagement
from engine.store import Store
from engine.store.rows import GroupState
from loops_tui.link import make_hosting
from loops_tui.loops_ports import ActFailed
from tests.cli.conftest import Call, call, project_dir
from tests.engine.own_process import environment, said_until, started, to_end

__all__ = ["call", "project_dir"]

EXAMPLE = "examples/in_process_direct/train.toml"
#: The example's one task under other names: what matters here is who attempts it and what is kept of it.
HELD_OUT = "".join(
    json.dumps({"name": f"held-{number}", "instruction": text, "answer": "bridge"}) + "\n"
    for number, text in enumerate(("Name the hidden game.", "Which game is hidden?", "Name a game."))
)


def run(directory: Path, *sets: str, steps: int = 3) -> dict[str, Any]:
    return to_end(
        directory, "run", EXAMPLE, f"--set=training.max_steps={steps}", *(f"--set={each}" for each in sets)
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run of three steps with evaluations at its start, after step 2 and at its end."""
    directory = tmp_path_factory.mktemp("evaluated")
    (directory / "held.jsonl").write_text(HELD_OUT)
    value = run(directory, "eval.tasks=held.jsonl", "eval.every_steps=2", "eval.attempts_per_task=4")
    return directory, value["run"]


@pytest.fixture
def store(made: tuple[Path, str], call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(made[0])
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    with Store.open(made[0]) as opened:
        yield opened


def rewards(store: Store, run_id: str, eval_id: str) -> list[list[float | None]]:
    reader = store.reader()
    groups = sorted(
        (group for group in reader.groups(run_id, 1000) if group.eval_id == eval_id),
        key=lambda group: group.task_index,
    )
    return [[attempt.reward for attempt in reader.attempts(run_id, group.group_id)] for group in groups]


def test_a_run_evaluates_when_its_config_says(store: Store, made: tuple[Path, str]) -> None:
    rows = store.reader().evals(made[1])[::-1]
    assert [(row.eval_id, row.target, row.why, row.state) for row in rows[:3]] == [
        ("base", "base", "start", "done"),
        ("step-000002", "live", "every", "done"),
        ("step-000003", "live", "end", "done"),
    ]
    steps = {row.step: row.metrics for row in store.reader().steps(made[1])}
    assert steps[2]["eval/mean"] == rows[1].mean
    assert steps[3]["eval/pass@4"] == rows[2].pass_at["4"]
    assert "eval/mean" not in steps[1]
    # The trainer scored the evaluation's own tokens, without training on them.
    for row in rows[:3]:
        assert row.metrics["eval/train-sample-div/n_action_tokens"] > 0
        assert abs(row.metrics["eval/train-sample-div/kl_sample_train_k3"]) < 1e-6
    run_dir = Path(store.reader().run(made[1]).run_dir)
    trained = [json.loads(line) for line in (run_dir / "rollouts.jsonl").read_text().splitlines()]
    assert min(line["group_id"] for line in trained) == 0
    assert not [line for line in trained if "eval_id" in line or line["group_state"] == "evaluated"]
    states = {group.state for group in store.reader().groups(made[1], 1000) if group.eval_id}
    assert states == {GroupState.EVALUATED}
    assert store.reader().run(made[1]).unusable_groups == 0 or len(steps) == 3


def test_evaluating_changes_nothing_of_the_training(made: tuple[Path, str], tmp_path: Path) -> None:
    def trained(run_dir: Path) -> list[Any]:
        lines = [json.loads(line) for line in (run_dir / "rollouts.jsonl").read_text().splitlines()]
        keys = ("group_id", "attempt", "reward", "advantage", "sampled_tokens")
        return sorted([line[key] for key in keys] for line in lines)

    plain = run(tmp_path)
    with Store.open(made[0]) as store:
        evaluated = Path(store.reader().run(made[1]).run_dir)
    assert trained(Path(plain["run_dir"])) == trained(evaluated)


def test_a_checkpoint_scores_as_the_live_weights_did(
    call: Call, store: Store, made: tuple[Path, str]
) -> None:
    """The same weights, the same seeds, through a sampler of its own: attempt by attempt the same."""
    last = call("evaluate", made[1], "--json").value
    assert (last["eval"], last["target"], last["checkpoint"], last["state"]) == (
        "step-000003-2",
        "checkpoint",
        "step-000003",
        "done",
    )
    assert rewards(store, made[1], "step-000003-2") == rewards(store, made[1], "step-000003")
    base = call("evaluate", made[1], "--base")
    assert base.status == 0
    assert "is released" in base.err
    assert rewards(store, made[1], "base-2") == rewards(store, made[1], "base")
    heads, *lines = base.out.splitlines()
    assert heads.split()[:4] == ["EVAL", "WEIGHTS", "STATE", "TASKS"]
    assert [line.split()[0] for line in lines] == [
        "base",
        "base-2",
        "step-000002",
        "step-000003",
        "step-000003-2",
    ]
    assert "paired by task" in base.err
    assert store.reader().live_hosts(0.0) == {}
    listed = call("evaluate", made[1], "--list", "--json").value
    assert len(listed) == 5


def test_a_resumed_run_evaluates_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "held.jsonl").write_text(HELD_OUT)
    value = run(tmp_path, "eval.tasks=held.jsonl", "eval.every_steps=1", steps=1)
    to_end(tmp_path, "run", "--resume", value["run"], "--set=training.max_steps=2")
    with Store.open(tmp_path) as store:
        rows = store.reader().evals(value["run"])[::-1]
        assert [(row.eval_id, row.why) for row in rows] == [
            ("base", "start"),
            ("step-000001", "end"),
            ("step-000002", "end"),
        ]
        steps = store.reader().steps(value["run"])
        assert [step.metrics["eval/mean"] for step in steps] == [row.mean for row in rows[1:]]
        directory = Path(store.reader().run(value["run"]).run_dir)
    lines = [json.loads(line)["eval_id"] for line in (directory / "evals.jsonl").read_text().splitlines()]
    assert lines == ["base", "step-000001", "step-000002"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--checkpoint", "step-000099"), "there are step-000003"),
        (("--checkpoint", "last", "--base"), "not both"),
        (("--set", "eval.tasks=nowhere.jsonl"), "there is no such tasks file"),
        (("--set", "eval.attempts_per_task=0"), "attempts_per_task"),
    ],
)
def test_mistakes_end_in_one_sentence(
    call: Call, store: Store, made: tuple[Path, str], arguments: tuple[str, ...], said: str
) -> None:
    answer = call("evaluate", made[1], *arguments)
    assert answer.status in (1, 2)
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert "internal error" not in answer.err


def test_a_live_run_evaluates_between_two_steps_when_asked(tmp_path: Path) -> None:
    (tmp_path / "held.jsonl").write_text(HELD_OUT)
    settings = (
        "training.max_steps=5000",
        "training.max_consecutive_unusable_groups=50000",
        "eval.tasks=held.jsonl",
        "eval.at_start=false",
    )
    process = started(tmp_path, "run", EXAMPLE, "--json", *(f"--set={each}" for each in settings))
    try:
        said_until(process, "step 1/")
        with Store.open(tmp_path) as store:
            (row,) = store.reader().runs()
        ended = asyncio.run(evaluate(tmp_path, row.run_id))
        assert (ended.target, ended.why, ended.state, ended.graded) == ("live", "asked", "done", 3)
        with Store.open(tmp_path) as store:
            step = store.reader().steps(row.run_id)[(ended.step or 0) - 1]
            assert step.metrics["eval/mean"] == ended.mean
            (asked,) = store.reader().commands(row.run_id)
            assert asked.answer is not None
            assert asked.answer.startswith(f"evaluation {ended.eval_id}: mean")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_a_killed_evaluation_is_stopped_and_its_sampler_can_be_ended(
    call: Call, made: tuple[Path, str], store: Store
) -> None:
    before = {row.eval_id for row in store.reader().evals(made[1])}
    process = started(
        made[0], "evaluate", made[1], "--base", "--set=eval.attempts_per_task=1000", start_new_session=True
    )
    said_until(process, "held-out tasks, 1000 attempts each")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    store.reconcile()
    (row,) = [row for row in store.reader().evals(made[1]) if row.eval_id not in before]
    assert row.state == "stopped"
    assert "ended before" in (row.error or "")
    groups = [group for group in store.reader().groups(made[1], 1000) if group.eval_id == row.eval_id]
    assert {group.state for group in groups} <= {GroupState.LOST, GroupState.EVALUATED}
    # Nobody was left to release its sampler: it is in the account's list, and is ended by its id.
    (left,) = [
        one
        for one in call("runs", "--account", "--json").value
        if one["kind"] == "sampler" and one["state"] == "ACTIVE"
    ]
    assert f"loops-tui deactivate {left['id']}" in call("runs", "--account").err
    assert call("deactivate", left["id"]).status == 0
    assert not [one for one in call("runs", "--account", "--json").value if one["kind"] == "sampler"]


# -- try -----------------------------------------------------------------------------------------------------------


async def newest_sampler(directory: Path) -> str:
    """The state of the sampler that was opened last at the project's own server, beside any run."""
    server = LocalServer(directory)
    address = server.start()
    try:
        async with LoopsManagement(address.url, address.key) as loops:
            return (await loops.samplers())[0].state
    finally:
        server.close()


def test_messages_are_answered_line_by_line(
    call: Call, store: Store, made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, said = [], None
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", io.StringIO("Name the hidden game.\n\nAnd another one?\n"))
        said = call("try", f"{made[1]}@base", "--seed", "5", "--json")
        assert said.status == 0, said.err
        answers.append(said.value)
    assert answers[0] == answers[1]
    assert [turn["role"] for turn in answers[0]["turns"]] == ["user", "assistant"] * 2
    assert answers[0]["weights"] == "the base model loops-demo-1m"
    assert said is not None
    assert "at no cost" in said.err


async def test_a_task_is_attempted_and_everything_is_released(made: tuple[Path, str]) -> None:
    said: list[str] = []
    async with open_trial(
        made[0],
        WeightsAsked(run=made[1], checkpoint="last"),
        sampling=TrialSampling(seed=1, max_tokens=16),
        with_sandboxes=True,
        told=said.append,
    ) as trial:
        done = await trial.attempt(0)
        assert (done.task_id, done.state) == ("hidden_game", "done")
        assert done.reward is not None
        held = await trial.attempt(1, held_out=True)
        assert held.task_id == "held-1"
    assert said[-1].endswith("is released")
    assert await newest_sampler(made[0]) == "INACTIVE"


def test_weights_are_held_open_for_the_application_and_released(made: tuple[Path, str]) -> None:
    said: list[str] = []
    here = make_hosting(made[0])
    try:
        trial = here.loops.open_trial(
            WeightsAsked(run=made[1], checkpoint="last"), system=None, with_sandboxes=False, told=said.append
        )
        trial.use(TrialSampling(seed=1, max_tokens=4))
        assert trial.say("Name the hidden game.").tokens > 0
        assert trial.attempt(0, said.append).task_id == "hidden_game"
        trial.close()
        assert said[-1].endswith("is released")
        with pytest.raises(ActFailed, match="has no saved checkpoint"):
            here.loops.open_trial(
                WeightsAsked(run=made[1], checkpoint="x"), system=None, with_sandboxes=False, told=said.append
            )
    finally:
        here.close()


def test_an_attempt_in_a_sandbox_leaves_no_lease(
    call: Call, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    said = call("try", "--base", "examples/tool_agent/train_local.toml", "--task", "1", "--seed", "3")
    assert "[tool]" in said.out, said.err
    assert "reward" in said.out
    with Store.open(project_dir) as store:
        (lease,) = store.reader().leases()
        assert (lease.state, lease.run_id) == ("released", None)
        assert store.reader().runs() == []
    missing = call("try", "--base", "examples/tool_agent/train_local.toml", "--task", "99")
    assert (missing.status, "there is no task 99; there are 8" in missing.err) == (2, True)
    assert "Sampler" not in missing.err  # a typo opens nothing that may bill


def test_ctrl_c_releases_the_sampler(made: tuple[Path, str]) -> None:
    process = started(made[0], "try", made[1], stdin=subprocess.PIPE)
    said_until(process, "You talk to")
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    # Its input stays open: nobody may have to press return for it to end.
    rest = process.stderr.read()
    assert process.wait(120) == 130
    assert "is released" in rest
    assert "Traceback" not in rest
    with contextlib.suppress(BrokenPipeError):
        process.communicate(timeout=60)
    assert asyncio.run(newest_sampler(made[0])) == "INACTIVE"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say whose weights"),
        (("RUN@step-000099",), "there are step-000003"),
        (("RUN", "--held-out"), "goes with --task"),
        (("--base", "nowhere.toml"), "no such"),
    ],
)
def test_what_cannot_be_tried_is_said(
    call: Call, store: Store, made: tuple[Path, str], arguments: tuple[str, ...], said: str
) -> None:
    answer = call("try", *(argument.replace("RUN", made[1]) for argument in arguments))
    assert answer.status in (1, 2)
    assert said in answer.err
    assert "internal error" not in answer.err
