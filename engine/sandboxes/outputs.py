"""A command's output, cut to its head and its tail where it is longer than somebody wants."""

from __future__ import annotations


def cut(data: bytes, limit: int, *, head_lost: bool = False) -> tuple[str, bool]:
    """The text of a stream in about ``limit`` bytes, and whether anything is missing.

    ``head_lost``: the stream began earlier than ``data`` does.
    """
    if len(data) <= limit and not head_lost:
        return data.decode("utf-8", "replace"), False
    half = limit // 2
    if head_lost:
        tail = data[-limit:].decode("utf-8", "replace")
        return f"[… at least {max(0, len(data) - limit)} bytes left out …]\n{tail}", True
    return joined(data[: limit - half], data[len(data) - half :], len(data) - limit), True


def joined(head: bytes, tail: bytes, dropped: int) -> str:
    """Head and tail of a stream around a mark that says how many bytes are missing: ``dropped``, and what the cut spoils."""
    if dropped == 0:
        return (head + tail).decode("utf-8", "replace")
    # A character that the cut went through is dropped whole.
    end = len(head)
    for back in range(1, min(4, len(head)) + 1):
        byte = head[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        if length > back:
            end -= back
        break
    start = 0
    while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
        start += 1
    dropped += len(head) - end + start
    kept = head[:end].decode("utf-8", "replace"), tail[start:].decode("utf-8", "replace")
    return f"{kept[0]}\n[… {dropped} bytes left out …]\n{kept[1]}"
