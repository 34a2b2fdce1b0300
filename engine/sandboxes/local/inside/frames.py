"""Messages between the engine and a keeper: a JSON header and a body of bytes, on a stream socket.

A frame is two big-endian 32-bit lengths, the header, the body.
"""

from __future__ import annotations

import json
import struct
from typing import Any

_LENGTHS = struct.Struct(">II")
MAX_HEADER = 8 * 1024 * 1024
MAX_BODY = 256 * 1024 * 1024

type Message = dict[str, Any]


def pack(header: Message, body: bytes | bytearray = b"") -> bytes:
    """One frame as bytes."""
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    return _LENGTHS.pack(len(text), len(body)) + text + bytes(body)


class Unpacker:
    """Takes bytes as they come and gives whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[Message, bytes]]:
        """The frames that are complete now. Raises ValueError for what is no frame."""
        self._buffer += data
        frames: list[tuple[Message, bytes]] = []
        while len(self._buffer) >= _LENGTHS.size:
            header_size, body_size = _LENGTHS.unpack_from(self._buffer)
            if header_size > MAX_HEADER or body_size > MAX_BODY:
                raise ValueError(f"a frame of {header_size} + {body_size} bytes")
            end = _LENGTHS.size + header_size + body_size
            if len(self._buffer) < end:
                break
            body_at = _LENGTHS.size + header_size
            header = json.loads(bytes(self._buffer[_LENGTHS.size : body_at]))
            frames.append((header, bytes(self._buffer[body_at:end])))
            del self._buffer[:end]
        return frames
