"""A real Loops server on a tiny model, a finished Loops run with checkpoints, and a stand-in with odd manners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.local_loops.conftest import new_trainer, server, service, tiny_model
from tests.loops_admin.odd_server import OddServer

if TYPE_CHECKING:
    from baseten.loops import ServiceClient, TrainingClient

__all__ = ["server", "service", "tiny_model"]


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
