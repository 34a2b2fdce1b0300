"""Keeping and forgetting results of operations."""

from __future__ import annotations

import pytest

from engine.local_loops import operations
from engine.local_loops.answers import encode_result
from engine.local_loops.operations import KEEP_SECONDS, Operations


def _finished(kept: Operations, name: str, body: bytes = b"{}") -> None:
    operation, new = kept.accept("run", name, "optim_step")
    assert new
    kept.finish(operation, body)


async def test_a_key_is_accepted_once_per_run() -> None:
    kept = Operations()
    first, new = kept.accept("run", "key", "forward")
    again, repeated = kept.accept("run", "key", "forward")
    other, elsewhere = kept.accept("another", "key", "forward")
    assert (new, repeated, elsewhere) == (True, False, True)
    assert first is again is not other
    assert not await kept.wait(first, 0.0)
    kept.finish(first, b"{}")
    assert await kept.wait(first, 30.0)


async def test_results_are_kept_for_their_time() -> None:
    now = [0.0]
    kept = Operations(clock=lambda: now[0])
    _finished(kept, "old")
    now[0] = KEEP_SECONDS - 1
    _finished(kept, "new")
    assert kept.find("run", "old") is not None
    now[0] = KEEP_SECONDS + 1
    _finished(kept, "newest")
    assert kept.find("run", "old") is None
    assert kept.find("run", "new") is not None


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "KEPT_BYTES", 100)
    kept = Operations()
    unfinished, _ = kept.accept("run", "unfinished", "forward")
    for name in "abc":
        _finished(kept, name, b"x" * 40)
    assert [kept.find("run", name) is not None for name in "abc"] == [False, True, True]
    assert kept.find("run", "unfinished") is unfinished


async def test_the_end_releases_who_polls() -> None:
    kept = Operations()
    operation, _ = kept.accept("run", "key", "forward")
    kept.close()
    assert not await kept.wait(operation, 30.0)
    assert kept.closing


def test_a_result_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_result({"loss": float("nan")})
