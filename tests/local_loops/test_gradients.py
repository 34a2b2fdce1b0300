"""The hand-written backward pass against finite differences, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from engine.local_loops.compute.interface import Adapter, Gradients, RowScores, ScoreRow
from engine.local_loops.compute.numpy_backend import NumpyBackend, load_backend
from tests.local_loops.random_models import MODELS

STEP = 1e-5


def random_adapter(backend: NumpyBackend, rank: int = 3) -> Adapter:
    adapter = backend.new_adapter(rank, seed=1)
    generator = np.random.default_rng(2)
    for tensor in adapter.tensors.values():
        tensor[:] = generator.standard_normal(tensor.shape) * 0.3
    return adapter


def make_rows(vocab: int, lengths: Sequence[int], width: int = 0) -> tuple[list[ScoreRow], list[np.ndarray]]:
    """Rows with random targets, some of them -1, and a coefficient for every log-probability."""
    generator = np.random.default_rng(3)
    rows, coefficients = [], []
    for length in lengths:
        shape = (length, width) if width else (length,)
        targets = generator.integers(-1, vocab, shape)
        rows.append(ScoreRow(generator.integers(0, vocab, length), targets))
        coefficients.append(generator.standard_normal(shape))
    return rows, coefficients


def gradients(
    backend: NumpyBackend,
    adapter: Adapter,
    rows: list[ScoreRow],
    coefficients: list[np.ndarray],
    together: int = 1,
) -> tuple[Gradients, list[RowScores]]:
    into = backend.zero_gradients(adapter)
    scores = backend.accumulate(
        backend.weights(adapter),
        adapter,
        rows,
        lambda indices, _: [coefficients[i] for i in indices],
        into,
        rows_together=together,
    )
    return into, scores


@pytest.mark.parametrize("name", MODELS)
def test_every_lora_gradient_is_the_finite_difference(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    backend = load_backend(model.write(tmp_path), dtype=np.float64)
    adapter = random_adapter(backend)
    rows, coefficients = make_rows(model.vocab, (70, 4, 9))
    computed, _ = gradients(backend, adapter, rows, coefficients)

    def objective() -> float:
        scores = backend.score(backend.weights(adapter), rows)
        return sum(float((s.logprobs * c).sum()) for s, c in zip(scores, coefficients, strict=True))

    assert len(adapter.tensors) == 2 * 7 * model.layers
    generator = np.random.default_rng(4)
    for tensor_name, tensor in adapter.tensors.items():
        # One random direction tests every element of the tensor at once.
        direction = generator.standard_normal(tensor.shape)
        original = tensor.copy()
        tensor[:] = original + STEP * direction
        above = objective()
        tensor[:] = original - STEP * direction
        below = objective()
        tensor[:] = original
        expected = (above - below) / (2 * STEP)
        assert float((computed[tensor_name] * direction).sum()) == pytest.approx(
            expected, rel=2e-5, abs=1e-6
        ), tensor_name


def test_several_targets_per_position(tmp_path: Path) -> None:
    model = MODELS["llama"]
    backend = load_backend(model.write(tmp_path), dtype=np.float64)
    adapter = random_adapter(backend)
    rows, coefficients = make_rows(model.vocab, (12,), width=3)
    rows[0].targets[2] = rows[0].targets[2, 0]  # the same target three times
    computed, scores = gradients(backend, adapter, rows, coefficients)
    assert scores[0].logprobs.shape == (12, 3)
    # Column by column the same: log-probabilities add up.
    split = backend.zero_gradients(adapter)
    for column in range(3):
        part = [ScoreRow(rows[0].tokens, rows[0].targets[:, column])]
        one, _ = gradients(backend, adapter, part, [coefficients[0][:, column]])
        for name, value in one.items():
            split[name] += value
    for name, value in computed.items():
        np.testing.assert_allclose(value, split[name], atol=1e-10)


def test_micro_batches_and_head_chunks_change_nothing(tmp_path: Path) -> None:
    model = MODELS["llama"]
    directory = model.write(tmp_path)
    whole, parts = load_backend(directory, dtype=np.float64), load_backend(directory, dtype=np.float64)
    parts.micro_batch_tokens = 20
    parts.head.budget = 3 * model.vocab
    adapter = random_adapter(whole)
    rows, coefficients = make_rows(model.vocab, (10, 30, 5, 5, 8, 8))
    seen: list[list[int]] = []

    def gradient(indices: Sequence[int], scores: Sequence[RowScores]) -> list[np.ndarray]:
        assert [s.logprobs.shape for s in scores] == [rows[i].targets.shape for i in indices]
        seen.append(list(indices))
        return [coefficients[i] for i in indices]

    into = parts.zero_gradients(adapter)
    scores = parts.accumulate(parts.weights(adapter), adapter, rows, gradient, into, rows_together=2)
    assert seen == [[0, 1], [2, 3], [4, 5]]
    expected, expected_scores = gradients(whole, adapter, rows, coefficients)
    for name, value in expected.items():
        np.testing.assert_allclose(into[name], value, atol=1e-9)
    for one, other in zip(scores, expected_scores, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-10)


def test_gradients_add_to_what_is_there_and_zero_slopes_cost_nothing(tmp_path: Path) -> None:
    model = MODELS["llama"]
    backend = load_backend(model.write(tmp_path))
    adapter = random_adapter(backend)
    rows, coefficients = make_rows(model.vocab, (6, 6))
    once, _ = gradients(backend, adapter, rows, coefficients)
    weights = backend.weights(adapter)
    twice = backend.zero_gradients(adapter)
    for _ in range(2):
        backend.accumulate(weights, adapter, rows, lambda i, _: [coefficients[j] for j in i], twice)
    backend.accumulate(weights, adapter, rows, lambda i, _: [np.zeros(6, np.float32) for _ in i], twice)
    for name, value in once.items():
        np.testing.assert_allclose(twice[name], 2 * value, rtol=1e-6)


def test_fresh_adapters_repeat_by_seed(tmp_path: Path) -> None:
    backend = load_backend(MODELS["llama"].write(tmp_path))
    first, same, other = (backend.new_adapter(4, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first.tensors[name], same.tensors[name]) for name in first.tensors)
    assert not all(np.array_equal(first.tensors[name], other.tensors[name]) for name in first.tensors)
    for name, tensor in first.tensors.items():
        assert name.startswith("base_model.model.model.layers.")
        assert (tensor == 0).all() == name.endswith("lora_B.weight")


@pytest.mark.parametrize(
    ("tokens", "targets", "says"),
    [
        ([1, 50], [1, 2], "outside the vocabulary: 50"),
        ([1, -1], [1, 2], "outside"),
        ([1, 2], [1], "2 tokens and 1 targets"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    tokens: list[int], targets: list[int], says: str, tmp_path: Path
) -> None:
    backend = load_backend(MODELS["llama"].write(tmp_path))
    with pytest.raises(ValueError, match=says):
        backend.score(backend.weights(None), [ScoreRow(np.array(tokens), np.array(targets))])


def test_rows_longer_than_the_context_are_refused(tmp_path: Path) -> None:
    backend = load_backend(MODELS["llama"].write(tmp_path))
    with pytest.raises(ValueError, match="513 tokens, more than the model's context of 512"):
        backend.score(backend.weights(None), [ScoreRow(np.ones(513, np.int64), np.ones(513, np.int64))])
