"""The tool agent's episode as its guide prints it, on the SDK's own instance."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.episodes.runtime import AttemptPlan, AttemptResult, Deadlines, run_attempt
from engine.project import Project, load
from engine.recipes.rl.parts import sandboxes_of
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.settings import SandboxSettings
from engine.store import Store
from engine.store.rows import AttemptState, LeaseState
from tests.blaxel_emulator.faults import Fault
from tests.blaxel_emulator.serving import Emulator
from tests.recipes.test_attempts import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

# setup(), and grade() with what it calls, are the guide's; the agent says its line instead of asking a model.
EPISODE = """\
from pydantic import BaseModel

from loops_cookbook.episodes import Blaxel, Episode, Grading, Sampling, Setup

WORKDIR = "/work"


class FileTask(BaseModel):
    id: str
    files: dict[str, str] = {}
    command: str
    check: str


class ToolEpisode(Episode[FileTask, None]):
    async def setup(self, setup: Setup) -> None:
        sandbox = setup.require_sandbox(Blaxel)
        files = self.task.value.files.items()
        box = await sandbox.client()
        await box.fs.write_tree(
            [{"path": path, "content": text} for path, text in files], WORKDIR
        )

    async def run(self, sample: Sampling):
        sandbox = sample.require_sandbox(Blaxel)
        said = await self.sh(sandbox, self.task.value.command)
        box = await sandbox.client()
        await box.process.exec({"command": "sleep 1000", "working_dir": WORKDIR})
        sample.model.say()
        return {"termination_reason": "completed", "said": said["stdout"].strip()}

    async def sh(self, sandbox, command: str) -> dict:
        box = await sandbox.client()
        done = await box.process.exec(
            {"command": command, "working_dir": WORKDIR, "wait_for_completion": True, "timeout": 20}
        )
        return {"status": done.status, "exit_code": done.exit_code, "stdout": done.stdout}

    async def grade(self, grading: Grading) -> float:
        sandbox = grading.require_execution_sandbox(Blaxel)
        box = await sandbox.client()
        # A command the agent deadline cut may still be running: stop what the sandbox
        # lists as running before the check. A job the agent detached is not stopped.
        for process in await box.process.list():
            if process.status == "running":
                await box.process.kill(process.pid)
        # Only a check that ran to the end passes: Blaxel's wait hands back a record
        # still ``running`` (exit code 0) when the sandbox stops answering mid-check.
        checked = await self.sh(sandbox, self.task.value.check)
        if checked["status"] == "completed" and checked["exit_code"] == 0:
            return 1.0
        await sandbox.ensure_alive()  # a failed check measures only a live sandbox
        return 0.0
"""
CONFIG = """\
recipe = "rl"
[runtime.config]
tasks = "tasks.jsonl"
episode = "tool_episode:ToolEpisode"
[runtime.config.sandbox]
provider = "blaxel"
memory_mb = 2048
ttl = "1h"
[model]
base_model = "loops-demo-1m"
max_seq_len = 128
[training]
group_size = 4
max_steps = 1
[sampling]
max_tokens = 16
[compute]
scope = "local"
[prices]
sandbox_gb_hour = 0.1
"""
TASKS: list[dict[str, Any]] = [
    {"id": "port", "files": {"app.conf": "port=8080\n"}, "command": "sed -i s/8080/9090/ app.conf; echo done",
     "check": '[ "$(cat app.conf)" = "port=9090" ]'},
    {"id": "wrong", "files": {"app.conf": "port=8080\n"}, "command": "true", "check": "grep -q 9090 app.conf"},
    {"id": "empty", "command": "pwd > here", "check": '[ "$(cat here)" = "$PWD" ]'},
]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tool_episode.py").write_text(EPISODE)
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    (tmp_path / "train.toml").write_text(CONFIG)
    return load(tmp_path / "train.toml", working_dir=tmp_path)


@pytest_asyncio.fixture(loop_scope="module")
async def sandboxes(project: Project, tmp_path: Path) -> AsyncIterator[tuple[RunSandboxes, Store]]:
    table = project.rl.runtime.config.sandbox
    assert table is not None
    with Store.open(tmp_path) as store:
        opened = await RunSandboxes.open(
            store,
            tmp_path,
            SandboxSettings.from_table(table.model_dump()),
            attempt_seconds=600,
            run_id="20260101-000000-test",
            host_id=None,
            blaxel=project.rl.providers.blaxel,
            price=project.rl.prices.sandbox_gb_hour,
            environ=project.loaded.environ,
        )
        yield opened, store
        assert await opened.close() == 0


# The agent leaves a file; it is graded in a sandbox that the agent was never in.
APART = """\
from pydantic import BaseModel

