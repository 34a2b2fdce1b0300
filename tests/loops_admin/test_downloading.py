"""A checkpoint's files: whole, verified, resumed, and never over somebody else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file

from engine.loops import downloading
from engine.loops.downloading import DownloadProgress, download
from engine.loops.errors import LoopsError
from engine.loops.management import LoopsCheckpoint, LoopsManagement
from tests.local_loops.server_process import ServerProcess
from tests.loops_admin.odd_server import Answer, Asked, OddServer

if TYPE_CHECKING:
    from baseten.loops import TrainingClient

CONTENT = bytes(range(256)) * 40
CHECKPOINT = LoopsCheckpoint("c1", "r1", "step-000001", "sampler", 0.0, len(CONTENT), "m")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "PAUSE_SECONDS", 0.0)


class Blobs:
    """The odd server as a store of one file, in whatever mood the test puts it."""

    def __init__(self, odd: OddServer) -> None:
        self.odd = odd
        self.name, self.size = "adapter.bin", len(CONTENT)
        self.cuts: list[int | None] = []  # how much of each further answer arrives
        self.ranges = True
        self.refusals = 0
        odd.answer = self.answer

    def answer(self, asked: Asked) -> Answer:
        if asked.path.endswith("/source"):
            return Answer.of({"source": {"kind": "s3"}})
        if "/files" in asked.path:
            file = {
                "url": f"{self.odd.url}/blob",
                "relative_file_name": self.name,
                "node_rank": 0,
                "size_bytes": self.size,
                "last_modified": "2026-01-01T00:00:00Z",
            }
            return Answer.of({"presigned_urls": [file], "next_page_token": None, "total_count": 1})
        if self.refusals:
            self.refusals -= 1
            return Answer(403, b"expired")
        cut = self.cuts.pop(0) if self.cuts else None
        wanted = asked.headers.get("range")
        if wanted and self.ranges:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            head = {"Content-Range": f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}"}
            return Answer(206, CONTENT[begin:], head, cut)
        return Answer(200, CONTENT, cut=cut)

    @property
    def fetches(self) -> list[str | None]:
        """The range of each fetch."""
        return [asked.headers.get("range") for asked in self.odd.asked if asked.path == "/blob"]


@pytest.fixture
def blobs(odd: OddServer) -> Blobs:
    return Blobs(odd)


async def fetch(
    odd: OddServer, directory: Path, checkpoint: LoopsCheckpoint = CHECKPOINT, **more: Any
) -> Any:
    async with LoopsManagement(odd.url, "k") as loops:
        return await download(loops, checkpoint, directory, **more)


async def test_a_real_checkpoint_arrives_whole(
    server: ServerProcess, trained: TrainingClient, tmp_path: Path
) -> None:
    told: list[DownloadProgress] = []
    async with LoopsManagement(server.url, server.key) as loops:
        for kind in ("sampler_weights", "weights"):
            checkpoint = await loops.checkpoint(f"bt://loops:{trained.run_id}/{kind}/step-000001")
            target = tmp_path / kind
            done = await download(loops, checkpoint, target, about={"run": "r"}, progress=told.append)
            assert done.bytes == done.fetched_bytes == checkpoint.size_bytes
            assert all((target / name).is_file() for name in done.files)
            said = json.loads((target / "checkpoint.json").read_text())
            assert (said["run"], said["complete"], said["address"]) == ("r", True, checkpoint.address)
            again = await download(loops, checkpoint, target, about={"run": "r"})
            assert (again.fetched_bytes, again.bytes) == (0, done.bytes)
    assert load_file(tmp_path / "weights" / "optimizer.safetensors") is not None
    assert load_file(tmp_path / "sampler_weights" / "adapter_model.safetensors")
    assert told[-1].bytes_done == told[-1].bytes
    assert (told[-1].files_done, told[-1].files) == (4, 4)


async def test_a_broken_connection_goes_on_where_it_broke(blobs: Blobs, tmp_path: Path) -> None:
    blobs.cuts += [1000, 500]
    done = await fetch(blobs.odd, tmp_path / "d")
    assert (tmp_path / "d" / "adapter.bin").read_bytes() == CONTENT
    assert blobs.fetches == [None, "bytes=1000-", "bytes=1500-"]
    assert done.fetched_bytes == len(CONTENT)
    assert "authorization" not in blobs.odd.asked[-1].headers


async def test_a_server_without_ranges_sends_the_whole_file_again(blobs: Blobs, tmp_path: Path) -> None:
    blobs.ranges = False
    blobs.cuts.append(1000)
    await fetch(blobs.odd, tmp_path / "d")
    assert (tmp_path / "d" / "adapter.bin").read_bytes() == CONTENT


async def test_a_second_call_goes_on_where_the_first_gave_up(blobs: Blobs, tmp_path: Path) -> None:
    blobs.cuts += [1000, 0, 0, 0, 0]
    with pytest.raises(LoopsError, match=r"the connection broke while fetching adapter.bin.*is kept"):
        await fetch(blobs.odd, tmp_path / "d")
    assert not (tmp_path / "d" / "adapter.bin").exists()
    done = await fetch(blobs.odd, tmp_path / "d")
    assert done.fetched_bytes == len(CONTENT) - 1000
    assert (tmp_path / "d" / "adapter.bin").read_bytes() == CONTENT
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["adapter.bin", "checkpoint.json"]


async def test_an_expired_address_is_asked_for_anew(blobs: Blobs, tmp_path: Path) -> None:
    blobs.refusals = 1
    await fetch(blobs.odd, tmp_path / "d")
    assert sum("/files" in asked.path for asked in blobs.odd.asked) == 2


@pytest.mark.parametrize("size", [len(CONTENT) + 1, len(CONTENT) - 1])
async def test_a_file_of_another_size_is_no_checkpoint(blobs: Blobs, size: int, tmp_path: Path) -> None:
    blobs.size = size
    with pytest.raises(LoopsError, match=f"must have {size}"):
        await fetch(blobs.odd, tmp_path / "d")
    assert not (tmp_path / "d" / "adapter.bin").exists()


async def test_somebody_elses_files_are_left_alone(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "adapter.bin").write_bytes(b"mine")
    with pytest.raises(LoopsError, match="is there already"):
        await fetch(blobs.odd, tmp_path)
    assert (tmp_path / "adapter.bin").read_bytes() == b"mine"
    assert not (tmp_path / "checkpoint.json").exists()


async def test_a_directory_of_another_checkpoint_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    await fetch(blobs.odd, tmp_path / "d")
    other = LoopsCheckpoint("c2", "r1", "step-000002", "sampler", 0.0, len(CONTENT), "m")
    with pytest.raises(LoopsError, match=r"holds another checkpoint .*step-000001"):
        await fetch(blobs.odd, tmp_path / "d", other)


async def test_a_file_that_was_changed_meanwhile_is_told_of(blobs: Blobs, tmp_path: Path) -> None:
    await fetch(blobs.odd, tmp_path / "d")
    (tmp_path / "d" / "adapter.bin").write_bytes(b"changed")
    with pytest.raises(LoopsError, match="was changed since"):
        await fetch(blobs.odd, tmp_path / "d")
    assert (tmp_path / "d" / "adapter.bin").read_bytes() == b"changed"


@pytest.mark.parametrize("name", ["../out.bin", "/etc/out.bin", "a/../../out.bin", "checkpoint.json", "a\\b"])
async def test_a_name_that_leads_elsewhere_is_refused(blobs: Blobs, name: str, tmp_path: Path) -> None:
    blobs.name = name
    with pytest.raises(LoopsError, match="cannot be written"):
        await fetch(blobs.odd, tmp_path / "d")
    assert not (tmp_path / "out.bin").exists()


async def test_a_full_disk_is_seen_before(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(downloading.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LoopsError, match="has room for 0 MiB"):
        await fetch(blobs.odd, tmp_path / "d")
    assert blobs.fetches == []
