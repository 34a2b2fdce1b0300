"""[model] from_checkpoint, before anything is started."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checking.starting import check_start
from engine.config import CheckReport
from engine.project import Project, load
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, RunRow, RunState

Make = Callable[..., Project]
RUN = "20261129-143501-k3f9"


@pytest.fixture
def report(make: Make, tmp_path: Path) -> Callable[..., CheckReport]:
    """The report on a config with this from_checkpoint, beside a run with one checkpoint after step 4."""
    plain = make()
    run = RunRow(
        RUN,
        "demo",
        "rl",
        RunState.STOPPED,
        time.time(),
        str(plain.path),
        plain.config_toml,
        str(tmp_path / "runs" / RUN),
        "loops-demo-1m",
        9,
    )
    with Store.open(tmp_path) as store:
        store.create_run(run)
        recorder = store.recorder(RUN)
        path = "bt://loops:r/weights/step-000004"
        recorder.checkpoint(
            CheckpointRow(RUN, "step-000004", 4, CheckpointState.SAVED, "end", 1.0, trainer_path=path)
        )
        recorder.close()

    def check(wanted: str, *overrides: str) -> CheckReport:
        changes = [f"model.from_checkpoint={wanted}", *overrides]
        project = load(plain.path, changes, working_dir=tmp_path)
        found = CheckReport()
        check_start(project, found)
        return found

    return check


@pytest.mark.parametrize("wanted", [RUN, RUN[:12], f"{RUN}@step-000004"])
def test_a_checkpoint_of_the_project(report: Callable[..., CheckReport], wanted: str) -> None:
    found = report(wanted)
    assert found.findings == []
    assert found.lines == [f"First weights: step-000004 of run {RUN}, with a fresh optimizer"]


def test_an_address_is_looked_up_later(report: Callable[..., CheckReport]) -> None:
    assert report("bt://loops:run-1/weights/step-000004").ok


@pytest.mark.parametrize(
    ("wanted", "overrides", "words"),
    [
        ("nothing", (), "there is no run 'nothing'"),
        (f"{RUN}@step-000005", (), "has no saved checkpoint 'step-000005'; saved are step-000004"),
        ("bt://loops:run-1", (), "is no address of a checkpoint"),
        (RUN, ("model.lora_rank=4",), "holds an adapter of rank 8, but [model] lora_rank is 4"),
        (
            RUN,
            ("model.base_model=org/other",),
            "holds weights for loops-demo-1m, but [model] base_model is org/other",
        ),
        (RUN, ("compute.scope=dedicated",), "on the scope 'local', and this config runs on 'dedicated'"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_the_key(
    report: Callable[..., CheckReport], wanted: str, overrides: tuple[str, ...], words: str
) -> None:
    (finding,) = report(wanted, *overrides).findings
    assert finding.key == "model.from_checkpoint"
    assert words in finding.text
    assert "\n" not in str(finding)
    assert finding.remedy


async def test_the_whole_check_looks_at_it(make: Make, tmp_path: Path) -> None:
    project = make(overrides=("model.from_checkpoint=nothing",))
    report = await project.check()
    assert not report.ok
    assert any(finding.key == "model.from_checkpoint" for finding in report.findings)
    assert not (tmp_path / ".loops").exists()  # looking makes no store
