"""Finding, checking and downloading checkpoints."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from engine.local_loops import describe
from engine.local_loops.auth import BLOB_PREFIX
from engine.local_loops.checkpoints import CheckpointError, locate
from engine.local_loops.faults import not_found, unprocessable
from engine.local_loops.records import CheckpointPath, CheckpointRecord
from engine.local_loops.service import LoopsService
from engine.local_loops.wire import DeployCheckpoints, ValidateCheckpoint, read_body

ROOT = "/v1/loops/checkpoints"


class CheckpointRoutes:
    """``/v1/loops/checkpoints`` and the downloads it hands out.

    The SDK fetches files without its key, so a file's URL carries a token of its own: a keyed hash of the
    checkpoint's id, under a secret that lives as long as this process.
    """

    def __init__(self, service: LoopsService) -> None:
        self._service = service
        self._secret = secrets.token_bytes(32)

    def routes(self) -> list[Route]:
        return [
            Route(ROOT, self.find, methods=["GET"]),
            Route(f"{ROOT}/validate", self.validate, methods=["POST"]),
            Route(f"{ROOT}/deploy", self.deploy, methods=["POST"]),
            Route(f"{ROOT}/{{checkpoint_id}}/source", self.source, methods=["GET"]),
            Route(f"{ROOT}/{{checkpoint_id}}/files", self.files, methods=["GET"]),
            Route(f"{BLOB_PREFIX}{{checkpoint_id}}/{{token}}/{{name}}", self.blob, methods=["GET"]),
        ]

    async def find(self, request: Request) -> Response:
        store = self._service.store
        query = request.query_params
        path = query.get("checkpoint_path")
        if path is not None:
            parsed = CheckpointPath.parse(path)
            run = store.runs.get(parsed.run_id) if parsed is not None else None
            if run is not None:
                store.drop_gone(run)
            record = run.find(parsed.target, parsed.name) if run is not None and parsed is not None else None
            if record is None:
                raise not_found(f"No Loops checkpoint found for path {path!r} on this server.")
            return JSONResponse({"checkpoints": [describe.checkpoint(record)]})
        run_id, base_model = query.get("run_id"), query.get("base_model")
        if run_id is not None:
            self._service.run_record(run_id)
        found: list[dict[str, Any]] = []
        for run in list(store.runs.values()):
            if (run_id is None or run.id == run_id) and (base_model is None or run.base_model == base_model):
                store.drop_gone(run)
                found += [describe.checkpoint(record) for record in run.checkpoints]
        return JSONResponse({"checkpoints": found})

    async def validate(self, request: Request) -> Response:
        wanted = await read_body(request, ValidateCheckpoint)
        try:
            locate(self._service.store, wanted.checkpoint_path)
        except CheckpointError as error:
            raise unprocessable(str(error)) from error
        return JSONResponse({})

    async def deploy(self, request: Request) -> Response:
        """Refused, after the same looks at the request that a deployment would need: nothing here serves for good."""
        wanted = await read_body(request, DeployCheckpoints)
        for checkpoint_id in wanted.checkpoint_ids:
            record = self._service.store.find_checkpoint(checkpoint_id)
            if record is None:
                raise not_found(f"no checkpoint {checkpoint_id!r} on this server")
            if record.target != "sampler":
                raise unprocessable(
                    f"checkpoint {checkpoint_id} is a trainer's state; deploy the sampler weights"
                )
        raise unprocessable(
            "a local Loops server makes no inference deployments: it ends with the last program that uses it. "
            "Sample from the checkpoint here, or download it."
        )

    def _record(self, request: Request) -> CheckpointRecord:
        checkpoint_id = request.path_params["checkpoint_id"]
        record = self._service.store.find_checkpoint(checkpoint_id)
        if record is None:
            raise not_found(f"no checkpoint {checkpoint_id!r} on this server")
        return record

    async def source(self, request: Request) -> Response:
        self._record(request)
        return JSONResponse({"source": {"kind": "s3"}})

    async def files(self, request: Request) -> Response:
        record = self._record(request)
        size = _natural(request.query_params.get("page_size"), "page_size", 1000)
        start = _natural(request.query_params.get("page_token"), "page_token", 0)
        paths = self._paths(record)
        page = paths[start : start + max(size, 1)]
        following = start + len(page)
        base = f"{self._service.describe.base_url}{BLOB_PREFIX}{record.id}/{self._token(record.id)}"
        return JSONResponse(
            {
                "presigned_urls": [
                    {
                        "url": f"{base}/{path.name}",
                        "relative_file_name": path.name,
                        "node_rank": 0,
                        "size_bytes": path.stat().st_size,
                        "last_modified": datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(),
                    }
                    for path in page
                ],
                "next_page_token": following if following < len(paths) else None,
                "total_count": len(paths),
            }
        )

    async def blob(self, request: Request) -> Response:
        """A file of a checkpoint, for whoever holds its URL."""
        token = request.path_params["token"]
        if not hmac.compare_digest(
            token.encode(), self._token(request.path_params["checkpoint_id"]).encode()
        ):
            raise not_found("no such file")
        record = self._record(request)
        # Only names that the listing gives: nothing in the URL is taken for a path.
        for path in self._paths(record):
            if path.name == request.path_params["name"]:
                return FileResponse(path, media_type="application/octet-stream")
        raise not_found("no such file")

    def _paths(self, record: CheckpointRecord) -> list[Path]:
        directory = self._service.store.checkpoint_directory(record)
        return sorted(path for path in directory.iterdir() if path.is_file())

    def _token(self, checkpoint_id: str) -> str:
        return hmac.new(self._secret, checkpoint_id.encode(), hashlib.sha256).hexdigest()


def _natural(raw: str | None, name: str, default: int) -> int:
    if raw is None:
        return default
    if not raw.isdecimal():
        raise unprocessable(f"{name} must be a non-negative integer, not {raw!r}")
    return int(raw)
