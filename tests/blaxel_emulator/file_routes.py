"""``/filesystem…`` of one sandbox."""

from __future__ import annotations

import fnmatch
import json
import posixpath
import secrets
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.blaxel_emulator.answers import Refusal, sandbox_error
from tests.blaxel_emulator.files import Files, place
from tests.blaxel_emulator.process_routes import box_of

_MAX_FILES, _MAX_BYTES = 10_000, 32 * 1024 * 1024


def _files(request: Request) -> tuple[Files, str]:
    box = box_of(request)
    assert box.sandbox is not None
    return Files(box, box.sandbox), place(request.path_params["path"])


def _mode(text: Any) -> int:
    try:
        return int(str(text), 8) & 0o777
    except ValueError as error:
        raise Refusal(sandbox_error(400, f"invalid permissions {text!r}")) from error


async def _json(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except ValueError as error:
        raise Refusal(sandbox_error(400, "invalid JSON")) from error


async def _upload(request: Request) -> tuple[bytes, dict[str, str]]:
    async with request.form() as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise Refusal(sandbox_error(400, "file is required"))
        return await file.read(), {key: value for key, value in form.items() if isinstance(value, str)}


async def write(request: Request) -> Response:
    files, path = _files(request)
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        content, fields = await _upload(request)
        await files.write(path, content, _mode(fields.get("permissions", "0644")))
        return _written(path)
    asked = await _json(request)
    if asked.get("isDirectory"):
        await files.make_directory(path, str(asked.get("permissions") or "0755"))
        return JSONResponse({"path": path, "message": "Directory created successfully"})
    content = asked.get("content")
    if not isinstance(content, str):
        raise Refusal(sandbox_error(400, "content is required"))
    await files.write(path, content.encode("utf-8"), _mode(asked.get("permissions") or "0644"))
    return _written(path)


def _written(path: str) -> Response:
    return JSONResponse({"path": path, "message": "File created/updated successfully"})


async def read(request: Request) -> Response:
    files, path = _files(request)
    content = await files.read(path)
    if content is None:
        return JSONResponse(await files.listing(path))
    if "application/octet-stream" in request.headers.get("accept", ""):
        return Response(content, media_type="application/octet-stream")
    parent = await files.entries(posixpath.dirname(path), deep=False)
    told = next((entry for entry in parent if entry["path"] == path), {"path": path, "name": path})
    told.pop("kind", None)
    return JSONResponse({**told, "content": content.decode("utf-8", "replace")})


async def remove(request: Request) -> Response:
    files, path = _files(request)
    await files.remove(path, recursive=request.query_params.get("recursive") == "true")
    return JSONResponse({"path": path, "message": "File deleted successfully"})


async def write_tree(request: Request) -> Response:
    files, path = _files(request)
    asked = await _json(request)
    return JSONResponse(await files.write_tree(path, asked.get("files") or {}))


async def read_tree(request: Request) -> Response:
    files, path = _files(request)
    query = request.query_params
    deep = query.get("recursive") == "true"
    told = await files.listing(path, deep=deep)
    if not deep:
        return JSONResponse(told)
    patterns = [pattern for pattern in query.get("patterns", "").split(",") if pattern]
    skipped = {name for name in query.get("excludeDirs", "").split(",") if name}
    no_hidden = query.get("excludeHidden") == "true"

    def kept(entry: dict[str, Any]) -> bool:
        parts = posixpath.relpath(entry["path"], path).split("/")
        if skipped & set(parts[:-1]) or (no_hidden and any(part.startswith(".") for part in parts)):
            return False
        return not patterns or any(fnmatch.fnmatch(entry["name"], pattern) for pattern in patterns)

    told["files"] = [entry for entry in told["files"] if kept(entry)]
    size = sum(entry["size"] for entry in told["files"])
    if len(told["files"]) > int(query.get("maxFiles", _MAX_FILES)):
        raise Refusal(sandbox_error(422, "too many files"))
    if size > int(query.get("maxBytes", _MAX_BYTES)):
        raise Refusal(sandbox_error(422, "the files are too large"))
    if query.get("content") == "true":
        for entry in told["files"]:
            content = await files.read(entry["path"])
            if content is not None:
                entry["content"] = content.decode("utf-8", "replace")
    return JSONResponse(told)


# -- large files in parts ----------------------------------------------------------------------------------------


async def initiate(request: Request) -> Response:
    _, path = _files(request)
    asked = await _json(request)
    upload = secrets.token_hex(8)
    mode = _mode(asked.get("permissions") or "0644")
    box_of(request).uploads[upload] = {"path": path, "mode": mode, "parts": {}}
    return JSONResponse({"uploadId": upload, "path": path})


def _begun(request: Request) -> dict[str, Any]:
    upload = request.path_params["upload"]
    begun = box_of(request).uploads.get(upload)
    if begun is None:
        raise Refusal(sandbox_error(404, f"upload not found: {upload}"))
    return begun


async def part(request: Request) -> Response:
    begun = _begun(request)
    number = int(request.query_params.get("partNumber", "0"))
    if number < 1:
        raise Refusal(sandbox_error(400, "invalid part number"))
    content, _ = await _upload(request)
    etag = secrets.token_hex(8)
    begun["parts"][number] = (etag, content)
    return JSONResponse({"partNumber": number, "etag": etag, "size": len(content)})


async def complete(request: Request) -> Response:
    begun = _begun(request)
    asked = await _json(request)
    content = bytearray()
    for wanted in sorted(asked.get("parts") or [], key=lambda each: each["partNumber"]):
        etag, data = begun["parts"].get(wanted["partNumber"], ("", b""))
        if etag != wanted.get("etag"):
            raise Refusal(sandbox_error(400, f"part {wanted['partNumber']} is not there"))
        content += data
    box = box_of(request)
    assert box.sandbox is not None
    await Files(box, box.sandbox).write(begun["path"], bytes(content), begun["mode"])
    del box.uploads[request.path_params["upload"]]
    return _written(begun["path"])


async def abort(request: Request) -> Response:
    _begun(request)
    del box_of(request).uploads[request.path_params["upload"]]
    return JSONResponse({"message": "Multipart upload aborted"})


_SANDBOX = "/{workspace}/sandboxes/{sandbox}"
_PARTS = f"{_SANDBOX}/filesystem-multipart"
routes = [
    Route(f"{_PARTS}/initiate/{{path:path}}", initiate, methods=["POST"]),
    Route(f"{_PARTS}/{{upload}}/part", part, methods=["PUT"]),
    Route(f"{_PARTS}/{{upload}}/complete", complete, methods=["POST"]),
    Route(f"{_PARTS}/{{upload}}/abort", abort, methods=["DELETE"]),
    Route(f"{_SANDBOX}/filesystem/tree/{{path:path}}", write_tree, methods=["PUT"]),
    Route(f"{_SANDBOX}/filesystem/tree/{{path:path}}", read_tree, methods=["GET"]),
    Route(f"{_SANDBOX}/filesystem/{{path:path}}", write, methods=["PUT"]),
    Route(f"{_SANDBOX}/filesystem/{{path:path}}", read, methods=["GET"]),
    Route(f"{_SANDBOX}/filesystem/{{path:path}}", remove, methods=["DELETE"]),
]
