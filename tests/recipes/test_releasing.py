"""A call to the sampler leaves memory with its answer, whether or not Python's collector comes by."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest
import tenacity

from engine.loops.pinned import PinnedSampler
from engine.loops.releasing import release_calls, retrying
from engine.loops.sampling import SamplingSettings
from engine.loops.session import LoopsSession, SessionSettings
from engine.policy.tokens import Sampler
from tests.bench.canned_sampler import CannedSampler
from tests.bench.engine_cost import open_client

#: Nothing else in this process is made of these.
PROMPT = [123_457, *range(70_000, 70_100)]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> list[object]:
    """Requests and prompts that are in memory."""
    return [
        found
        for found in gc.get_objects()
        if isinstance(found, httpx.Request)
        or (type(found) is list and found[:2] == PROMPT[:2] and found is not PROMPT)
    ]


@asynccontextmanager
async def of_a_run(url: str) -> AsyncIterator[Sampler]:
    """A session's published policy."""
    session = LoopsSession(SimpleNamespace(run_id="r"), SessionSettings("loops-demo-1m", 8, "r"), url)
    await session._served.serve(open_client(url), 0)
    yield session
    await session._served.close()


@asynccontextmanager
async def of_fixed_weights(url: str) -> AsyncIterator[Sampler]:
    """As a checkpoint's evaluation samples."""
    client = open_client(url)
    sampler = PinnedSampler(client, SamplingSettings(), url)
    await sampler._served.serve(client, 0)
    yield sampler
    await sampler.close()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("opened", [of_a_run, of_fixed_weights])
async def test_requests_and_prompts_leave_memory_with_their_answers(
    opened: Callable[[str], AbstractAsyncContextManager[Sampler]],
) -> None:
    with CannedSampler([[1, 2, 3]], latency=(-2.0, 0.1)) as server:
        async with opened(server.url) as sampler:

            async def call() -> list[int]:
                reply = await sampler.sample(list(PROMPT), max_tokens=3, seed=None, affinity_key=None)
                return reply.tokens

            for _ in range(3):
                calling = asyncio.create_task(call())
                while not any(isinstance(found, httpx.Request) for found in held()):  # noqa: ASYNC110 - httpx tells nobody
                    await asyncio.sleep(0.01)
                gc.collect(1)  # by now they are old: only a full collection would come by again
                assert await asyncio.wait_for(calling, 120) == [1, 2, 3]
                del calling
                gc.collect(0)  # an answer and its own stream hold each other; they are young
                assert held() == []


async def test_what_fails_is_tried_again_as_before() -> None:
    tries = []

    @retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none(), reraise=True)
    async def call(answer: int) -> int:
        tries.append(answer)
        if len(tries) < 3:
            raise OSError("not yet")
        return answer

    assert await call(7) == 7
    assert tries == [7, 7, 7]
    tries.clear()

    @retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none(), reraise=True)
    async def failing() -> None:
        tries.append(0)
        raise OSError("always")

    with pytest.raises(OSError, match="always"):
        await failing()
    assert len(tries) == 2


def test_a_client_is_told_once() -> None:
    client = open_client("http://127.0.0.1:9")
    for _ in range(2):
        release_calls(client)
    assert len(client._async_client._kwargs["event_hooks"]["response"]) == 1
