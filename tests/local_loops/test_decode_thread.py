"""The thread that decodes, with a decoder whose every step the test lets through."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from engine.local_loops.compute.interface import (
    Backend,
    DecodeRequest,
    ModelCard,
    PromptScores,
    SampledToken,
    SequenceKey,
)
from engine.local_loops.decode_thread import DecodeThread
from engine.local_loops.generation import Generation, GenerationFailed
from engine.local_loops.policies import Policy

PATIENCE = 20.0


@dataclass
class SteppedDecoder:
    """Draws the token 7 for everyone; each step takes a permit of the test's."""

    backend: SteppedBackend
    keys: list[SequenceKey] = field(default_factory=list)

    @property
    def live(self) -> int:
        return len(self.keys)

    def admit(self, requests: Sequence[DecodeRequest]) -> dict[str, PromptScores]:
        if any(request.prompt == [13] for request in requests):
            raise ValueError("unlucky")
        self.backend.admitted.append([request.request_id for request in requests])
        self.keys += [
            SequenceKey(request.request_id, index) for request in requests for index in range(request.n)
        ]
        return {}

    def step(self) -> list[SampledToken]:
        self.backend.stepping.put(len(self.keys))
        assert self.backend.permits.acquire(timeout=PATIENCE)
        if self.backend.broken:
            raise RuntimeError("broken")
        return [SampledToken(key, 7, -0.5) for key in self.keys]

    def finish(self, keys: Sequence[SequenceKey]) -> None:
        self.keys = [key for key in self.keys if key not in set(keys)]


class SteppedBackend:
    """Just enough of a back end for the thread."""

    card = ModelCard(Path("/"), "", 10, 100, (), 10)

    def __init__(self) -> None:
        self.admitted: list[list[str]] = []
        self.stepping: queue.Queue[int] = queue.Queue()
        self.permits = threading.Semaphore(0)
        self.broken = False

    def weights(self, adapter: object) -> object:
        return object()

    def decoder(self, weights: object) -> SteppedDecoder:
        return SteppedDecoder(self)

    def let(self, steps: int) -> None:
        """Let that many steps through; a further one may have begun when this returns."""
        for _ in range(steps):
            self.permits.release()

    def next_step(self) -> int:
        """Wait for a step to begin: how many sequences it has."""
        return self.stepping.get(timeout=PATIENCE)


@dataclass
class Caller:
    """Sends requests and collects how they end."""

    thread: DecodeThread
    ended: queue.Queue[tuple[str, GenerationFailed | None]] = field(default_factory=queue.Queue)

    def ask(self, name: str, policy: Policy, **options: Any) -> Generation:
        prompt, n = options.pop("prompt", [1]), options.pop("n", 1)
        generation = Generation(
            request=DecodeRequest(name, prompt, n=n),
            policy=policy,
            owner=options.pop("owner", None),
            max_tokens=options.pop("max_tokens", 2),
            stop_ids=frozenset(options.pop("stop_ids", ())),
            stop_strings=None,
            finished=lambda done, failure: self.ended.put((done.request.request_id, failure)),
        )
        self.thread.generate(generation)
        return generation

    def end(self) -> tuple[str, GenerationFailed | None]:
        return self.ended.get(timeout=PATIENCE)


@pytest.fixture
def backend() -> SteppedBackend:
    return SteppedBackend()


@pytest.fixture
def policy(backend: SteppedBackend) -> Policy:
    return Policy("p", cast(Backend, backend))


@pytest.fixture
def thread(backend: SteppedBackend) -> Iterator[DecodeThread]:
    made = DecodeThread(max_live=4, slice_tokens=100, weights_cache_bytes=0)
    made.start()
    yield made
    backend.let(1000)
    made.stop(PATIENCE)


@pytest.fixture
def caller(thread: DecodeThread) -> Caller:
    return Caller(thread)


def test_newcomers_join_between_steps(backend: SteppedBackend, caller: Caller, policy: Policy) -> None:
    caller.ask("a", policy, max_tokens=1000)
    assert backend.next_step() == 1
    caller.ask("b", policy, max_tokens=1000)
    caller.ask("c", policy, n=2, max_tokens=1000)
    sizes = {1}
    while 4 not in sizes:  # a newcomer is held for some steps, so that its group comes with it
        backend.let(1)
        sizes.add(backend.next_step())
    assert backend.admitted in ([["a"], ["b", "c"]], [["a"], ["b"], ["c"]])
    assert caller.thread.stats.joined_running == 3


def test_a_group_that_arrives_at_once_is_prefilled_at_once(
    backend: SteppedBackend, caller: Caller, policy: Policy
) -> None:
    with caller.thread._changed:  # held, so that the thread sees all of them or none
        for name in "abcd":
            caller.ask(name, policy)
    assert backend.next_step() == 4
    assert backend.admitted == [["a", "b", "c", "d"]]


