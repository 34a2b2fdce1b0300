"""The whole server as an ASGI application: the gateway in front (keys, limits, faults, the log) and the routes."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.blaxel_emulator import admin_routes, control_routes, file_routes, process_routes
from tests.blaxel_emulator.answers import (
    Refusal,
    control_error,
    create_error,
    edge_error,
    gone,
    html_page,
)
from tests.blaxel_emulator.faults import Fault
from tests.blaxel_emulator.world import World

_BEFORE = ("latency", "drop", "hang", "status", "html")
_AFTER = ("slow_reply", "lost_reply", "late_failure")
_CODES = {429: "RATE_LIMIT_EXCEEDED", 500: "INTERNAL_ERROR", 503: "SERVICE_UNAVAILABLE"}
_PLANE = re.compile(r"/(?P<workspace>[^/]+)/sandboxes/(?P<name>[^/]+)/")


def application(world: World) -> ASGIApp:
    inner = Starlette(
        routes=[
            *admin_routes.routes,
            *control_routes.routes,
            *process_routes.routes,
            *file_routes.routes,
        ],
        exception_handlers={Refusal: _refused, 404: _unknown},
    )
    inner.state.world = world
    return Gateway(inner, world)


async def _refused(_: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)
    return refusal.response


async def _unknown(request: Request, _: Exception) -> Response:
    """A route that the sandbox's server does not have is told in plain text; the SDK tells old servers by it."""
    if _PLANE.match(request.url.path):
        return PlainTextResponse("404 page not found", 404)
    return control_error(404, "Not found")


class Gateway:
    """In front of both planes."""

    def __init__(self, inner: ASGIApp, world: World) -> None:
        self._inner, self._world = inner, world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/_admin"):
            await self._inner(scope, receive, send)
            return
        # All of it first: from then on the request has its effect, whether or not its client still lives.
        body = await _whole_body(receive)
        if body is None:
            return
        entry: dict[str, Any] = {
            "n": len(self._world.requests),
            "at": self._world.now(),
            "request": f"{scope['method']} {scope['path']}",
            "faults": [],
            "status": None,
        }
        self._world.requests.append(entry)
        started = time.monotonic()
        try:
            await self._pass(Visit(scope, receive, body, Reply(send, entry), entry))
        finally:
            entry["seconds"] = round(time.monotonic() - started, 4)

    async def _pass(self, visit: Visit) -> None:
        if await self._stopped_before(visit):
            return
        refused = self._refusal(visit.subject, Request(visit.scope))
        if refused is not None:
            await visit.answer(refused)
            return
        reply = visit.reply
        after = self._drawn(visit, _AFTER)
        reply.held = bool(after)
        inner = self._inner(visit.scope, visit.receive_again(), reply.send)
        work = self._world.spawn(inner, visit.subject)
        _, pending = await asyncio.wait({work}, timeout=self._world.settings.edge_seconds)
        if pending and not reply.started:
            # The edge gives up; the work behind it goes on, its reply is nobody's.
            reply.cut = True
            await visit.answer(_too_late())
            return
        await asyncio.wait({work})
        for fault in after:
            if fault.kind == "slow_reply":
                await asyncio.sleep(self._world.faults.seconds(fault))
        if any(fault.kind == "lost_reply" for fault in after):
            visit.entry["status"] = None
            await hang_up(visit.receive, abrupt=self._world.faults.abrupt())
            return
        for fault in after:
            if fault.kind == "late_failure":
                await visit.answer(self._failure(visit.subject, fault))
                return
        await reply.flush()

    def _drawn(self, visit: Visit, kinds: tuple[str, ...]) -> list[Fault]:
        found = self._world.faults.draw(visit.subject, kinds)
        visit.entry["faults"] += [fault.kind for fault in found]
        return found

    async def _stopped_before(self, visit: Visit) -> bool:
        """Whether a fault kept the request from having any effect."""
        for fault in self._drawn(visit, _BEFORE):
            match fault.kind:
                case "latency":
                    await asyncio.sleep(self._world.faults.seconds(fault))
                    continue
                case "drop":
                    await hang_up(visit.receive, abrupt=self._world.faults.abrupt())
                case "hang":
                    await asyncio.sleep(self._world.settings.edge_seconds)
                    await visit.answer(_too_late())
                case _:
                    await visit.answer(self._failure(visit.subject, fault))
            return True
        return False

    def _failure(self, subject: str, fault: Fault) -> Response:
        if fault.kind in ("html", "late_failure"):
            response: Response = html_page(fault.status)
        else:
            code = fault.code or _CODES.get(fault.status, "UNKNOWN_ERROR")
            said = f"injected {fault.status}"
            if subject == "POST /v0/sandboxes":
                response = create_error(fault.status, code, said, workspace=self._world.settings.workspace)
            elif _PLANE.match(subject.partition(" ")[2]) is None:
                response = control_error(fault.status, code, said)
            else:
                response = edge_error(fault.status, code, said, retryable=fault.status in (429, 503))
        if fault.retry_after is not None:
            response.headers["Retry-After"] = f"{fault.retry_after:g}"
        return response

    def _refusal(self, subject: str, request: Request) -> Response | None:
        """Keys, size, and whether there is such a sandbox at all."""
        settings = self._world.settings
        key = request.headers.get("x-blaxel-authorization", "")
        workspace = request.headers.get("x-blaxel-workspace", "")
        plane = _PLANE.match(request.url.path)
        if plane is not None:
            if not key:
                return edge_error(401, "AUTHENTICATION_REQUIRED", "authentication required")
            if key != f"Bearer {settings.key}":
                return edge_error(401, "AUTHENTICATION_FAILED", "invalid credentials")
            if plane["workspace"] != settings.workspace or workspace != settings.workspace:
                return edge_error(403, "FORBIDDEN", "workspace mismatch")
        elif key != f"Bearer {settings.key}":
            if not key:
                return control_error(401, "Unauthorized", "authentication required")
            if subject == "POST /v0/sandboxes":
                return create_error(403, "UNAUTHORIZED", "invalid credentials", workspace=workspace)
            return control_error(401, "Unauthorized", "invalid credentials")
        elif workspace != settings.workspace:
            if subject == "POST /v0/sandboxes":
                return create_error(403, "UNAUTHORIZED_WORKSPACE", "no such workspace", workspace=workspace)
            return control_error(403, "Forbidden", f"no access to workspace {workspace}")
        form = request.headers.get("content-type", "").startswith("multipart/")
        limit = settings.max_form_bytes if form else settings.max_json_bytes
        if int(request.headers.get("content-length", "0")) > limit:
            return html_page(413)
        if plane is not None:
            box = self._world.boxes.get(plane["name"])
            if box is None or box.status in ("TERMINATED", "DELETING"):
                return gone(plane["name"])
            if box.status == "FAILED":
                return edge_error(503, "WORKLOAD_FAILED", f"Workload {box.name} has failed")
            if box.status == "DEPLOYING":
                return edge_error(503, "WORKLOAD_UNAVAILABLE", "not ready", retryable=True)
        return None


