"""Training files rendered once, into a form on disk that a run reads without holding it in memory.

A prepared set is a directory: ``tokens.bin`` (int32), ``weights.bin`` (float32), ``index.bin`` (per sample: where it
begins, how long it is, how many of its tokens are trained, the file and line it came from), ``refused.jsonl`` and
``summary.json``. Memory does not grow with the files: rendering streams them, and training maps the arrays.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from engine.policy.rendering import PolicyRenderer
from engine.recipes.sft.rows import RowRefused, parse_row
from engine.recipes.sft.targets import Sample, samples_of

FORMAT = 3
KEPT = 6
"""Prepared sets kept in a project; each is about eight bytes a token."""
MAX_LINE_BYTES = 64 * 1024 * 1024
REFUSED_SHOWN = 50
PROGRESS_ROWS = 500

_INDEX = np.dtype([("start", "<i8"), ("length", "<i4"), ("trained", "<i4"), ("file", "<i4"), ("line", "<i4")])


class PreparationStopped(Exception):
    """Whoever asked for the preparation wants it no longer."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that is left out."""

    file: str
    line: int  # 1-based
    reason: str
    detail: str


@dataclass(slots=True)
class Summary:
    """What a set of files holds. ``split`` rows became several samples; ``refused`` counts by reason."""

    files: list[str]
    rows: int = 0
    samples: int = 0
    split: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    longest: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    shown: list[Refused] = field(default_factory=list)  # the first ones

    @property
    def refused_rows(self) -> int:
        return sum(self.refused.values())


class PreparedData:
    """A prepared set, mapped. Samples are numbered in the order of their files and lines."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError or ValueError where the directory is not a whole set."""
        stored = json.loads((directory / "summary.json").read_bytes())
        stored["shown"] = [Refused(**entry) for entry in stored["shown"]]
        self.summary = Summary(**stored)
        self.directory = directory
        self._tokens = _mapped(directory / "tokens.bin", np.dtype("<i4"))
        self._weights = _mapped(directory / "weights.bin", np.dtype("<f4"))
        self._index = _mapped(directory / "index.bin", _INDEX)
        if len(self._index) != self.summary.samples or len(self._tokens) != self.summary.tokens:
            raise ValueError(f"{directory} is not whole")

    def __len__(self) -> int:
        return len(self._index)

    @property
    def lengths(self) -> Any:
        """Tokens of each sample, an int32 array."""
        return self._index["length"]

    def sample(self, number: int) -> Sample:
        """One sample. Raises IndexError."""
        entry = self._index[number]
        start, end = int(entry["start"]), int(entry["start"]) + int(entry["length"])
        return Sample(self._tokens[start:end].tolist(), self._weights[start:end].tolist())

    def digest(self, number: int) -> int:
        """The same, in this process, for samples of the same tokens. Raises IndexError."""
        entry = self._index[number]
        start = int(entry["start"])
        return hash(self._tokens[start : start + int(entry["length"])].tobytes())

    def origin(self, number: int) -> tuple[str, int]:
        """The file and the line (1-based) of a sample."""
        entry = self._index[number]
        return self.summary.files[int(entry["file"])], int(entry["line"])


def content_fingerprint(files: Sequence[Path]) -> str:
    """The same for files of the same content in the same order. Raises OSError."""
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()


