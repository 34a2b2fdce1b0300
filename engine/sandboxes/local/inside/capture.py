"""Keeps the head and the tail of a stream in bounded memory and counts what it dropped."""

from __future__ import annotations

from collections import deque

_MERGE_BELOW = 4096


class Capture:
    """At most ``limit`` bytes of a stream: the first half of them and the last half."""

    def __init__(self, limit: int) -> None:
        self._head_limit = (limit + 1) // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data or not self._tail_limit:
            return
        if len(data) >= self._tail_limit:
            self._tail.clear()
            self._tail.append(data[-self._tail_limit :])
            self._tail_size = self._tail_limit
            return
        # A program that writes byte by byte must not fill the memory with one object for each.
        if self._tail and len(self._tail[-1]) + len(data) <= _MERGE_BELOW:
            self._tail[-1] += data
        else:
            self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    @property
    def dropped(self) -> int:
        """How many bytes in the middle were not kept."""
        return self.total - len(self._head) - min(self._tail_size, self._tail_limit)

    def parts(self) -> tuple[bytes, bytes]:
        """The head and the tail; together the whole stream where nothing was dropped."""
        tail = b"".join(self._tail)
        return bytes(self._head), tail[max(0, len(tail) - self._tail_limit) :]