class Reply:
    """One reply on its way out: can be held back, and dropped once the edge has answered instead."""

    def __init__(self, send: Send, entry: dict[str, Any]) -> None:
        self.direct = send
        self.started = False
        self.held = False
        self.cut = False
        self._entry = entry
        self._kept: list[Message] = []

    async def send(self, message: Message) -> None:
        """What the work behind the edge answers."""
        if message["type"] == "http.response.start":
            self.started = True
            if not self.cut:
                self._entry["status"] = message["status"]
        if self.cut:
            return
        if self.held:
            self._kept.append(message)
        else:
            await self.direct(message)

    async def flush(self) -> None:
        for message in self._kept:
            await self.direct(message)


@dataclass
class Visit:
    """One request."""

    scope: Scope
    receive: Receive
    body: bytes
    reply: Reply
    entry: dict[str, Any]

    @property
    def subject(self) -> str:
        return self.entry["request"]

    def receive_again(self) -> Receive:
        """The body in one piece, then the connection's end."""
        told = False

        async def receive() -> Message:
            nonlocal told
            if told:
                return await self.receive()
            told = True
            return {"type": "http.request", "body": self.body, "more_body": False}

        return receive

    async def answer(self, response: Response) -> None:
        """The edge's own answer."""
        self.entry["status"] = response.status_code
        await response(self.scope, self.receive, self.reply.direct)


async def _whole_body(receive: Receive) -> bytes | None:
    """None where the client left before it had sent all."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


def _too_late() -> Response:
    return edge_error(504, "UPSTREAM_TIMEOUT", "upstream did not answer in time", retryable=True)


async def hang_up(receive: Receive, *, abrupt: bool) -> None:
    """End the connection without an answer. Needs uvicorn, whose cycle has the transport."""
    transport = receive.__self__.transport  # type: ignore[attr-defined]
    if abrupt:
        transport.abort()
    else:
        transport.close()
    while (await receive())["type"] != "http.disconnect":
        continue
