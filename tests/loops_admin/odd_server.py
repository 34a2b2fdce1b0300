"""A web server whose answers a test chooses: for what a well-behaved Loops never does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to send back. ``cut``: so many bytes of the body, then the connection breaks. ``silent``: nothing ever."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    silent: bool = False

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Answer:
        return cls(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


class OddServer:
    """``answer`` is called for each request, in a thread of the server's; ``asked`` has all of them."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], Answer] = lambda asked: Answer(404)
        self._end = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                outer.asked.append(asked)
                answer = outer.answer(asked)
                if answer.silent:
                    outer._end.wait(60.0)
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body if answer.cut is None else answer.body[: answer.cut])
                if answer.cut is not None:
                    self.wfile.flush()
                    self.connection.shutdown(2)
                    self.close_connection = True

            do_GET = do_POST = _serve

            def log_message(self, format: str, *args: Any) -> None:
                """Tests look at ``asked``."""

        return Handler
