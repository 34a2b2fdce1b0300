"""The trainer's routes: operations are accepted at once, done on the training thread, and polled for."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.local_loops.answers import encode_error
from engine.local_loops.faults import FINAL_HEADER, unavailable
from engine.local_loops.operations import Operation
from engine.local_loops.service import LiveRun, LoopsService
from engine.local_loops.training import Operation as Slices
from engine.local_loops.training import Outcome
from engine.local_loops.training_thread import Work
from engine.local_loops.wire import (
    Body,
    ForwardPass,
    InitTrainer,
    LoadState,
    OptimStep,
    Publish,
    SaveState,
    read_json,
    validate,
)

log = logging.getLogger(__name__)

#: What each operation's body must be.
BODIES: dict[str, type[Body]] = {
    "init_trainer_server": InitTrainer,
    "forward": ForwardPass,
    "forward_backward": ForwardPass,
    "optim_step": OptimStep,
    "save_state": SaveState,
    "save_weights_for_sampler": Publish,
    "load_state": LoadState,
    "load_state_with_optimizer": LoadState,
}


class TrainerRoutes:
    """``{run.base_url}/…``"""

    def __init__(self, service: LoopsService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        base = "/trainer/{run_id}"
        return [
            Route(f"{base}/health", self.health, methods=["GET"]),
            Route(f"{base}/policy_version", self.policy_version, methods=["GET"]),
            Route(f"{base}/operations/{{operation_id}}", self.poll, methods=["GET"]),
            *(
                Route(f"{base}/{name}", self._submitter(name, body), methods=["POST"])
                for name, body in BODIES.items()
            ),
        ]

    async def health(self, request: Request) -> Response:
        """Ready as soon as the run exists: its model was loaded before the run was handed out."""
        run = self._service.active_run(request.path_params["run_id"])
        return JSONResponse({"status": "ok", "base_model": run.base_model})

    async def policy_version(self, request: Request) -> Response:
        live = await self._service.live_run(request.path_params["run_id"])
        return JSONResponse({"policy_version": live.trainer.step})

    async def poll(self, request: Request) -> Response:
        """A finished operation's answer; an unfinished one is held, then answered 408, which means "ask again"."""
        operations = self._service.operations
        run_id = request.path_params["run_id"]
        operation = operations.find(run_id, request.path_params["operation_id"])
        if operation is None:
            return JSONResponse({"error": "no such operation"}, status_code=404, headers=FINAL_HEADER)
        if await operations.wait(operation, self._service.settings.poll_hold_seconds):
            return Response(operation.body, media_type="application/json")
        if operations.closing:
            raise unavailable("server is shutting down")
        return JSONResponse({"status": "pending"}, status_code=408)

    def _submitter(self, name: str, body: type[Body]) -> Callable[[Request], Any]:
        async def submit(request: Request) -> Response:
            live = await self._service.live_run(request.path_params["run_id"])
            wanted = validate(body, await read_json(request))
            key = request.headers.get("idempotency-key") or secrets.token_hex(16)
            operation, new = self._service.operations.accept(live.record.id, key, name)
            if new:
                start: Callable[[Any], Slices] = getattr(live.trainer, name)
                self._enqueue(live, operation, start(wanted))
            return JSONResponse(
                {"operation_id": operation.operation_id, "schema_version": 1}, status_code=202
            )

        return submit

    def _enqueue(self, live: LiveRun, operation: Operation, slices: Slices) -> None:
        loop = asyncio.get_running_loop()
        logbook, deployment = self._service.logbook, live.record.deployment_id

        def conclude(body: bytes, outcome: Outcome | None) -> None:
            # The version is there before its number is told.
            if outcome is not None and outcome.published is not None:
                live.policies.publish(outcome.published, live=outcome.live)
            self._service.operations.finish(operation, body)

        def done(outcome: Outcome) -> None:
            loop.call_soon_threadsafe(conclude, outcome.answer, outcome)

        def failed(error: Exception) -> None:
            expected = isinstance(error, (ValueError, FloatingPointError))
            if not expected:
                log.error("operation %s failed", operation.name, exc_info=error)
            logbook.write(
                deployment,
                f"{operation.name} failed: {type(error).__name__}: {error}",
                level="WARNING" if expected else "ERROR",
                request_id=operation.operation_id,
            )
            body = encode_error(str(error), type(error).__name__)
            loop.call_soon_threadsafe(conclude, body, None)

        self._service.training.submit(Work(live.record.id, slices, done, failed))
