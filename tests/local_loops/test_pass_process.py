"""The process that computes passes: the same numbers as here, its loss, its end. Real processes, a tiny random model."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.local_loops.compute.interface import Adapter
from engine.local_loops.compute.numpy_backend import NumpyBackend, load_backend
from engine.local_loops.losses import DatumError
from engine.local_loops.pass_messages import Pass, PassesLost, PassResult
from engine.local_loops.pass_process import PassProcess
from engine.local_loops.passes import compute
from engine.local_loops.training_thread import Slices

PATIENCE = 20.0


@pytest.fixture
def process() -> Iterator[PassProcess]:
    made = PassProcess()
    yield made
    made.close()


@pytest.fixture(scope="module")
def backend(tiny_model: Path) -> NumpyBackend:
    return load_backend(tiny_model)


@pytest.fixture(scope="module")
def adapter(backend: NumpyBackend) -> Adapter:
    made = backend.new_adapter(4, seed=1)
    generator = np.random.default_rng(2)
    # B is zero in a fresh adapter, and then A has no gradient.
    tensors = {
        name: value + generator.standard_normal(value.shape).astype(np.float32) / 10
        for name, value in made.tensors.items()
    }
    return replace(made, tensors=tensors)


def datum(length: int, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 32, length + 1).tolist()
    return {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]},
        "loss_fn_inputs": {
            "target_tokens": {"data": tokens[1:], "dtype": "int64", "shape": [length]},
            "weights": {"data": [1.0] * length, "dtype": "float32", "shape": [length]},
        },
    }


@pytest.fixture(scope="module")
def wanted(backend: NumpyBackend, adapter: Adapter) -> Pass:
    return Pass(
        directory=backend.card.directory,
        adapter_key=1,
        adapter=adapter,
        data=[datum(20, seed) for seed in range(9)],
        loss_fn="cross_entropy",
        loss_fn_config=None,
        top_k=2,
        backward=True,
        context=64,
        slice_tokens=1,  # each slice has its 128 tokens all the same: six data, then three
    )


def finish(slices: Slices) -> tuple[PassResult, int]:
    """A pass's result, and how often it yielded."""
    yields = 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value, yields
        yields += 1


def here(wanted: Pass, backend: NumpyBackend) -> PassResult:
    return finish(compute(wanted, backend, backend.weights(wanted.adapter)))[0]


def child_of(process: PassProcess) -> int:
    assert process._process is not None
    return process._process.pid


def assert_same(one: PassResult, other: PassResult) -> None:
    assert one.answer == other.answer
    assert (one.tokens, one.normalise) == (other.tokens, other.normalise)
    assert one.gradients is not None
    assert other.gradients is not None
    assert one.gradients.keys() == other.gradients.keys()
    for name, values in one.gradients.items():
        assert np.array_equal(values, other.gradients[name])
        assert values.any()


def test_the_process_computes_what_this_one_would(
    process: PassProcess, wanted: Pass, backend: NumpyBackend
) -> None:
    found, yields = finish(process.compute(wanted))
    assert_same(found, here(wanted, backend))
    assert yields >= 2


def test_other_weights_under_another_key_are_seen(
    process: PassProcess, wanted: Pass, backend: NumpyBackend
) -> None:
    finish(process.compute(wanted))
    changed = Adapter(4, 8.0, {name: value * 2 for name, value in wanted.adapter.tensors.items()})
    other = replace(wanted, adapter=changed, adapter_key=2)
    found, _ = finish(process.compute(other))
    assert_same(found, here(other, backend))
    assert found.answer != here(wanted, backend).answer


def test_a_forward_pass_has_no_gradients(process: PassProcess, wanted: Pass) -> None:
    found, _ = finish(process.compute(replace(wanted, backward=False)))
    assert found.gradients is None


def test_two_passes_may_be_open_at_once(process: PassProcess, wanted: Pass, backend: NumpyBackend) -> None:
    other = replace(wanted, data=wanted.data[:7], adapter_key=2)
    first, second = process.compute(wanted), process.compute(other)
    next(first)
    next(second)
    assert_same(finish(first)[0], here(wanted, backend))
    assert_same(finish(second)[0], here(other, backend))


def test_what_a_pass_raises_is_raised_here(process: PassProcess, wanted: Pass) -> None:
    spoilt = replace(wanted, data=[*wanted.data, {"model_input": None}])
    with pytest.raises(DatumError) as caught:
        finish(process.compute(spoilt))
    assert str(caught.value) == "data[9]: a datum must be an object with a model_input."
    assert "in _tokens_of" in caught.value.__notes__[0]  # where it happened, for the log
    finish(process.compute(wanted))  # and the process goes on


def test_a_pass_whose_process_is_killed_is_computed_again(
    process: PassProcess, wanted: Pass, backend: NumpyBackend
) -> None:
    slices = process.compute(wanted)
    next(slices)
    first = child_of(process)
    os.kill(first, signal.SIGKILL)
    assert_same(finish(slices)[0], here(wanted, backend))
    assert child_of(process) != first


def test_a_pass_that_loses_two_processes_fails_in_one_sentence(process: PassProcess, wanted: Pass) -> None:
    slices = process.compute(wanted)
    for _ in range(2):
        next(slices)
        os.kill(child_of(process), signal.SIGKILL)
    with pytest.raises(PassesLost) as caught:
        finish(slices)
    assert str(caught.value) == "the process that computes passes was killed; the memory may be full"
    finish(process.compute(wanted))  # the next pass has a process again


def test_a_process_that_does_not_answer_is_ended(wanted: Pass) -> None:
    process = PassProcess(answer_seconds=0.01)  # no process has even started by then
    try:
        with pytest.raises(PassesLost) as caught:
            finish(process.compute(wanted))
        told = "the process that computes passes did not answer within 0.01 s and was ended"
        assert str(caught.value) == told
        assert process._process is not None
        assert process._process.poll() == -signal.SIGKILL
    finally:
        process.close()


def test_a_dropped_pass_leaves_the_process_free(process: PassProcess, wanted: Pass) -> None:
    slices = process.compute(wanted)
    next(slices)
    slices.close()
    first = child_of(process)
    finish(process.compute(wanted))
    assert child_of(process) == first


def test_the_end_of_the_handle_ends_the_process_and_whoever_waits(process: PassProcess, wanted: Pass) -> None:
    slices = process.compute(wanted)
    next(slices)
    child = process._process
    closing = threading.Thread(target=process.close)
    closing.start()
    closing.join(PATIENCE)
    assert child is not None
    assert child.poll() == -signal.SIGKILL
    with pytest.raises(PassesLost, match=r"^server is shutting down$"):
        finish(slices)
