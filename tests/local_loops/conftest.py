"""One server per test module, on a tiny random model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Read by httpx and by the SDK when they are imported.
os.environ.setdefault("NO_PROXY", "127.0.0.1,localhost")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from tests.local_loops.server_process import ServerProcess
from tests.local_loops.tiny_model import write_tiny_model

if TYPE_CHECKING:
    from baseten.loops import ServiceClient, TrainingClient


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[ServerProcess]:
    state = tmp_path_factory.mktemp("server") / "state"
    with ServerProcess(state, {"tiny": tiny_model}, options=("--version-wait", "0.05")) as running:
        yield running


@pytest.fixture(scope="module")
def service(server: ServerProcess) -> ServiceClient:
    from baseten.loops import ServiceClient  # slow to import: not for tests without a server

    return ServiceClient(api_key=server.key, base_url=server.url)


@pytest.fixture
def trainer(service: ServiceClient) -> Iterator[TrainingClient]:
    """A run of its own, LoRA rank 4."""
    client = new_trainer(service)
    yield client
    client.close()


def new_trainer(service: ServiceClient, **options: object) -> TrainingClient:
    defaults: dict[str, object] = {"base_model": "tiny", "rank": 4, "seed": 11, "ready_timeout": 120.0}
    return service.create_lora_training_client(**{**defaults, **options})  # pyright: ignore[reportArgumentType]