from engine.episodes import Episode, Grading, Sampling


class Line(BaseModel):
    id: str
    text: str


class GradedApart(Episode[Line, None]):
    async def run(self, sample: Sampling):
        await sample.require_sandbox().write_tree({"answer": self.task.value.text})
        sample.model.say()

    async def grade(self, grading: Grading) -> float:
        left = await grading.require_execution_sandbox().read("answer")
        async with grading.fresh_sandbox() as sandbox:
            await sandbox.write_tree({"answer": left})
            done = await sandbox.exec("ls; grep -q right answer", timeout=60)
            return float(done.exit_code == 0 and done.stdout == "answer\\n")
"""


async def attempt(project: Project, sandboxes: RunSandboxes, place: int) -> tuple[AttemptResult, list[str]]:
    said: list[str] = []

    class Policy:
        def __init__(self, trace: Any) -> None:
            self.say = lambda: say(trace)

    def log(level: str, text: str) -> None:
        said.append(text)

    task = project.tasks()[place]
    plan = AttemptPlan(
        project.episode().cls,
        task,  # pyright: ignore[reportArgumentType]
        None,
        0,
        Deadlines(60.0, 60.0, 60.0),
        2,
        lambda trace, _try, _waiting: Policy(trace),  # type: ignore[arg-type, return-value]
        sandboxes.source(0, place, log),
    )
    return await run_attempt(plan, log=log), said


async def test_it_is_graded_on_the_files_it_leaves(
    project: Project, sandboxes: tuple[RunSandboxes, Store], service: Emulator
) -> None:
    results = [await attempt(project, sandboxes[0], place) for place in range(len(TASKS))]
    assert [result.reward for result, _ in results] == [1.0, 0.0, 1.0], results
    assert results[0][0].metadata == {"termination_reason": "completed", "said": "done"}
    assert service.world.live() == []
    leases = sandboxes[1].reader().leases()
    assert {(row.state, row.price_per_gb_hour, row.memory_mb) for row in leases} == {
        (LeaseState.RELEASED, 0.1, 2048)
    }


async def test_a_sandbox_that_dies_costs_a_try_and_not_a_grade(
    project: Project, sandboxes: tuple[RunSandboxes, Store], service: Emulator
) -> None:
    service.world.faults.rules[:] = [
        Fault("status", r"^POST .*/process$", count=2, status=404, code="WORKLOAD_NOT_FOUND")
    ]
    try:
        result, said = await attempt(project, sandboxes[0], 0)
    finally:
        service.world.faults.rules.clear()
    assert (result.state, result.reward) == (AttemptState.DONE, 1.0)
    assert result.tries > 1
    assert any("trying again" in text for text in said)
    assert service.world.live() == []


async def test_attempts_that_need_two_sandboxes_do_not_take_each_others_room(
    tmp_path: Path, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four attempts that are graded in a second sandbox, where two may exist: all come to an end, with their rewards."""
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "apart.py").write_text(APART)
    texts = ("right", "wrong", "right", "right")
    lines = [{"id": f"t{place}", "text": text} for place, text in enumerate(texts)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = CONFIG.replace("tool_episode:ToolEpisode", "apart:GradedApart")
    (tmp_path / "train.toml").write_text(f"{config}[providers.blaxel]\nmax_live = 2\n")
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    with Store.open(tmp_path) as store:
        sandboxes = await sandboxes_of(project, store, run_id=None, host_id=None)
        assert sandboxes is not None
        async with asyncio.timeout(90):
            results = await asyncio.gather(
                *(attempt(project, sandboxes, place) for place in range(len(texts)))
            )
        assert [result.reward for result, _ in results] == [1.0, 0.0, 1.0, 1.0], results
        assert await sandboxes.close() == 0
        assert len(store.reader().leases()) == 2 * len(texts)
    assert service.world.live() == []
