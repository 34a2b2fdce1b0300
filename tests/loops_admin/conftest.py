"""A real Loops server on a tiny model, a finished Loops run with checkpoints, and a stand-in with odd manners."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.hosting import checkpoints as hosted
from engine.hosting.local_server import LocalServer
from engine.loops.session import LoopsSession, SessionSettings
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, RunState, StepRow
from tests.cli.conftest import Call, call, project_dir
from tests.local_loops.conftest import new_trainer, server, service, tiny_model
from tests.loops_admin.odd_server import OddServer
from tests.loops_admin.remote_run import NAME, RUN
from tests.store.conftest import make_host, make_run

if TYPE_CHECKING:
    from baseten.loops import ServiceClient, TrainingClient

__all__ = ["call", "project_dir", "server", "service", "tiny_model"]

DEMO = Path(hosted.__file__).parents[1] / "local_loops" / "models" / "loops-demo-1m"


@pytest.fixture(scope="module")
def trained(service: ServiceClient) -> Iterator[TrainingClient]:
    """A run with a trainer's and a sampler's checkpoint, both called step-000001."""
    client = new_trainer(service, name="trained", with_sampler=True)
    client.save_state("step-000001").result()
    client.save_weights_for_sampler("step-000001").result()
    yield client
    client.close()


@pytest.fixture
def odd() -> Iterator[OddServer]:
    with OddServer() as server:
        yield server


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A project directory whose server has a Loops run with one checkpoint; (directory, Loops run id)."""
    directory = tmp_path_factory.mktemp("project")
    server = LocalServer(directory)
    address = server.start()

    async def save() -> str:
        session = await LoopsSession.start(
            SessionSettings(base_model=str(DEMO), lora_rank=4, name=f"demo-{RUN}"),
            url=address.url,
            api_key=address.key,
        )
        await (await session.save(NAME)).paths()
        await session.close()
        return session.loops_run_id

    yield directory, asyncio.run(save())
    server.close()


@pytest.fixture
def store(made: tuple[Path, str], call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    directory, loops_run_id = made
    monkeypatch.chdir(directory)
    monkeypatch.delenv("BASETEN_API_KEY", raising=False)
    with Store.open(directory) as opened:
        if opened.reader().get_run(RUN) is None:
            opened.create_run(make_run(directory, RUN, loops_run_id=loops_run_id, step=1, scope="local"))
            opened.claim(RUN, make_host())
            recorder = opened.recorder(RUN)
            recorder.step(StepRow(RUN, 1, "done", 1.0, 2.0))
            recorder.checkpoint(
                CheckpointRow(
                    run_id=RUN,
                    name=NAME,
                    step=1,
                    state=CheckpointState.SAVED,
                    why="every",
                    created_at=1.0,
                    saved_at=2.0,
                    loops_run_id=loops_run_id,
                    trainer_path=f"bt://loops:{loops_run_id}/weights/{NAME}",
                    sampler_path=f"bt://loops:{loops_run_id}/sampler_weights/{NAME}",
                    reward_mean=0.5,
                )
            )
            recorder.flush_blocking()
            opened.end_run(RUN, "host-1", RunState.DONE, None)
        yield opened
