"""Who may talk to the server: the holder of its key, in either of the two schemes that Loops clients send."""

from __future__ import annotations

import hmac
import json

from starlette.types import ASGIApp, Receive, Scope, Send

#: Downloads carry their own token in the URL (the SDK sends no key with them).
BLOB_PREFIX = "/blobs/"
_SCHEMES = ("api-key ", "bearer ")
_REFUSAL = json.dumps({"error": "Invalid API key"}).encode()


class KeyAuth:
    """Pure ASGI middleware: a wrapper that touches bodies would cost every sample."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(BLOB_PREFIX) or self._admits(scope):
            await self._app(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 401,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(_REFUSAL)).encode()),
                    (b"x-baseten-error-source", b"06"),
                ],
            }
        )
        await send({"type": "http.response.body", "body": _REFUSAL})

    def _admits(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                return hmac.compare_digest(_credential(value), self._key)
        return False


def _credential(header: bytes) -> bytes:
    """The key in an Authorization header, or nothing for a scheme we do not know."""
    lowered = header[:8].decode("latin-1").lower()
    for scheme in _SCHEMES:
        if lowered.startswith(scheme):
            return header[len(scheme) :].strip()
    return b""
