"""``/process`` of one sandbox."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.blaxel_emulator.answers import Refusal, sandbox_error
from tests.blaxel_emulator.processes import LIST_BYTES, RESULT_BYTES, Processes, Running
from tests.blaxel_emulator.world import Box, World

LONGEST_WAIT_SECONDS = 119.0
_POLL_SECONDS = 0.05
_KEEP_ALIVE_SECONDS = 15.0


def box_of(request: Request) -> Box:
    """The sandbox that the path names, if it runs. Raises Refusal."""
    world: World = request.app.state.world
    return world.running(request.path_params["sandbox"])


async def start(request: Request) -> Response:
    processes = box_of(request).processes
    try:
        asked = json.loads(await request.body())
    except ValueError as error:
        raise Refusal(sandbox_error(400, "invalid JSON")) from error
    waits = bool(asked.get("waitForCompletion"))
    if waits and "text/event-stream" in request.headers.get("accept", ""):
        process = await processes.start(asked, streamed=True)
        return StreamingResponse(_stream(box_of(request), process), media_type="application/x-ndjson")
    process = await processes.start(asked, streamed=False)
    if not waits:
        return JSONResponse(process.to_json(LIST_BYTES))
    # Without keepAlive the timeout bounds the waiting alone: the command runs on.
    limit = None if asked.get("keepAlive") else (asked.get("timeout") or None)
    if not await processes.wait(process, limit):
        raise Refusal(sandbox_error(422, f"process timed out after {limit} seconds"))
    return JSONResponse(process.to_json(RESULT_BYTES))


async def _stream(box: Box, process: Running) -> AsyncIterator[str]:
    sent = {"stdout": 0, "stderr": 0}
    said = time.monotonic()
    while True:
        ended = process.done.is_set()
        sandbox = box.sandbox
        if sandbox is None:
            yield _line("error", "sandbox is gone")
            return
        if not ended:
            await box.processes.refresh(sandbox, process)
        for stream, before in list(sent.items()):
            text: str = getattr(process, stream)
            if len(text) > before:
                yield _line(stream, text[before:])
                sent[stream] = len(text)
                said = time.monotonic()
        if ended:
            yield _line("result", json.dumps(process.to_json(LIST_BYTES)))
            return
        if time.monotonic() - said > _KEEP_ALIVE_SECONDS:
            said = time.monotonic()
            yield _line("keepalive", "")
        await _either(process, _POLL_SECONDS)


async def _either(process: Running, seconds: float) -> None:
    """Until it ended, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await process.done.wait()
    except TimeoutError:
        return


def _line(kind: str, data: str) -> str:
    return json.dumps({"type": kind, "data": data}) + "\n"


async def listing(request: Request) -> Response:
    return JSONResponse([process.to_json(LIST_BYTES) for process in box_of(request).processes.all])


def _found(request: Request) -> tuple[Processes, Running]:
    processes = box_of(request).processes
    return processes, processes.find(request.path_params["identifier"])


async def get(request: Request) -> Response:
    return JSONResponse(_found(request)[1].to_json(LIST_BYTES))


async def wait(request: Request) -> Response:
    processes, process = _found(request)
    asked = float(request.query_params.get("timeout", "60"))
    await processes.wait(process, min(asked, LONGEST_WAIT_SECONDS))
    return JSONResponse(process.to_json(LIST_BYTES))


async def stop(request: Request) -> Response:
    return await _signal(request, "stopped", "Process stopped successfully")


async def kill(request: Request) -> Response:
    return await _signal(request, "killed", "Process killed successfully")


async def _signal(request: Request, how: str, said: str) -> Response:
    await box_of(request).processes.signal(request.path_params["identifier"], how)
    return JSONResponse({"message": said})


async def logs(request: Request) -> Response:
    process = _found(request)[1]
    told = process.to_json(RESULT_BYTES)
    return JSONResponse({key: told[key] for key in ("logs", "stdout", "stderr")})


async def logs_stream(request: Request) -> Response:
    """Of a command that was not started streaming, all of it when it ends."""
    _, process = _found(request)
    box = box_of(request)

    async def lines() -> AsyncIterator[str]:
        yield "[keepalive]\n"
        while not process.done.is_set():
            await _either(process, _KEEP_ALIVE_SECONDS)
            if box.sandbox is None:
                return
            yield "[keepalive]\n"
        for kind in ("stdout", "stderr"):
            for line in getattr(process, kind).splitlines():
                yield f"{kind}:{line}\n"

    return StreamingResponse(lines(), media_type="text/plain")


async def stdin(request: Request) -> Response:
    _found(request)
    raise Refusal(sandbox_error(400, "process was not started with stdin"))


def _routes(prefix: str) -> list[Route]:
    one = f"{prefix}/{{identifier}}"
    table: list[tuple[str, Any, str]] = [
        (prefix, start, "POST"),
        (prefix, listing, "GET"),
        (one, get, "GET"),
        (one, stop, "DELETE"),
        (f"{one}/kill", kill, "DELETE"),
        (f"{one}/wait", wait, "GET"),
        (f"{one}/logs", logs, "GET"),
        (f"{one}/logs/stream", logs_stream, "GET"),
        (f"{one}/stdin", stdin, "POST"),
        (f"{one}/stdin", stdin, "DELETE"),
    ]
    return [Route(path, endpoint, methods=[method]) for path, endpoint, method in table]


routes = _routes("/{workspace}/sandboxes/{sandbox}/process")
