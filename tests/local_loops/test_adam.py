"""Adam: against the textbook, clipping, decay, its state, and gradients it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.local_loops.adam import Adam, AdamParams


def test_three_steps_are_those_of_the_textbook() -> None:
    generator = np.random.default_rng(0)
    start = generator.standard_normal((3, 4)).astype(np.float32)
    slopes = [generator.standard_normal((3, 4)).astype(np.float32) for _ in range(3)]
    params = AdamParams(
        learning_rate=0.1, beta1=0.8, beta2=0.9, eps=1e-8, weight_decay=0.01, grad_clip_norm=0
    )
    tensors = {"w": start.copy()}
    adam = Adam()
    expected = start.astype(np.float64)
    first, second = np.zeros((3, 4)), np.zeros((3, 4))
    for step, slope in enumerate(slopes, start=1):
        metrics = adam.step(tensors, {"w": slope}, params)
        assert metrics["grad_norm"] == pytest.approx(float(np.linalg.norm(slope)), rel=1e-5)
        assert metrics["grad_clipped"] == 0
        assert metrics["learning_rate"] == 0.1
        first = 0.8 * first + 0.2 * slope
        second = 0.9 * second + 0.1 * slope.astype(np.float64) ** 2
        update = (first / (1 - 0.8**step)) / (np.sqrt(second / (1 - 0.9**step)) + 1e-8)
        expected = expected - 0.1 * (update + 0.01 * expected)
    np.testing.assert_allclose(tensors["w"], expected, rtol=1e-4, atol=1e-6)
    assert tensors["w"].dtype == np.float32


def test_clipping_scales_all_tensors_by_the_common_norm() -> None:
    big = {"a": np.array([30.0], np.float32), "b": np.array([40.0], np.float32)}
    small = {name: value / np.float32(50) for name, value in big.items()}
    results = []
    for gradients, limit in ((big, 1.0), (small, 0.0)):
        tensors = {name: np.zeros(1, np.float32) for name in gradients}
        adam = Adam()
        adam.step(tensors, gradients, AdamParams(grad_clip_norm=limit))
        results.append((tensors, adam.state()))
    for name in ("a", "b"):
        np.testing.assert_allclose(results[0][0][name], results[1][0][name], rtol=1e-6)
    np.testing.assert_allclose(results[0][1]["second.a"], results[1][1]["second.a"], rtol=1e-5)


def test_a_restored_state_goes_on_as_if_nothing_had_been() -> None:
    generator = np.random.default_rng(1)
    slopes = [{"w": generator.standard_normal(4).astype(np.float32)} for _ in range(4)]
    straight = {"w": np.zeros(4, np.float32)}
    adam = Adam()
    for slope in slopes:
        adam.step(straight, slope, AdamParams())
    broken = {"w": np.zeros(4, np.float32)}
    adam = Adam()
    for slope in slopes[:2]:
        adam.step(broken, slope, AdamParams())
    saved = adam.state()
    adam.step({"w": np.zeros(4, np.float32)}, slopes[0], AdamParams())  # must not reach what was saved
    assert set(saved) == {"first.w", "second.w", "steps"}
    adam = Adam.from_state(saved)
    for slope in slopes[2:]:
        adam.step(broken, slope, AdamParams())
    np.testing.assert_array_equal(straight["w"], broken["w"])
    assert adam.steps == 4


def test_a_zero_gradient_moves_nothing() -> None:
    tensors = {"w": np.ones(3, np.float32)}
    metrics = Adam().step(tensors, {"w": np.zeros(3, np.float32)}, AdamParams())
    assert (tensors["w"] == 1).all()
    assert metrics["update_norm"] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_refused(bad: float) -> None:
    adam, tensors = Adam(), {"w": np.ones(2, np.float32)}
    with pytest.raises(FloatingPointError, match="not finite"):
        adam.step(tensors, {"w": np.array([1.0, bad], np.float32)}, AdamParams())
    assert adam.steps == 0
    assert (tensors["w"] == 1).all()


@pytest.mark.parametrize(
    ("key", "value"), [("beta1", 1.0), ("beta2", -0.1), ("learning_rate", math.nan), ("eps", -1.0)]
)
def test_parameters_that_are_refused(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"adam_params.{key} must be"):
        AdamParams(**{key: value})
