"""What a judge has said, on disk by the content that it was asked about: the same question is paid for once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


class JudgeCache:
    """Answers in a directory, one small file each. Several processes may share it.

    ``max_entries`` bounds it: beyond that the oldest tenth is removed.
    """

    def __init__(self, directory: Path, max_entries: int = 100_000) -> None:
        if max_entries < 1:
            raise ValueError("a cache must have room for at least one entry")
        self._directory = directory
        self._max_entries = max_entries
        self._entries: int | None = None  # counted at the first write

    @staticmethod
    def key(content: Any) -> str:
        """What a question is found by: the SHA-256 of all that shapes its answer."""
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer, or None where there is none that can be read."""
        try:
            found = json.loads((self._directory / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def put(self, key: str, answer: dict[str, Any]) -> None:
        """Keep an answer; it appears complete or not at all. Raises OSError where the disk refuses."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._entries is None:
            self._entries = sum(1 for _ in self._directory.glob("*.json"))
        handle, name = tempfile.mkstemp(dir=self._directory, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(answer, file, ensure_ascii=True)
            os.replace(name, self._directory / f"{key}.json")
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
        self._entries += 1
        if self._entries > self._max_entries:
            self._shrink()

    def _shrink(self) -> None:
        files = sorted(self._directory.glob("*.json"), key=_age)
        keep = self._max_entries - self._max_entries // 10
        for file in files[: max(0, len(files) - keep)]:
            file.unlink(missing_ok=True)
        self._entries = min(len(files), keep)


def _age(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # another process has just removed it
        return 0.0
