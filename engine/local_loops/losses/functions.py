"""The loss functions: from log-probabilities to a sum, a denominator, and d(sum)/dlogprob.

Notation: ``p`` the policy's log-probability of a target, ``q`` the sampler's, ``A`` its advantage,
``r = exp(p - q)``. All sums run over active positions. Nothing here is normalised: see :class:`LossResult`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.local_loops.compute.interface import FloatArray, LossResult
from engine.local_loops.losses.configs import LossConfig, check_config
from engine.local_loops.losses.data import DatumError, Doubles, PreparedDatum, prepare

#: Log-ratios are held within this before they are exponentiated: e**30 keeps sums and metrics finite.
MAX_LOG_RATIO = 30.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss with its checked configuration."""

    config: LossConfig

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def rows_together(self) -> int:
        """How many consecutive rows belong together (2 for dpo: chosen, rejected)."""
        return 2 if self.name == "dpo" else 1

    def prepare(self, tokens: Sequence[int], tensors: Mapping[str, Any]) -> PreparedDatum:
        """Turn one datum (token ids, wire tensors by name) into a row and its arrays; see :mod:`.data`."""
        return prepare(self.name, tokens, tensors)

    def check_batch(self, data: Sequence[PreparedDatum]) -> None:
        """Refuse a batch that this loss cannot divide into its units."""
        if len(data) % self.rows_together:
            raise DatumError(
                f"dpo needs pairs of rows (chosen, rejected), and {len(data)} is an odd number of them."
            )

    def evaluate(self, data: Sequence[PreparedDatum], logprobs: Sequence[FloatArray]) -> LossResult:
        """Loss, denominator, gradients and metrics of some rows; ``logprobs[i]`` is shaped like the row's targets."""
        self.check_batch(data)
        scores = [np.asarray(values, dtype=np.float64) for values in logprobs]
        if self.name == "cross_entropy":
            result = _cross_entropy(data, scores)
        elif self.name == "dpo":
            result = _dpo(data, scores, self.config)
        else:
            result = _policy_loss(data, scores, self.config)
        if self.config.skip_token_normalization:
            result.tokens = 0.0
        if self.name != "dpo":
            result.metrics["skip_token_normalization"] = float(self.config.skip_token_normalization)
        return result


def build_loss(name: str, config: Mapping[str, Any] | None = None) -> Loss:
    """The loss of that name; :class:`~.configs.LossConfigError` where name or config is not allowed."""
    return Loss(check_config(name, config))


def mean_loss(result: LossResult) -> float:
    """The loss to report: the mean over its denominator, or the sum where it asked not to be normalised."""
    return result.loss / result.tokens if result.tokens > 0 else result.loss


def _cross_entropy(data: Sequence[PreparedDatum], scores: Sequence[Doubles]) -> LossResult:
    """-sum(weight * p). The denominator counts the positions that have a weight other than 0."""
    total, tokens = 0.0, 0.0
    gradients: list[FloatArray] = []
    for datum, p in zip(data, scores, strict=True):
        weights = datum.weights
        assert weights is not None
        total -= float(np.sum(weights * p))
        active = datum.active
        tokens += float(np.count_nonzero(active.any(axis=1) if active.ndim == 2 else active))
        gradients.append((-weights).astype(np.float32))
    return LossResult(total, tokens, gradients, {"loss:sum": total, "tokens": tokens})


#: A policy loss: (p, q, A, config) -> (loss, dloss/dp, share of positions that the loss cut), per position.
_Pointwise = Callable[[Doubles, Doubles, Doubles, LossConfig], tuple[Doubles, Doubles, Doubles]]