def prepare(
    files: Sequence[Path],
    renderer: PolicyRenderer,
    max_seq_len: int,
    cache: Path,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> PreparedData:
    """Render every row of ``files``, or take what an earlier call made of the same ones. Blocks.

    Args:
        cache: the directory that holds prepared sets.
        progress: told the number of rows so far, now and then.
        stopped: asked as often; True ends the work.

    Raises:
        OSError: a file cannot be read, or the disk is full.
        PreparationStopped: ``stopped`` said so.
    """
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / _key(files, renderer, max_seq_len, template_kwargs or {})
    try:
        found = PreparedData(target)
    except (OSError, ValueError, KeyError, TypeError):
        shutil.rmtree(target, ignore_errors=True)  # of a process that was killed, or of nobody
    else:
        os.utime(target)
        return found
    work = Path(tempfile.mkdtemp(prefix="new-", dir=cache))
    try:
        _write(work, files, renderer, max_seq_len, progress=progress, stopped=stopped)
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            # Another process made the same set meanwhile.
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _forget_old(cache)
    return PreparedData(target)


def _write(
    work: Path,
    files: Sequence[Path],
    renderer: PolicyRenderer,
    max_seq_len: int,
    *,
    progress: Callable[[int], None],
    stopped: Callable[[], bool],
) -> None:
    summary = Summary([str(file) for file in files])
    with (
        (work / "tokens.bin").open("wb") as tokens,
        (work / "weights.bin").open("wb") as weights,
        (work / "index.bin").open("wb") as index,
        (work / "refused.jsonl").open("w", encoding="utf-8") as refused,
    ):
        for number, file in enumerate(files):
            for line, raw in _lines(file):
                if summary.rows % PROGRESS_ROWS == 0:
                    if summary.rows:
                        progress(summary.rows)
                    if stopped():
                        raise PreparationStopped
                summary.rows += 1
                try:
                    samples = samples_of(parse_row(raw), renderer, max_seq_len)
                except RowRefused as why:
                    _refuse(summary, refused, Refused(str(file), line, str(why.reason), why.detail))
                    continue
                summary.split += len(samples) > 1
                for sample in samples:
                    length, trained = len(sample.tokens), sample.trained
                    index.write(np.array([(summary.tokens, length, trained, number, line)], _INDEX).tobytes())
                    tokens.write(np.asarray(sample.tokens, "<i4").tobytes())
                    weights.write(np.asarray(sample.weights, "<f4").tobytes())
                    summary.samples += 1
                    summary.tokens += length
                    summary.trained_tokens += trained
                    summary.longest = max(summary.longest, length)
    progress(summary.rows)
    (work / "summary.json").write_text(json.dumps(asdict(summary)), encoding="utf-8")


def _refuse(summary: Summary, file: IO[str], row: Refused) -> None:
    summary.refused[row.reason] = summary.refused.get(row.reason, 0) + 1
    if len(summary.shown) < REFUSED_SHOWN:
        summary.shown.append(row)
    file.write(json.dumps(asdict(row), ensure_ascii=True) + "\n")


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their 1-based numbers; one that is too long is cut, and so no JSON."""
    with file.open("rb") as stream:
        number = 0
        while raw := stream.readline(MAX_LINE_BYTES):
            number += 1
            while not raw.endswith(b"\n") and len(raw) >= MAX_LINE_BYTES and stream.readline(MAX_LINE_BYTES):
                pass  # the rest of a line that no row has
            raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if raw.strip():
                yield number, raw


def _key(
    files: Sequence[Path], renderer: PolicyRenderer, max_seq_len: int, template_kwargs: Mapping[str, Any]
) -> str:
    """Everything that the rendered tokens depend on."""
    tokenizer = renderer.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts = [
        str(FORMAT),
        content_fingerprint(files),
        "\n".join(str(file) for file in files),
        renderer.name,
        str(getattr(tokenizer, "chat_template", "")),
        backend.to_str() if backend is not None else str(getattr(tokenizer, "name_or_path", "")),
        json.dumps(dict(template_kwargs), sort_keys=True, default=str),
        str(max_seq_len),
    ]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:24]


def _mapped(path: Path, kind: np.dtype[Any]) -> Any:
    # An empty file cannot be mapped.
    return np.memmap(path, kind, "r") if path.stat().st_size else np.empty(0, kind)


def _forget_old(cache: Path) -> None:
    """Keep the sets used last; whoever has mapped another one keeps it until it lets go."""
    sets = sorted(
        (path for path in cache.iterdir() if not path.name.startswith("new-")),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    for path in sets[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
