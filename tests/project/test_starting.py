"""[model] from_checkpoint, before anything is started."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.checking.starting import check_start
from engine.config import CheckReport
from engine.hosting.prepare import check_project
from engine.project import Project, load
from engine.recipes.contract import LoopsEndpoint
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, RunRow, RunState
from tests.loops_admin.keeps_checkpoints import KeepsCheckpoints
from tests.loops_admin.odd_server import Answer, OddServer

Make = Callable[..., Project]
RUN = "20261129-143501-k3f9"
ADDRESS = "bt://loops:r/weights/step-000004"


@pytest.fixture
def loops() -> Iterator[OddServer]:
    """A Loops that has the run's only checkpoint."""
    with OddServer() as server:
        server.answer = KeepsCheckpoints(ADDRESS)
        yield server


@pytest.fixture
def report(make: Make, tmp_path: Path, loops: OddServer) -> Callable[..., CheckReport]:
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
        recorder.checkpoint(
            CheckpointRow(RUN, "step-000004", 4, CheckpointState.SAVED, "end", 1.0, trainer_path=ADDRESS)
        )
        recorder.close()

    @asynccontextmanager
    async def reach() -> AsyncIterator[LoopsEndpoint]:
        yield LoopsEndpoint("local", loops.url, "key")

    def check(wanted: str, *overrides: str) -> CheckReport:
        changes = [f"model.from_checkpoint={wanted}", *overrides]
        project = load(plain.path, changes, working_dir=tmp_path)
        found = CheckReport()
        asyncio.run(check_start(project, found, reach))
        return found

    return check


@pytest.mark.parametrize("wanted", [RUN, RUN[:12], f"{RUN}@step-000004"])
def test_a_checkpoint_of_the_project(report: Callable[..., CheckReport], wanted: str) -> None:
    found = report(wanted)
    assert found.findings == []
    assert found.lines == [f"First weights: step-000004 of run {RUN}, with a fresh optimizer"]


def test_an_address_is_looked_up(report: Callable[..., CheckReport]) -> None:
    assert report(ADDRESS).lines == [f"First weights: {ADDRESS}"]
    (finding,) = report("bt://loops:run-1/weights/step-000004").findings
    assert finding.key == "model.from_checkpoint"
    assert "has no checkpoint bt://loops:run-1/weights/step-000004" in finding.text


def test_a_checkpoint_that_loops_no_longer_has(report: Callable[..., CheckReport], loops: OddServer) -> None:
    loops.answer = KeepsCheckpoints()
    found = report(RUN)
    (finding,) = found.findings
    assert f"no longer has step-000004 of run {RUN}; it has none of that run's others either" in finding.text
    assert "\n" not in str(finding)
    assert found.lines == []


def test_a_loops_that_cannot_be_asked_is_a_finding(
    report: Callable[..., CheckReport], loops: OddServer
) -> None:
    loops.answer = lambda _: Answer.of({"error": "Invalid API key"}, 401)
    (finding,) = report(RUN).findings
    assert (finding.key, "refused the API key" in finding.text) == ("model.from_checkpoint", True)


def test_the_project_s_own_server_is_asked(make: Make, tmp_path: Path) -> None:
    """As the commands check: nobody has ever made this checkpoint here."""
    project = make(overrides=("model.from_checkpoint=bt://loops:run-none/weights/step-000001",))
    found = asyncio.run(check_project(project, tmp_path))
    (finding,) = [finding for finding in found.findings if finding.key == "model.from_checkpoint"]
    assert "has no checkpoint bt://loops:run-none/weights/step-000001" in finding.text


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