def _ratio(p: Doubles, q: Doubles) -> Doubles:
    return np.exp(np.clip(p - q, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def _importance_sampling(
    p: Doubles, q: Doubles, a: Doubles, _: LossConfig
) -> tuple[Doubles, Doubles, Doubles]:
    """-r A: the policy gradient, corrected for having been sampled by q."""
    r = _ratio(p, q)
    return -r * a, -r * a, np.zeros_like(p)


def _ppo(p: Doubles, q: Doubles, a: Doubles, config: LossConfig) -> tuple[Doubles, Doubles, Doubles]:
    """-min(r A, clip(r, low, high) A) (Schulman et al. 2017, arXiv:1707.06347, eq. 7)."""
    r = _ratio(p, q)
    clipped = np.clip(r, config["clip_low_threshold"], config["clip_high_threshold"])
    cut = clipped * a < r * a
    return -np.minimum(r * a, clipped * a), np.where(cut, 0.0, -r * a), cut.astype(np.float64)


def _cispo(p: Doubles, q: Doubles, a: Doubles, config: LossConfig) -> tuple[Doubles, Doubles, Doubles]:
    """-stop_gradient(clip(r, low, high)) A p (MiniMax-M1 2025, arXiv:2506.13585, eq. 4)."""
    r = _ratio(p, q)
    clipped = np.clip(r, config["clip_low_threshold"], config["clip_high_threshold"])
    return -clipped * a * p, -clipped * a, (clipped != r).astype(np.float64)


def _dro(p: Doubles, q: Doubles, a: Doubles, config: LossConfig) -> tuple[Doubles, Doubles, Doubles]:
    """-(A p - beta/2 (p - q)**2) (Richemond et al. 2024, arXiv:2405.19107, per token)."""
    gap = p - q
    return -(a * p - 0.5 * config["beta"] * gap**2), -(a - config["beta"] * gap), np.zeros_like(p)


def _dppo(p: Doubles, q: Doubles, a: Doubles, config: LossConfig) -> tuple[Doubles, Doubles, Doubles]:
    """-keep adv_tau A r + kl_tau (p - q)**2 (binary-TV mask of arXiv:2602.04879, as in prime-rl).

    A token is not kept where its probability has moved by more than ``dppo_mask_high`` up (A > 0) or
    ``dppo_mask_low`` down (A < 0): a trust region on the divergence instead of on the ratio.
    """
    r = _ratio(p, q)
    moved = np.exp(np.minimum(p, 0.0)) - np.exp(np.minimum(q, 0.0))
    cut = np.where(a > 0, moved > config["dppo_mask_high"], moved < -config["dppo_mask_low"])
    policy = np.where(cut, 0.0, config["adv_tau"] * a * r)
    gap = p - q
    return -policy + config["kl_tau"] * gap**2, -policy + 2.0 * config["kl_tau"] * gap, cut.astype(np.float64)


_POLICY_LOSSES: dict[str, _Pointwise] = {
    "importance_sampling": _importance_sampling,
    "ppo": _ppo,
    "cispo": _cispo,
    "dro": _dro,
    "dppo": _dppo,
}


def _policy_loss(data: Sequence[PreparedDatum], scores: Sequence[Doubles], config: LossConfig) -> LossResult:
    function = _POLICY_LOSSES[config.name]
    gradients: list[FloatArray] = []
    parts: list[tuple[Doubles, ...]] = []
    for datum, values in zip(data, scores, strict=True):
        assert datum.sampler_logprobs is not None
        assert datum.advantages is not None
        active = datum.active
        p, q, a = values[active], datum.sampler_logprobs[active], datum.advantages[active]
        loss, slope, cut = function(p, q, a, config)
        gradient = np.zeros(active.shape, dtype=np.float32)
        gradient[active] = slope
        gradients.append(gradient)
        parts.append((loss, cut, p - q))
    loss, cut, gap = (
        (np.concatenate(column) if parts else np.zeros(0) for column in zip(*parts, strict=True))
        if parts
        else (
            np.zeros(0),
            np.zeros(0),
            np.zeros(0),
        )
    )
    tokens = float(loss.size)
    metrics = {"loss:sum": float(loss.sum()), "tokens": tokens}
    if tokens:
        held = np.clip(gap, -MAX_LOG_RATIO, MAX_LOG_RATIO)
        r = np.exp(held)
        metrics |= {
            "ratio/mean": float(r.mean()),
            "ratio/max": float(r.max()),
            "clip_fraction": float(cut.mean()),
            # The sampler's tokens are scored by both, so with d = log(trainer / sampler) the
            # estimator of KL(sampler || trainer) is exp(d) - 1 - d (Schulman's k3), and -d is k1.
            "kl/k1": float(-held.mean()),
            "kl/k3": float((np.expm1(held) - held).mean()),
        }
    return LossResult(float(loss.sum()), tokens, gradients, metrics)


def _dpo(data: Sequence[PreparedDatum], scores: Sequence[Doubles], config: LossConfig) -> LossResult:
    """-(1-e) log sigmoid(h) - e log sigmoid(-h), h = beta ((pc - fc) - (pr - fr)) (arXiv:2305.18290, eq. 7).

    ``p`` and ``f`` are sums of policy and reference log-probabilities over a sequence, c the chosen (even) row and r
    the rejected (odd) one; e is ``label_smoothing``. The denominator counts pairs.
    """
    beta, smoothing = config["beta"], config["label_smoothing"]
    margins = np.zeros(len(data))
    for i, (datum, p) in enumerate(zip(data, scores, strict=True)):
        assert datum.ref_logprobs is not None
        margins[i] = p[datum.active].sum() - datum.ref_logprobs.sum()
    chosen, rejected = beta * margins[0::2], beta * margins[1::2]
    h = chosen - rejected
    losses = (1 - smoothing) * np.logaddexp(0.0, -h) + smoothing * np.logaddexp(0.0, h)
    sigmoid = np.exp(-np.logaddexp(0.0, -h))
    slope = beta * (sigmoid - (1 - smoothing))
    gradients: list[FloatArray] = []
    for i, datum in enumerate(data):
        sign = 1.0 if i % 2 == 0 else -1.0
        gradients.append(np.where(datum.active, sign * slope[i // 2], 0.0).astype(np.float32))
    pairs = float(h.size)
    metrics = {"loss:sum": float(losses.sum()), "pairs": pairs}
    if pairs:
        metrics |= {
            "dpo/accuracy": float((h > 0).mean()),
            "dpo/margin": float(h.mean()),
            "dpo/chosen_reward": float(chosen.mean()),
            "dpo/rejected_reward": float(rejected.mean()),
        }
    return LossResult(float(losses.sum()), pairs, gradients, metrics)
