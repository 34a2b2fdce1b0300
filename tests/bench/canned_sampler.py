"""A server that speaks the sampler's protocol and computes nothing: canned replies, at once or after a given time.

    python -m tests.bench.canned_sampler REPLIES.json [--latency MU SIGMA]

``REPLIES.json`` holds a list of token lists; requests are answered with them in turn. Prints its port. It ends with
its standard input. It runs in a process of its own, so that what it costs is not in the client's processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
END_SECONDS = 10.0


def answer_of(tokens: Sequence[int]) -> bytes:
    """A whole HTTP answer with one completion, as vLLM and the local server write it."""
    draw = random.Random(len(tokens))
    body = {
        "id": "canned",
        "object": "text_completion",
        "choices": [
            {
                "index": 0,
                "text": "",
                "finish_reason": "stop",
                "logprobs": {
                    "tokens": [f"token_id:{token}" for token in tokens],
                    "token_logprobs": [-draw.expovariate(2.0) for _ in tokens],
                },
                "token_ids": list(tokens),
                "prompt_token_ids": None,
                "prompt_logprobs": None,
            }
        ],
    }
    data = json.dumps(body, separators=(",", ":")).encode()
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-trainers-policy-version: 0\r\n"
        f"content-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class Canned(asyncio.Protocol):
    """One connection. Requests are read whole; nothing in them but their length matters."""

    def __init__(self, answers: list[bytes], latency: random.Random | None, mu: float, sigma: float) -> None:
        self._answers, self._latency, self._mu, self._sigma = answers, latency, mu, sigma
        self._read = b""
        self._missing = 0
        self._turn = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._missing == 0:
            self._read += data
            head, found, body = self._read.partition(b"\r\n\r\n")
            if not found:
                return
            length = next(
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            self._read, self._missing = b"", length - len(body)
        else:
            self._missing -= len(data)
        if self._missing == 0:
            self._answer()

    def _answer(self) -> None:
        reply = self._answers[self._turn % len(self._answers)]
        self._turn += 1
        if self._latency is None:
            self._transport.write(reply)
        else:
            seconds = self._latency.lognormvariate(self._mu, self._sigma)
            asyncio.get_running_loop().call_later(seconds, self._transport.write, reply)


async def serve(answers: list[bytes], latency: random.Random | None, mu: float, sigma: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Canned(answers, latency, mu, sigma), "127.0.0.1", 0, backlog=2048
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


class CannedSampler:
    """The server in a process of its own, as a context. ``latency``: (mu, sigma) of a lognormal, in seconds."""

    def __init__(self, replies: list[list[int]], latency: tuple[float, float] | None = None) -> None:
        self._replies, self._latency = replies, latency

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory()
        path = Path(self._scratch.name) / "replies.json"
        path.write_text(json.dumps(self._replies))
        command = [sys.executable, "-m", "tests.bench.canned_sampler", str(path)]
        if self._latency is not None:
            command += ["--latency", *map(str, self._latency)]
        self._process = Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=END_SECONDS)
        self._scratch.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("replies", type=Path)
    parser.add_argument("--latency", type=float, nargs=2, metavar=("MU", "SIGMA"))
    chosen = parser.parse_args()
    answers = [answer_of(tokens) for tokens in json.loads(chosen.replies.read_text())]
    mu, sigma = chosen.latency or (0.0, 0.0)
    asyncio.run(serve(answers, random.Random(1) if chosen.latency else None, mu, sigma))


if __name__ == "__main__":
    main()
