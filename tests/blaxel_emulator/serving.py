"""The emulator for tests: in their own process and loop, or in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn

from tests.blaxel_emulator.app import application
from tests.blaxel_emulator.faults import Fault, Faults
from tests.blaxel_emulator.records import Settings
from tests.blaxel_emulator.world import World

HOST = "127.0.0.1"
REPOSITORY = Path(__file__).parents[2]
_START_SECONDS = 90.0
_END_SECONDS = 60.0


def bind(port: int = 0) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return nullcontext()  # they are the process's own to handle


class Emulator:
    """One that serves in this loop. ``url`` is the control plane's."""

    def __init__(self, world: World, bound: socket.socket) -> None:
        self.world = world
        self._bound = bound
        world.base_url = f"http://{HOST}:{bound.getsockname()[1]}"
        # h11, because a connection is hung up through its cycle (see app.hang_up).
        self._server = _Server(
            uvicorn.Config(
                application(world),
                http="h11",
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                # uvicorn's own 5 s are over while a busy machine sends the next request on the same connection.
                timeout_keep_alive=300,
            )
        )
        bound.listen(512)

    @property
    def url(self) -> str:
        return f"{self.world.base_url}/v0"

    def environment(self) -> dict[str, str]:
        """What makes the SDK and loops-tui come here."""
        return environment(self.url, self.world.settings)

    async def serve(self) -> None:
        await self._server.serve([self._bound])

    def end(self) -> None:
        self._server.should_exit = True


@asynccontextmanager
async def emulator(
    place: Path,
    settings: Settings | None = None,
    faults: Iterable[Fault] = (),
    *,
    seed: int = 0,
    port: int = 0,
) -> AsyncIterator[Emulator]:
    """Serves within the block; ``place`` is a directory for the sandboxes' traces."""
    world = World(place, settings, Faults(faults, seed))
    served = Emulator(world, bind(port))
    serving = asyncio.create_task(served.serve(), name="blaxel-emulator")
    try:
        yield served
    finally:
        served.end()
        async with asyncio.timeout(_END_SECONDS):
            await serving
            await world.aclose()


def environment(url: str, settings: Settings) -> dict[str, str]:
    return {
        "LOOPS_TUI_BLAXEL_URL": url,
        "BL_WORKSPACE": settings.workspace,
        "BL_API_KEY": settings.key,
        "NO_PROXY": "127.0.0.1,localhost",
        "DO_NOT_TRACK": "1",
    }


@dataclass
class EmulatorProcess:
    """``python -m tests.blaxel_emulator``, and its admin side."""

    log: Path
    settings: Settings = field(default_factory=Settings)
    faults: list[Fault] = field(default_factory=list)
    seed: int = 0
    url: str = ""
    process: subprocess.Popen[bytes] | None = None
    client: httpx.Client | None = None  # of the admin side; building one costs more than a request

    def start(self) -> Self:
        told = {
            "settings": asdict(self.settings),
            "faults": [fault.to_json() for fault in self.faults],
            "seed": self.seed,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.blaxel_emulator",
                    "--exit-with-stdin",
                    "--json",
                    json.dumps(told),
                ],
                cwd=REPOSITORY,
                env={**os.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], _START_SECONDS)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.stop(signal.SIGKILL)
            raise RuntimeError(f"the emulator did not start:\n{self.log.read_text()}")
        self.url = json.loads(line)["url"]
        self.client = httpx.Client(base_url=self.url.removesuffix("/v0"), timeout=60.0, trust_env=False)
        return self

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is None:
            return
        if self.client is not None:
            self.client.close()
            self.client = None
        self.process.send_signal(number)
        self.process.wait(_END_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process = None

    def environment(self) -> dict[str, str]:
        return environment(self.url, self.settings)

    def admin(self, path: str, method: str = "GET", **body: Any) -> Any:
        """One request to the admin side. Raises httpx.HTTPError."""
        assert self.client is not None
        answer = self.client.request(method, f"/_admin/{path}", json=body or None)
        answer.raise_for_status()
        return answer.json()

    def live(self) -> list[dict[str, Any]]:
        """Every sandbox that exists, also what is being deleted."""
        return self.admin("sandboxes")

    def set_faults(self, faults: Iterable[Fault], seed: int = 0) -> None:
        self.admin("faults", "PUT", seed=seed, faults=[fault.to_json() for fault in faults])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
