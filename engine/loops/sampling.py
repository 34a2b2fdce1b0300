"""How a policy is sampled, in the engine's words and in the SDK's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from engine.loops.errors import LoopsUnavailable, SampleFailed
from engine.policy.tokens import Completion


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How the policy is sampled. ``stop``: strings, or else the renderer's stop ids."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: list[str] | list[int] | None = None


def sampling_params(settings: SamplingSettings, max_tokens: int, seed: int | None) -> Any:
    """The SDK's SamplingParams."""
    from baseten.loops import SamplingParams

    return SamplingParams(
        max_tokens=max_tokens,
        seed=seed,
        stop=settings.stop,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
    )


def exact_completion(sequence: Any, version: int | None) -> Completion:
    """A sampled sequence of the SDK, refused unless every token has its logprob.

    Raises:
        LoopsUnavailable: nothing exact could be trained on such a sampler's replies.
        SampleFailed: nor on this one, for a logprob of it is no number; the trainer would refuse the whole batch.
    """
    logprobs = sequence.logprobs
    if logprobs is None or len(logprobs) != len(sequence.tokens):
        raise LoopsUnavailable(
            "the sampler returned "
            + ("no logprobs" if logprobs is None else f"{len(logprobs)} logprobs")
            + f" for {len(sequence.tokens)} tokens: nothing exact could be trained on them"
        )
    if not all(map(math.isfinite, logprobs)):
        raise SampleFailed("the sampler returned a logprob that is no finite number")
    return Completion(list(sequence.tokens), list(logprobs), str(sequence.stop_reason), version)
