"""``/_admin``: what tests ask the emulator itself. No key; the server listens on the loopback alone."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.blaxel_emulator.control_routes import world_of
from tests.blaxel_emulator.faults import Fault, Faults
from tests.blaxel_emulator.world import Box


def _told(box: Box) -> dict[str, Any]:
    return {
        "name": box.name,
        "number": box.number,
        "status": box.status,
        "labels": box.wanted.labels,
        "image": box.wanted.image,
        "memory": box.wanted.memory,
        "envs": box.wanted.envs,
        "ttl": box.wanted.ttl,
        "region": box.wanted.spec.get("region"),
        "created_at": box.created_at,
        "expires_at": box.expires_at,
        "ended_at": box.ended_at,
        "death": box.death,
        "processes": len(box.processes.all),
    }


async def sandboxes(request: Request) -> Response:
    """Everything that exists, also what is being deleted; with ``?all=1`` what is gone, too."""
    world = world_of(request)
    boxes = world.all() if request.query_params.get("all") else world.live()
    return JSONResponse([_told(box) for box in boxes])


async def counts(request: Request) -> Response:
    world = world_of(request)
    told: dict[str, Any] = {
        "live": len(world.live()),
        "peak_live": world.peak_live,
        "created": len(world.all()),
    }
    for box in world.all():
        told[box.status] = told.get(box.status, 0) + 1
    told["processes"] = sum(len(box.processes.all) for box in world.all())
    told["faults"] = sum(rule.used for rule in world.faults.rules)
    told["requests"] = len(world.requests)
    under_way = [entry["request"] for entry in world.requests if "seconds" not in entry]
    told["in_flight"], told["creating"] = len(under_way), under_way.count("POST /v0/sandboxes")
    return JSONResponse(told)


async def requests(request: Request) -> Response:
    return JSONResponse(world_of(request).requests[int(request.query_params.get("since", "0")) :])


async def events(request: Request) -> Response:
    return JSONResponse(world_of(request).events[int(request.query_params.get("since", "0")) :])


async def get_faults(request: Request) -> Response:
    return JSONResponse([rule.to_json() for rule in world_of(request).faults.rules])


async def set_faults(request: Request) -> Response:
    """``{"seed": 0, "faults": [{"kind": …}]}`` replaces all of them."""
    asked = json.loads(await request.body())
    try:
        rules = [Fault(**rule) for rule in asked.get("faults", [])]
    except (TypeError, ValueError) as error:
        return JSONResponse({"error": str(error)}, 400)
    world_of(request).faults = Faults(rules, asked.get("seed", 0))
    return JSONResponse([rule.to_json() for rule in rules])


async def set_settings(request: Request) -> Response:
    """Some of ``records.Settings`` anew."""
    world = world_of(request)
    try:
        world.settings = dataclasses.replace(world.settings, **json.loads(await request.body()))
    except TypeError as error:
        return JSONResponse({"error": str(error)}, 400)
    return JSONResponse(dataclasses.asdict(world.settings))


async def advance(request: Request) -> Response:
    """``{"seconds": n}``: put the service's clock forward."""
    world = world_of(request)
    world.advance(float(json.loads(await request.body())["seconds"]))
    return JSONResponse({"now": world.now()})


async def die(request: Request) -> Response:
    """``{"how": "terminated" | "failed"}``: end one sandbox as if by itself."""
    world = world_of(request)
    box = world.boxes.get(request.path_params["name"])
    if box is None:
        return JSONResponse({"error": "no such sandbox"}, 404)
    await world.die(box, json.loads(await request.body() or b"{}").get("how", "terminated"))
    return JSONResponse(_told(box))


routes = [
    Route("/_admin/sandboxes", sandboxes, methods=["GET"]),
    Route("/_admin/sandboxes/{name}/die", die, methods=["POST"]),
    Route("/_admin/counts", counts, methods=["GET"]),
    Route("/_admin/requests", requests, methods=["GET"]),
    Route("/_admin/events", events, methods=["GET"]),
    Route("/_admin/faults", get_faults, methods=["GET"]),
    Route("/_admin/faults", set_faults, methods=["PUT"]),
    Route("/_admin/settings", set_settings, methods=["PUT"]),
    Route("/_admin/advance", advance, methods=["POST"]),
]
