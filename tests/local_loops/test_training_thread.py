"""The thread that trains: whose turn it is, and what becomes of work that ends early."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine.local_loops.training_thread import Slices, TrainingThread, Work

PATIENCE = 20.0


class Submitter:
    """Submits work and collects how it ends."""

    def __init__(self, thread: TrainingThread) -> None:
        self.thread = thread
        self.ended: queue.Queue[Any] = queue.Queue()

    def submit(self, owner: str, slices: Slices) -> None:
        self.thread.submit(Work(owner, slices, self.ended.put, self.ended.put))

    def end(self) -> Any:
        """The next result or error."""
        return self.ended.get(timeout=PATIENCE)


@pytest.fixture
def submitter() -> Iterator[Submitter]:
    """Its thread has not begun yet."""
    thread = TrainingThread()
    yield Submitter(thread)
    assert thread.stop(PATIENCE)


def recorded(name: str, slices: int, order: list[str]) -> Slices:
    for index in range(slices):
        order.append(f"{name}{index}")
        yield
    return name


def test_runs_take_turns_slice_by_slice(submitter: Submitter) -> None:
    order: list[str] = []
    for name in ("a", "b"):
        submitter.submit(name, recorded(name, 3, order))
    submitter.thread.start()
    assert [submitter.end(), submitter.end()] == ["a", "b"]
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert submitter.thread.stats.train_slices == 8


def test_one_run_is_first_in_first_out(submitter: Submitter) -> None:
    order: list[str] = []
    for name in "abc":
        submitter.submit("run", recorded(name, 2, order))
    submitter.thread.start()
    assert [submitter.end() for _ in range(3)] == ["a", "b", "c"]
    assert order == ["a0", "a1", "b0", "b1", "c0", "c1"]


def test_an_error_is_told_and_the_next_goes_on(submitter: Submitter) -> None:
    def failing() -> Slices:
        yield
        raise ValueError("no")

    submitter.submit("run", failing())
    submitter.submit("run", recorded("next", 1, []))
    submitter.thread.start()
    assert repr(submitter.end()) == "ValueError('no')"
    assert submitter.end() == "next"


def test_a_result_that_cannot_be_told_is_a_failure(submitter: Submitter) -> None:
    failures: queue.Queue[Exception] = queue.Queue()

    def tell(_: Any) -> None:
        raise TypeError("untold")

    submitter.thread.submit(Work("run", recorded("a", 0, []), tell, failures.put))
    submitter.thread.start()
    assert str(failures.get(timeout=PATIENCE)) == "untold"


def test_closing_a_run_ends_what_it_has_begun_and_refuses_the_rest(submitter: Submitter) -> None:
    begun, go_on, cleaned_up = threading.Event(), threading.Event(), threading.Event()

    def held() -> Slices:
        try:
            begun.set()
            assert go_on.wait(PATIENCE)
            yield
            raise AssertionError("a closed run goes on")
        finally:
            cleaned_up.set()

    submitter.submit("run", held())
    submitter.submit("run", recorded("waiting", 1, []))
    submitter.submit("other", recorded("other", 1, []))
    submitter.thread.start()
    assert begun.wait(PATIENCE)
    submitter.thread.close_owner("run", "run is deactivated")
    go_on.set()
    ends = [submitter.end() for _ in range(3)]
    assert sorted(map(str, ends)) == ["other", "run is deactivated", "run is deactivated"]
    assert cleaned_up.is_set()
    submitter.submit("run", recorded("later", 1, []))
    assert str(submitter.end()) == "run is deactivated"


def test_the_end_refuses_what_is_left() -> None:
    thread = TrainingThread()
    submitter = Submitter(thread)
    begun, go_on = threading.Event(), threading.Event()

    def held() -> Slices:
        begun.set()
        assert go_on.wait(PATIENCE)
        yield

    submitter.submit("run", held())
    submitter.submit("run", recorded("waiting", 1, []))
    thread.start()
    assert begun.wait(PATIENCE)
    assert not thread.stop(0.0)
    go_on.set()
    assert thread.stop(PATIENCE)
    assert [str(submitter.end()) for _ in range(2)] == ["server is shutting down"] * 2
