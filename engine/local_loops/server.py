"""The application: every route, behind the key, on one event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.local_loops.auth import KeyAuth
from engine.local_loops.checkpoint_routes import CheckpointRoutes
from engine.local_loops.control_plane import ControlPlane
from engine.local_loops.faults import ApiFault, answer_fault, answer_http, answer_unexpected
from engine.local_loops.sampler import SamplerRoutes
from engine.local_loops.service import LoopsService
from engine.local_loops.trainer import TrainerRoutes

#: Longer than any client keeps an idle connection, so that a closing socket cannot race with a request.
KEEP_ALIVE_SECONDS = 300
#: Enough for a client that opens all its sample connections at once.
BACKLOG = 2048
#: How long a request in progress may hold up the end of the process.
GRACE_SECONDS = 2
#: How long each of the threads may take to finish what it has in hand.
THREAD_STOP_SECONDS = 5.0


def build_app(service: LoopsService) -> Starlette:
    """Assemble the routes around a service. Hot paths pass no middleware that touches bodies."""

    async def stats(_request: Request) -> Response:
        """Counters of the threads that decode and train."""
        return JSONResponse(asdict(service.decoding.stats) | asdict(service.training.stats))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        # Off the loop: the threads' last callbacks arrive there.
        await asyncio.to_thread(service.stop, THREAD_STOP_SECONDS)

    return Starlette(
        routes=[
            # Samples first: routes are tried in order, and these are the most frequent.
            *SamplerRoutes(service).routes(),
            *TrainerRoutes(service).routes(),
            *ControlPlane(service).routes(),
            *CheckpointRoutes(service).routes(),
            Route("/debug/stats", stats, methods=["GET"]),
        ],
        middleware=[Middleware(KeyAuth, key=service.settings.key)],
        exception_handlers={
            ApiFault: answer_fault,
            HTTPException: answer_http,
            Exception: answer_unexpected,
        },
        lifespan=lifespan,
    )


class LoopsServer(uvicorn.Server):
    """Uvicorn with its signals left to the caller, and held polls released as soon as the end is asked for."""

    def __init__(self, service: LoopsService) -> None:
        super().__init__(
            uvicorn.Config(
                build_app(service),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
                backlog=BACKLOG,
                lifespan="on",
            )
        )
        self._service = service
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    def capture_signals(self) -> AbstractContextManager[None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return nullcontext()

    def end(self) -> None:
        """Ask for the end; to be called on the event loop."""
        self._service.operations.close()
        self.should_exit = True

    async def serve_on(self, bound: socket.socket) -> None:
        await self.serve(sockets=[bound])
