"""Losses: gradients against finite differences, values against the formulas, alignments, refusals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from engine.local_loops.losses import (
    LOSS_NAMES,
    DatumError,
    LossConfigError,
    PreparedDatum,
    build_loss,
    mean_loss,
    wire_tensor,
)

TOKENS = [5, 6, 7, 8, 9]


def wire(values: Sequence[Any], dtype: str = "float32", shape: Sequence[int] | None = None) -> dict[str, Any]:
    return {"data": list(values), "dtype": dtype, "shape": list(shape) if shape else [len(values)]}


def datum_for(loss: str, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    tensors: dict[str, Any] = {"target_tokens": wire([1, 2, -1, 3, 4], "int64")}
    if loss == "cross_entropy":
        return tensors | {"weights": wire(generator.standard_normal(5).tolist())}
    if loss == "dpo":
        return tensors | {"ref_logprobs": wire((-2 * generator.random(5)).tolist())}
    return tensors | {
        "logprobs": wire((-2 * generator.random(5)).tolist()),
        "advantages": wire([*generator.standard_normal(4).tolist(), 0.0]),
    }


CONFIGS: list[tuple[str, Mapping[str, Any]]] = [
    *[(name, {}) for name in LOSS_NAMES],
    ("ppo", {"clip_low_threshold": 0.5, "clip_high_threshold": 3.0}),
    ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 5.0}),
    ("dro", {"beta": 0.5}),
    ("dppo", {"dppo_mask_high": 0.05, "dppo_mask_low": 0.5, "adv_tau": 2.0, "kl_tau": 0.3}),
    ("dpo", {"beta": 0.7, "label_smoothing": 0.2}),
]


@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_gradients_are_the_finite_differences(name: str, config: Mapping[str, Any]) -> None:
    loss = build_loss(name, config)
    data = [loss.prepare(TOKENS, datum_for(name, seed)) for seed in range(6)]
    generator = np.random.default_rng(1)
    scores = [-2 * generator.random(5) for _ in data]
    for datum, score in zip(data, scores, strict=True):
        score[datum.row.targets < 0] = 0
    result = loss.evaluate(data, scores)  # pyright: ignore[reportArgumentType]
    assert all(math.isfinite(value) for value in result.metrics.values())
    step = 1e-6
    frozen = [np.exp(p - q) for p, q in _pairs(data, scores)] if name == "cispo" else None
    for row, position in [(i, j) for i in range(6) for j in range(5)]:
        values = []
        for sign in (1, -1):
            moved = [score.copy() for score in scores]
            moved[row][position] += sign * step
            if frozen is not None:  # the ratio of cispo is a constant of the gradient
                values.append(
                    _cispo_sum(
                        data, moved, frozen, {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2, **config}
                    )
                )
            else:
                values.append(loss.evaluate(data, moved).loss)  # pyright: ignore[reportArgumentType]
        expected = (values[0] - values[1]) / (2 * step)
        assert result.gradients[row][position] == pytest.approx(expected, abs=2e-5)
        if data[row].row.targets[position] < 0:
            assert result.gradients[row][position] == 0


def _pairs(
    data: Sequence[PreparedDatum], scores: Sequence[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (s, d.sampler_logprobs) for d, s in zip(data, scores, strict=True) if d.sampler_logprobs is not None
    ]


def _cispo_sum(
    data: Sequence[PreparedDatum],
    scores: Sequence[np.ndarray],
    ratios: Sequence[np.ndarray],
    config: Mapping[str, Any],
) -> float:
    total = 0.0
    for datum, score, ratio in zip(data, scores, ratios, strict=True):
        assert datum.advantages is not None
        clipped = np.clip(ratio, config["clip_low_threshold"], config["clip_high_threshold"])
        total -= float((clipped * datum.advantages * score)[datum.active].sum())
    return total


def one(name: str, p: float, q: float, advantage: float, **config: Any) -> tuple[float, float]:
    """Loss and gradient of a single token."""
    loss = build_loss(name, config)
    tensors = {"target_tokens": wire([1], "int64"), "logprobs": wire([q]), "advantages": wire([advantage])}
    result = loss.evaluate([loss.prepare([3], tensors)], [np.array([p], np.float32)])
    return result.loss, float(result.gradients[0][0])


def test_values_by_hand() -> None:
    p, q = math.log(0.6), math.log(0.3)  # ratio 2
    assert one("importance_sampling", p, q, 1.5) == pytest.approx((-3.0, -3.0), rel=1e-5)
    assert one("ppo", p, q, 1.0) == pytest.approx((-1.2, 0.0), rel=1e-5)
    assert one("ppo", p, q, -1.0) == pytest.approx((2.0, 2.0), rel=1e-5)
    assert one("ppo", q, p, -1.0) == pytest.approx((0.8, 0.0), rel=1e-5)
    assert one("ppo", q, p, 1.0) == pytest.approx((-0.5, -0.5), rel=1e-5)
    assert one("cispo", p, q, 2.0) == pytest.approx((-1.2 * 2 * p, -2.4), rel=1e-5)
    assert one("dro", p, q, 2.0, beta=0.5) == pytest.approx(
        (-(2 * p - 0.25 * math.log(2) ** 2), -(2 - 0.5 * math.log(2))), rel=1e-5
    )
    penalty, slope = 1e-3 * math.log(2) ** 2, 2e-3 * math.log(2)
    # The probability rose by 0.3: beyond 0.2, so a positive advantage is masked and a negative one is not.
    assert one("dppo", p, q, 1.0) == pytest.approx((penalty, slope), rel=1e-4)
    assert one("dppo", p, q, -1.0) == pytest.approx((2.0 + penalty, 2.0 + slope), rel=1e-5)
    assert one("dppo", q, p, -1.0) == pytest.approx((penalty, -slope), rel=1e-4)
    assert one("dppo", p, q, 1.0, dppo_mask_high=0.31) == pytest.approx(
        (-2.0 + penalty, -2.0 + slope), rel=1e-5
    )


def test_dpo_by_hand() -> None:
    loss = build_loss("dpo")
    data = [
        loss.prepare([1, 2, 3], {"ref_logprobs": wire([0.0, -1.0, -1.0]), "mask": wire([0, 1, 1])})
        for _ in range(2)
    ]
    scores = [np.array([-0.5, -0.5, 0.0], np.float32), np.array([-2.0, -2.0, 0.0], np.float32)]
    result = loss.evaluate(data, scores)
    h = 0.1 * ((-1 + 2) - (-4 + 2))
    assert result.loss == pytest.approx(math.log1p(math.exp(-h)))
    assert result.tokens == 1
    slope = -0.1 / (1 + math.exp(h))
    np.testing.assert_allclose(result.gradients[0], [slope, slope, 0], rtol=1e-6)
    np.testing.assert_allclose(result.gradients[1], [-slope, -slope, 0], rtol=1e-6)
    assert result.metrics["dpo/accuracy"] == 1
    assert result.metrics["dpo/margin"] == pytest.approx(h)
    summed = loss.prepare([1, 2, 3], {"ref_logprobs": wire([-2.0])})
    assert loss.evaluate([summed, summed], scores).loss == pytest.approx(result.loss)
    with pytest.raises(DatumError, match="odd number"):
        loss.check_batch(data[:1])


def test_shifted_alignment() -> None:
    loss = build_loss("ppo")
    tensors = {
        "target_tokens": wire([6, 7, 8, 9, 10], "int64"),
        "logprobs": wire([0.0, 0.0, -1.0, -1.0, None]),
        "advantages": wire([0.0, 1.0, 1.0, -1.0, 1.0]),
        "mask": wire([1, 0, 1, 1, 0], "int64"),
    }
    datum = loss.prepare(TOKENS, tensors)
    np.testing.assert_array_equal(datum.row.tokens, TOKENS)
    np.testing.assert_array_equal(datum.row.targets, [-1, -1, 8, 9, -1])
    result = loss.evaluate([datum], [np.array([0, 0, -1, -1, 0], np.float32)])
    assert result.tokens == 2
    assert mean_loss(result) == pytest.approx(0.0)
    assert result.metrics["ratio/mean"] == pytest.approx(1.0)
    assert result.metrics["kl/k3"] == pytest.approx(0.0)
    np.testing.assert_array_equal(datum.output(np.full(5, -3, np.float32)), [0, 0, -3, -3, 0])


def test_token_alignment() -> None:
    loss = build_loss("importance_sampling")
    tensors = {"logprobs": wire([0.0, 0.0, -1.0, -2.0, -3.0]), "advantages": wire([0.0, 0.0, 1.0, 0.0, 2.0])}
    datum = loss.prepare(TOKENS, tensors)
    # Tokens 2 and 4 are scored, from the positions before them.
    np.testing.assert_array_equal(datum.row.targets, [-1, 7, -1, 9, -1])
    result = loss.evaluate([datum], [np.array([0, -1, 0, -3, 0], np.float32)])
    assert result.tokens == 2
    assert result.loss == pytest.approx(-3.0)
    np.testing.assert_allclose(result.gradients[0], [0, -1, 0, -2, 0], atol=1e-6)
    np.testing.assert_array_equal(datum.output(np.array([0, -1, 0, -3, 0], np.float32)), [0, 0, -1, 0, -3])
    np.testing.assert_array_equal(
        datum.realign(np.array([[1], [2], [3], [4], [5]]), -1)[:, 0], [-1, 1, 2, 3, 4]
    )
    masked = loss.prepare(TOKENS, tensors | {"mask": wire([0, 0, 0, 1, 1])})
    np.testing.assert_array_equal(masked.row.targets, [-1, -1, -1, 9, -1])
    # The first token has nothing before it to be scored from.
    everything = loss.prepare(TOKENS, {"logprobs": wire([-1.0] * 5), "advantages": wire([0.5])})
    np.testing.assert_array_equal(everything.row.targets, [6, 7, 8, 9, -1])


def test_a_datum_without_advantage_is_no_part_of_the_loss() -> None:
    loss = build_loss("ppo")
    datum = loss.prepare(TOKENS, {"logprobs": wire([-1.0] * 5), "advantages": wire([0.0])})
    result = loss.evaluate([datum], [np.zeros(5, np.float32)])
    assert (result.loss, result.tokens, mean_loss(result)) == (0.0, 0.0, 0.0)
    assert not result.gradients[0].any()
    assert loss.evaluate([], []).tokens == 0


def test_cross_entropy_with_several_targets_and_nested_data() -> None:
    loss = build_loss("cross_entropy")
    tensors = {
        "target_tokens": {"data": [[1, 2], [3, -100], [4, 5]], "dtype": "int64", "shape": [3, 2]},
        "weights": {"data": [0.5, 0.5, 1, 7, 0, 0], "dtype": "float32", "shape": [3, 2]},
    }
    datum = loss.prepare([7, 8, 9], tensors)
    np.testing.assert_array_equal(datum.row.targets, [[1, 2], [3, -1], [4, 5]])
    scores = np.array([[-1, -2], [-3, 0], [-4, -5]], np.float32)
    result = loss.evaluate([datum], [scores])
    assert result.loss == pytest.approx(0.5 * 3 + 3)
    assert result.tokens == 2
    np.testing.assert_allclose(result.gradients[0], [[-0.5, -0.5], [-1, 0], [0, 0]])
    np.testing.assert_array_equal(datum.output(scores), scores)  # scored where the weight is 0 too


@pytest.mark.parametrize("name", [name for name in LOSS_NAMES if name != "dpo"])
def test_skip_token_normalization(name: str) -> None:
    plain, skipping = build_loss(name), build_loss(name, {"skip_token_normalization": True})
    data = [plain.prepare(TOKENS, datum_for(name, 0))]
    scores = [np.full(5, -1, np.float32)]
    normal, skipped = plain.evaluate(data, scores), skipping.evaluate(data, scores)
    assert normal.loss == skipped.loss
    assert (normal.metrics["skip_token_normalization"], skipped.metrics["skip_token_normalization"]) == (
        0.0,
        1.0,
    )
    assert skipped.tokens == 0
    assert mean_loss(skipped) == skipped.loss
    assert mean_loss(normal) == pytest.approx(normal.loss / normal.tokens)


def test_ratios_stay_finite() -> None:
    for name in ("importance_sampling", "ppo", "cispo", "dppo", "dro"):
        loss = build_loss(name)
        tensors = {"logprobs": wire([0.0, -5000.0]), "advantages": wire([0.0, 1.0])}
        result = loss.evaluate([loss.prepare([1, 2], tensors)], [np.array([-0.1, 0], np.float32)])
        assert math.isfinite(result.loss)
        assert np.isfinite(result.gradients[0]).all()
        assert all(math.isfinite(value) for value in result.metrics.values())


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        ("pp", {}, "loss_fn 'pp' is unknown; it must be one of cross_entropy"),
        (
            "ppo",
            {"clip": 1},
            "loss_fn_config.clip is no key of ppo; it takes clip_low_threshold, clip_high_threshold",
        ),
        ("importance_sampling", {"beta": 1}, "it takes skip_token_normalization"),
        (
            "ppo",
            {"clip_low_threshold": "0.8"},
            "clip_low_threshold must be a number of at least 0, not '0.8'",
        ),
        ("ppo", {"clip_low_threshold": True}, "not True"),
        ("ppo", {"clip_low_threshold": None}, "not None"),
        (
            "ppo",
            {"clip_low_threshold": 1.5},
            r"clip_low_threshold \(1.5\) must not exceed clip_high_threshold \(1.2\)",
        ),
        ("dro", {"beta": -0.1}, "beta must be a number of at least 0"),
        ("dro", {"beta": math.inf}, "beta must be"),
        ("dppo", {"dppo_mask_low": 1.1}, "dppo_mask_low must be a number from 0 to 1"),
        ("dpo", {"label_smoothing": 0.6}, "label_smoothing must be a number from 0 to 0.5"),
        ("dpo", {"skip_token_normalization": True}, "no key of dpo"),
        ("cross_entropy", {"skip_token_normalization": 1}, "must be true or false, not 1"),
        ("ppo", [], "must be an object or null, not list"),
    ],
)
def test_configs_that_are_refused(name: str, config: Any, says: str) -> None:
    with pytest.raises(LossConfigError, match=says):
        build_loss(name, config)


GOOD = {"logprobs": wire([-1.0] * 5), "advantages": wire([1.0] * 5)}


@pytest.mark.parametrize(
    ("name", "tensors", "says"),
    [
        ("cross_entropy", {}, "cross_entropy needs target_tokens"),
        (
            "cross_entropy",
            {"target_tokens": wire([1, 2], "int64")},
            r"shape \[2\], but model_input has 5 tokens",
        ),
        ("cross_entropy", {"target_tokens": wire([1, 2, 3, 4, -7], "int64")}, "negative id"),
        ("cross_entropy", {"target_tokens": wire([1, 2, 3, 4, 0.5])}, "whole numbers"),
        ("cross_entropy", {"target_tokens": wire([1, 2, 3, 4, None], "int64")}, "target_tokens holds null"),
        (
            "ppo",
            {"target_tokens": wire(range(10), "int64", [5, 2]), **GOOD},
            "only cross_entropy takes several",
        ),
        ("ppo", {"logprobs": GOOD["logprobs"]}, "ppo needs the tensor advantages"),
        ("ppo", {"advantages": GOOD["advantages"]}, "ppo needs the tensor logprobs"),
        ("ppo", {**GOOD, "advantages": wire([1, 1, 1, None, 1])}, "advantages holds null .* at position 3"),
        ("ppo", {**GOOD, "logprobs": wire([-1, None, -1, -1, -1])}, "logprobs holds null .* at position 1"),
        ("ppo", {**GOOD, "logprobs": wire([-1, -1])}, r"logprobs has shape \[2\], but the datum needs \[5\]"),
        ("ppo", {**GOOD, "advantages": wire([1, 1])}, r"needs \[5\] or one element"),
        ("dro", {**GOOD, "mask": wire([1, 1])}, "mask has shape"),
        ("dpo", {}, "dpo needs the tensor ref_logprobs"),
        ("dpo", {"ref_logprobs": wire([None])}, "ref_logprobs holds null"),
    ],
)
def test_data_that_is_refused(name: str, tensors: dict[str, Any], says: str) -> None:
    with pytest.raises(DatumError, match=says):
        build_loss(name).prepare(TOKENS, tensors)
    with pytest.raises(DatumError, match="no tokens"):
        build_loss(name).prepare([], tensors)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1.0], "must be a tensor"),
        (
            {"data": [1, 2], "dtype": "float32", "shape": [3]},
            r"2 elements, which does not fit its shape \[3\]",
        ),
        ({"data": ["x"], "dtype": "float32", "shape": [1]}, "no number"),
        ({"data": [0.5], "dtype": "int64", "shape": [1]}, "holds fractions"),
        ({"data": [1], "dtype": "float32", "shape": [-1]}, "does not fit"),
    ],
)
def test_tensors_that_are_refused(value: Any, says: str) -> None:
    with pytest.raises(DatumError, match=says):
        wire_tensor("logprobs", value)


def test_nulls_are_nan_and_empty_tensors_are_allowed() -> None:
    values = wire_tensor("logprobs", {"data": [[1.5, None]], "dtype": "float32", "shape": [1, 2]})
    assert values.shape == (1, 2)
    assert np.isnan(values[0, 1])
    assert wire_tensor("logprobs", {"data": [], "dtype": "float32", "shape": [0]}).shape == (0,)
