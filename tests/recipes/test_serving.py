"""A policy is served by as many SDK clients as its calls fill, and all of them end."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from typing import Any

import pytest
from baseten.loops import SamplingClient
from baseten.loops.models import SampledSequence, SampleResponse
from baseten.loops.sampling_client import LocalDeployment

from engine.loops import serving, session
from engine.loops.pinned import PinnedSampler
from engine.loops.sampling import SamplingSettings
from engine.loops.serving import CALLS_AT_ONCE, ServedPolicy, another


def make_client(**options: Any) -> SamplingClient:
    place = LocalDeployment("http://127.0.0.1:9")
    return SamplingClient(base_model="m", deployment=place, api_key="k", min_policy_version=3, **options)


async def test_a_full_client_gets_another_beside_it_with_the_same_routing() -> None:
    served = ServedPolicy()
    await served.serve(make_client(), 3)
    async with AsyncExitStack() as calls:
        given = [await calls.enter_async_context(served.calling()) for _ in range(2 * CALLS_AT_ONCE + 1)]
        assert len({id(client) for client in given}) == 3
        assert {client.step for client in given} == {3}
        assert all(client.calls <= CALLS_AT_ONCE for client in given)
        headers = [client.sdk._static_headers() for client in given]
        assert headers[0] == headers[-1]
        assert headers[0]["X-Min-Policy-Version"] == "3"
        assert served.step_of(given[-1], 1) == 3  # a copy's replies are matched with Loops' count as well
    async with served.calling() as client:  # those that have room are taken again
        assert client is given[0]


async def test_all_clients_of_an_earlier_policy_end_with_its_last_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[SamplingClient] = []

    async def aclose(client: SamplingClient) -> None:
        closed.append(client)

    monkeypatch.setattr(SamplingClient, "aclose", aclose)
    served = ServedPolicy()
    await served.serve(make_client(), 0)
    async with AsyncExitStack() as calls:
        given = [await calls.enter_async_context(served.calling()) for _ in range(CALLS_AT_ONCE + 1)]
        await served.serve(make_client(), 1)
        assert closed == []
    assert closed == [given[0].sdk, given[-1].sdk]
    await served.close()
    assert len(closed) == 3


async def test_a_copy_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    served, read = ServedPolicy(), []
    await served.serve(make_client(), 0)
    make = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *a, **k: (read.append(1), make(*a, **k))[1])
    async with served.calling() as client:
        copied = another(client.sdk)
        assert copied is not None
        async with copied._async_client as http, client.sdk._async_client as first:
            assert http is not first
    assert read == []


def test_a_client_that_shares_its_connections_is_alone() -> None:
    assert another(make_client(http2=True)) is None
    assert another(object()) is None


async def test_a_sampler_is_waited_for_once_before_it_is_served() -> None:
    """Each copy of a client that is not known to be ready would ask for itself."""
    asked: list[float | None] = []
    client = make_client()

    async def ready(ready_timeout: float | None = None) -> None:
        asked.append(ready_timeout)
        await asyncio.sleep(0)

    client.ensure_ready_async = ready  # type: ignore[method-assign]
    await ServedPolicy().serve(client, 0)
    assert asked == [None]


async def test_a_client_that_never_becomes_ready_is_closed_with_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[Any] = []

    async def aclose(client: SamplingClient) -> None:
        closed.append(client)

    async def never() -> None:
        raise TimeoutError

    monkeypatch.setattr(SamplingClient, "aclose", aclose)
    served, first, late = ServedPolicy(), make_client(), make_client()
    await served.serve(first, 0)
    late.ensure_ready_async = never  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        await served.serve(late, 1)
    async with served.calling() as client:
        assert client.sdk is first
    await served.close()
    assert {*closed} == {first, late}


async def test_a_session_ends_its_clients_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take its time where the network is away."""
    together, ended = asyncio.Barrier(3), []

    async def aclose(client: SamplingClient) -> None:
        await together.wait()
        ended.append(client)

    class Trainer:
        run_id = "r"

        async def aclose(self) -> None:
            ended.append("trainer")

        def close(self) -> None:
            ended.append("thread")

    monkeypatch.setattr(SamplingClient, "aclose", aclose)
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 30.0)
    connected = session.LoopsSession(Trainer(), session.SessionSettings("m", 8, "r"), None)
    await connected._served.serve(make_client(), 0)
    async with AsyncExitStack() as calls:
        for _ in range(2 * CALLS_AT_ONCE + 1):
            await calls.enter_async_context(connected._served.calling())
    async with asyncio.timeout(20):
        await connected.close()
    assert (len(set(ended)), ended[3:]) == (5, ["trainer", "thread"])


async def test_a_sampler_of_fixed_weights_has_as_many_clients_as_its_calls_fill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, used, closed = 2 * CALLS_AT_ONCE + 1, set[SamplingClient](), set[SamplingClient]()
    together = asyncio.Barrier(calls)

    async def sample(client: SamplingClient, *_: Any, **__: Any) -> SampleResponse:
        used.add(client)
        await together.wait()
        return SampleResponse(sequences=[SampledSequence(tokens=[1], logprobs=[-0.5])])

    async def aclose(client: SamplingClient) -> None:
        closed.add(client)

    monkeypatch.setattr(SamplingClient, "sample_async", sample)
    monkeypatch.setattr(SamplingClient, "aclose", aclose)
    client = make_client()
    sampler = PinnedSampler(client, SamplingSettings(), None)
    await sampler._served.serve(client, 0)
    async with asyncio.timeout(30):
        await asyncio.gather(
            *(sampler.sample([1], max_tokens=1, seed=None, affinity_key=None) for _ in range(calls))
        )
    assert len(used) == 3
    assert await sampler.close() is None
    assert closed == used
