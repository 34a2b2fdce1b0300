"""A reply that could not be trained on exactly never becomes one."""

from __future__ import annotations

import math

import pytest
from baseten.loops.models import SampledSequence

from engine.loops.errors import LoopsUnavailable, SampleFailed
from engine.loops.sampling import exact_completion


def test_a_reply_keeps_its_tokens_and_logprobs() -> None:
    sequence = SampledSequence(tokens=[5, 6], logprobs=[-0.5, 0.0], stop_reason="stop")
    reply = exact_completion(sequence, 3)
    assert (reply.tokens, reply.logprobs) == ([5, 6], [-0.5, 0.0])
    assert (reply.stop_reason, reply.policy_version) == ("stop", 3)


@pytest.mark.parametrize(("logprobs", "said"), [(None, "no logprobs"), ([-0.5], "1 logprobs for 2 tokens")])
def test_a_sampler_that_does_not_tell_them_ends_the_run(logprobs: list[float] | None, said: str) -> None:
    with pytest.raises(LoopsUnavailable, match=said):
        exact_completion(SampledSequence(tokens=[5, 6], logprobs=logprobs), 3)


@pytest.mark.parametrize("logprob", [math.nan, -math.inf])
def test_one_that_is_no_number_costs_its_reply_alone(logprob: float) -> None:
    with pytest.raises(SampleFailed, match="no finite number"):
        exact_completion(SampledSequence(tokens=[5, 6], logprobs=[-0.5, logprob]), 3)
