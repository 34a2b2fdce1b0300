"""A server and the process in which it computes passes: neither outlives the other's need of it."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.local_loops.batches import supervised
from tests.local_loops.conftest import new_trainer
from tests.local_loops.server_process import END_SECONDS, ServerProcess

if TYPE_CHECKING:
    from baseten.loops import TrainingClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the process through /proc")


@pytest.fixture
def running(tmp_path: Path, tiny_model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "state", {"tiny": tiny_model}) as server:
        yield server


@pytest.fixture
def client(running: ServerProcess) -> Iterator[TrainingClient]:
    from baseten.loops import ServiceClient

    made = new_trainer(ServiceClient(api_key=running.key, base_url=running.url))
    yield made
    made.close()


def computing(server: ServerProcess) -> int:
    """The process that computes passes for a server."""
    assert server.process is not None
    found = [
        int(child)
        for thread in Path(f"/proc/{server.process.pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
        if b"engine.local_loops.pass_worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    assert len(found) == 1
    return found[0]


def gone(descriptor: int) -> bool:
    """Whether a process ends in time."""
    ready, _, _ = select.select([descriptor], [], [], END_SECONDS)
    return bool(ready)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_however_a_server_ends_nothing_of_it_is_left(
    running: ServerProcess, client: TrainingClient, number: signal.Signals
) -> None:
    client.forward_backward([supervised(1)], "cross_entropy").result()
    descriptor = os.pidfd_open(computing(running))
    try:
        running.stop(number)
        assert gone(descriptor)
    finally:
        os.close(descriptor)


def test_a_run_trains_on_when_its_process_is_killed(running: ServerProcess, client: TrainingClient) -> None:
    batch = [supervised(seed) for seed in range(4)]
    before = client.forward_backward(batch, "cross_entropy").result()
    first = computing(running)
    descriptor = os.pidfd_open(first)
    try:
        os.kill(first, signal.SIGKILL)
        assert gone(descriptor)
    finally:
        os.close(descriptor)
    after = client.forward_backward(batch, "cross_entropy").result()
    assert after.loss == before.loss
    assert computing(running) != first


def test_the_key_is_not_handed_on(running: ServerProcess, client: TrainingClient) -> None:
    client.forward_backward([supervised(1)], "cross_entropy").result()
    assert running.key.encode() not in Path(f"/proc/{computing(running)}/environ").read_bytes()
