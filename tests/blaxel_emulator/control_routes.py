"""``/v0/sandboxes``: the control plane."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.blaxel_emulator.answers import Refusal, control_error, create_error
from tests.blaxel_emulator.world import Box, World

_PAGES_SINCE = "2026-04-28"


def world_of(request: Request) -> World:
    return request.app.state.world


async def create(request: Request) -> Response:
    world = world_of(request)
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        refusal = create_error(400, "PARSE_FAILED", "invalid JSON", workspace=world.settings.workspace)
        raise Refusal(refusal) from error
    asked = request.headers.get("x-blaxel-creation-timeout")
    box = await world.create(
        body,
        if_not_exist=request.query_params.get("createIfNotExist") == "true",
        deadline=float(asked) if asked else None,
    )
    return JSONResponse(world.record(box))


async def listing(request: Request) -> Response:
    """Newest first; a cursor is a place in the list, so that deletions move what follows."""
    world, query = world_of(request), request.query_params
    found = [box for box in world.boxes.values() if _shown(world, box, query)]
    found.sort(key=lambda box: -box.number)
    if request.headers.get("blaxel-version", _PAGES_SINCE) < _PAGES_SINCE:
        return JSONResponse([world.record(box) for box in found])
    limit = max(1, min(int(query.get("limit", "50")), world.settings.page_limit))
    start = _place(query.get("cursor"))
    page = found[start : start + limit]
    meta: dict[str, Any] = {
        "hasMore": start + limit < len(found),
        "total": len(found),
        "totalIsPartial": False,
    }
    if meta["hasMore"]:
        meta["nextCursor"] = base64.urlsafe_b64encode(f"at:{start + limit}".encode()).decode()
    return JSONResponse({"data": [world.record(box) for box in page], "meta": meta})


def _shown(world: World, box: Box, query: Any) -> bool:
    if box.status == "TERMINATED" and (
        query.get("showTerminated") != "true" or world.find(box.name) is not box
    ):
        return False
    if (status := query.get("status")) and box.status != status:
        return False
    text = query.get("q")
    return not text or any(text in word for word in (box.name, *box.wanted.labels.values()))


def _place(cursor: str | None) -> int:
    if not cursor:
        return 0
    try:
        return int(base64.urlsafe_b64decode(cursor).decode().removeprefix("at:"))
    except (ValueError, binascii.Error) as error:
        raise Refusal(control_error(400, "Invalid cursor")) from error


async def get(request: Request) -> Response:
    return JSONResponse(world_of(request).record(_existing(request)))


async def update(request: Request) -> Response:
    box = _existing(request)
    if box.status == "TERMINATED":
        raise Refusal(control_error(404, "Sandbox not found"))
    world_of(request).update(box, json.loads(await request.body()))
    return JSONResponse(world_of(request).record(box))


async def delete(request: Request) -> Response:
    world = world_of(request)
    return JSONResponse(world.record(world.delete(request.path_params["name"])))


def _existing(request: Request) -> Box:
    box = world_of(request).find(request.path_params["name"])
    if box is None:
        raise Refusal(control_error(404, "Sandbox not found"))
    return box


routes = [
    Route("/v0/sandboxes", create, methods=["POST"]),
    Route("/v0/sandboxes", listing, methods=["GET"]),
    Route("/v0/sandboxes/{name}", get, methods=["GET"]),
    Route("/v0/sandboxes/{name}", update, methods=["PUT"]),
    Route("/v0/sandboxes/{name}", delete, methods=["DELETE"]),
]