def test_beyond_the_cap_requests_wait_in_order(
    backend: SteppedBackend, caller: Caller, policy: Policy
) -> None:
    with caller.thread._changed:
        for name in "abcdef":
            caller.ask(name, policy, max_tokens=1)
    assert backend.next_step() == 4
    backend.let(1)
    assert {caller.end()[0] for _ in range(4)} == set("abcd")
    assert backend.next_step() == 2
    backend.let(1)
    assert {caller.end()[0] for _ in range(2)} == set("ef")
    assert caller.thread.stats.peak_live == 4


def test_a_request_larger_than_the_cap_runs_alone(
    backend: SteppedBackend, caller: Caller, policy: Policy
) -> None:
    with caller.thread._changed:
        caller.ask("small", policy, max_tokens=1)
        caller.ask("large", policy, n=9, max_tokens=1)
    assert backend.next_step() == 1
    backend.let(1)
    assert backend.next_step() == 9
    backend.let(1)
    assert [caller.end() for _ in range(2)] == [("small", None), ("large", None)]


def test_stop_tokens_and_lengths_end_completions(
    backend: SteppedBackend, caller: Caller, policy: Policy
) -> None:
    stopped = caller.ask("stopped", policy, stop_ids={7}, max_tokens=5)
    backend.let(1)
    assert caller.end() == ("stopped", None)
    assert [(item.tokens, item.finish) for item in stopped.completions] == [([7], "stop")]
    long = caller.ask("long", policy, max_tokens=3)
    backend.let(3)
    assert caller.end() == ("long", None)
    assert [(item.tokens, item.logprobs, item.finish) for item in long.completions] == [
        ([7] * 3, [-0.5] * 3, "length")
    ]
    scored = caller.ask("scored", policy, max_tokens=0)
    assert caller.end() == ("scored", None)
    assert [(item.tokens, item.finish) for item in scored.completions] == [([], "length")]


def test_a_caller_that_leaves_frees_its_place(
    backend: SteppedBackend, caller: Caller, policy: Policy
) -> None:
    leaving = caller.ask("leaving", policy, n=4, max_tokens=1000)
    assert backend.next_step() == 4
    waiting = caller.ask("waiting", policy, max_tokens=1000)
    next_in_line = caller.ask("next", policy, max_tokens=1)
    caller.thread.cancel(leaving)
    caller.thread.cancel(waiting)
    backend.let(1)
    gone = {caller.end()[0] for _ in range(2)}
    assert gone == {"leaving", "waiting"}
    backend.let(2)
    assert caller.end() == (next_in_line.request.request_id, None)
    assert caller.thread.stats.aborted == 2


def test_closing_a_run_refuses_what_it_has(backend: SteppedBackend, caller: Caller, policy: Policy) -> None:
    caller.ask("mine", policy, owner="run", max_tokens=1000)
    caller.ask("other", policy, owner="else", max_tokens=2)
    backend.next_step()
    caller.thread.close_owner("run", "run is deactivated")
    backend.let(5)
    ends = dict(caller.end() for _ in range(2))
    assert ends["other"] is None
    refusal = ends["mine"]
    assert refusal is not None
    assert (refusal.status, refusal.message) == (422, "run is deactivated")


def test_a_broken_decoder_fails_its_requests_and_no_others(
    backend: SteppedBackend, caller: Caller, policy: Policy
) -> None:
    caller.ask("a", policy)
    backend.next_step()
    backend.broken = True
    backend.let(1)
    name, failure = caller.end()
    assert failure is not None
    assert (name, failure.status, failure.message) == ("a", 500, "decoding failed: RuntimeError: broken")
    backend.broken = False
    caller.ask("unlucky", policy, prompt=[13])
    assert "prefill failed: ValueError: unlucky" in str(caller.end()[1])
    caller.ask("b", policy, max_tokens=1)
    backend.let(1)
    assert caller.end() == ("b", None)


def test_the_end_refuses_what_is_left(backend: SteppedBackend, policy: Policy) -> None:
    thread = DecodeThread(max_live=1, slice_tokens=100, weights_cache_bytes=0)
    caller = Caller(thread)
    thread.start()
    caller.ask("running", policy, max_tokens=1000)
    backend.next_step()
    caller.ask("waiting", policy)
    stopping = threading.Thread(target=thread.stop, args=(PATIENCE,))
    stopping.start()
    while not thread._stopping:
        pass
    backend.let(1)
    ends = dict(caller.end() for _ in range(2))
    stopping.join(PATIENCE)
    assert {name: failure.status for name, failure in ends.items() if failure} == {
        "running": 503,
        "waiting": 503,
    }
