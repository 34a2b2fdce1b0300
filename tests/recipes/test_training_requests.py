"""Batches on their way to the trainer: how they are cut, and on which loop the client that sends them runs."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from engine.loops.datums import TrainingDatum
from engine.loops.own_loop import OnOwnLoop
from engine.loops.policy_gradient import cut


def row(length: int) -> TrainingDatum:
    zeros = [0.0] * length
    return TrainingDatum([1] * length, zeros, zeros, zeros)


@pytest.mark.parametrize(
    ("lengths", "pieces"),
    [
        ([], []),
        ([4], [[4]]),
        ([4, 4, 4, 4, 1], [[4, 4, 4], [4, 1]]),  # a piece ends with the datum that brings it to ten
        ([25, 1, 1], [[25], [1, 1]]),
        ([5, 5], [[5, 5]]),
    ],
)
def test_a_batch_is_cut_in_order_at_so_many_tokens(lengths: list[int], pieces: list[list[int]]) -> None:
    batch = [row(length) for length in lengths]
    found = list(cut(batch, 10))
    assert [[len(datum.tokens) for datum in piece] for piece in found] == pieces
    assert [id(datum) for piece in found for datum in piece] == [id(datum) for datum in batch]


@dataclass
class Client:
    """Notes the thread of each call, as the SDK's clients are bound to their loop."""

    name: str = "trainer"
    threads: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def _note(self) -> None:
        self.threads.append(threading.current_thread().name)

    async def submit_async(self, value: int) -> Operation:
        self._note()
        return Operation(self, value)

    async def wait_async(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def fail_async(self) -> None:
        raise ValueError("no such run")

    async def aclose(self) -> None:
        self._note()


@dataclass
class Operation:
    client: Client
    value: int

    async def result_async(self) -> int:
        self.client._note()
        return self.value


async def test_a_client_on_its_own_loop_runs_there_from_call_to_close() -> None:
    client = Client()
    there = OnOwnLoop(client)
    operation = await there.submit_async(5)
    assert await operation.result_async() == 5
    assert there.name == "trainer"
    with pytest.raises(ValueError, match="no such run"):
        await there.fail_async()
    await there.aclose()
    assert client.threads == ["loops-trainer"] * 3
    assert not there._thread.is_alive()


async def test_cancelling_a_call_cancels_it_on_its_own_loop() -> None:
    client = Client()
    there = OnOwnLoop(client)
    waiting = asyncio.create_task(there.wait_async())
    assert await asyncio.to_thread(client.begun.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(client.cancelled.wait, 30)
    await there.aclose()
