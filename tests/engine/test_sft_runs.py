"""Supervised fine-tuning on the real server: it learns, and a resume trains every row as often as no interruption."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.hosting.library import train
from engine.project import Project, load
from engine.recipes.control import RunControl
from engine.store.rows import RunState, StepRow
from engine.store.store import Store
from tests.engine.resumable import until_step

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")

CONFIG = """\
recipe = "sft"
[data]
train = "train.jsonl"
validation = "validation.jsonl"
[model]
base_model = "loops-demo-1m"
max_seq_len = 96
[training]
epochs = 2
batch_size = 4
learning_rate = 0.01
validate_every = 2
[compute]
scope = "local"
"""
GAMES = ["chess", "rugby", "tennis", "polo"]


def row(number: int) -> str:
    asked = {"role": "user", "content": f"Which game has the number {number}?"}
    return (
        json.dumps({"messages": [asked, {"role": "assistant", "content": GAMES[number % len(GAMES)]}]}) + "\n"
    )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "train.jsonl").write_text("".join(row(number) for number in range(18)))
    (tmp_path / "validation.jsonl").write_text("".join(row(number) for number in range(40, 44)))
    (tmp_path / "train.toml").write_text(CONFIG)
    return load(tmp_path / "train.toml", working_dir=tmp_path)


def steps_of(project: Project) -> list[StepRow]:
    with Store.open(project.working_dir) as store:
        [run] = store.reader().runs()
        return store.reader().steps(run.run_id)


async def test_the_loss_falls_and_every_step_is_told(project: Project) -> None:
    outcome = await train(project)
    assert outcome.state is RunState.DONE
    steps = steps_of(project)
    assert [step.step for step in steps] == list(range(1, 11))  # 18 rows in batches of 4, twice
    assert [step.metrics["rows"] for step in steps] == [4, 4, 4, 4, 2] * 2
    assert steps[-1].metrics["loss"] < steps[0].metrics["loss"] / 2
    assert [step.step for step in steps if "loss/validation" in step.metrics] == [2, 4, 6, 8, 10]
    with Store.open(project.working_dir) as store:
        [run] = store.reader().runs()
        [checkpoint] = store.reader().checkpoints(run.run_id)
    assert (run.recipe, run.max_steps, run.step) == ("sft", 10, 10)
    assert run.info["loss"]["last"] == steps[-1].metrics["loss/validation"] < run.info["loss"]["first"]
    assert (checkpoint.name, checkpoint.why) == ("step-000010", "end")
    assert run.spend["trained_tokens"] == sum(step.metrics["tokens/total"] for step in steps)


async def stop_after(project: Project, control: RunControl, step: int) -> None:
    with Store.open(project.working_dir) as store:
        await until_step(store, step)
    control.stop_after_step("test")


async def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(project: Project, tmp_path: Path) -> None:
    await train(project)
    whole = steps_of(project)

    other = tmp_path / "other"
    other.mkdir()
    for name in ("train.jsonl", "validation.jsonl", "train.toml"):
        (other / name).write_bytes((tmp_path / name).read_bytes())
    again = load(other / "train.toml", working_dir=other)
    control = RunControl()
    stopping = asyncio.create_task(stop_after(again, control, 3))
    outcome = await train(again, control=control)
    await stopping
    assert outcome.state is RunState.STOPPED
    assert 3 <= outcome.steps < 10
    with Store.open(other) as store:
        [run] = store.reader().runs()
    resumed = await train(again, resume=run.run_id)
    assert (resumed.state, resumed.steps) == (RunState.DONE, 10)
    steps = steps_of(again)
    assert [step.step for step in steps] == list(range(1, 11))
    for name in ("loss", "learning_rate", "epoch", "rows", "loss/validation"):
        assert [s.metrics.get(name) for s in steps] == pytest.approx([s.metrics.get(name) for s in whole]), (
            name
        )


async def test_changed_data_is_refused_and_early_stop_ends_a_run(project: Project) -> None:
    patient = load(
        project.path,
        {"training.early_stop_after": 1, "training.early_stop_delta": 50.0},
        working_dir=project.working_dir,
    )
    outcome = await train(patient)
    assert outcome.state is RunState.DONE
    assert outcome.steps == 2  # the first validation set the mark, the second one did not beat it by 50
    with Store.open(project.working_dir) as store:
        [run] = store.reader().runs()
    assert run.info["ended_by"] == "[training] early_stop_after"
    (project.directory / "train.jsonl").write_text("".join(row(number) for number in range(20)))
    with pytest.raises(Exception, match="the training files have changed since its checkpoint"):
        await train(patient, resume=run.run_id)


async def test_too_many_bad_rows_and_missing_files_are_told_by_check(project: Project) -> None:
    with (project.directory / "train.jsonl").open("a") as file:
        file.write("{broken\n" * 6)
    report = await project.check()
    assert not report.ok
    told = [str(finding) for finding in report.findings]
    assert any("6 of 24 rows of the [data] train data are refused (25%)" in text for text in told)
    assert any("train.jsonl:19: refused as malformed" in text for text in told)
    gone = load(project.path, {"data.validation": "gone.jsonl"}, working_dir=project.working_dir)
    [error] = [str(finding) for finding in (await gone.check()).findings if finding.severity == "error"]
    assert "there is no data file" in error
    both = load(project.path, {"data.validation": "train.jsonl"}, working_dir=project.working_dir)
    assert any("is trained on and validated on" in f.text for f in (await both.check()).findings)
