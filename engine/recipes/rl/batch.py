"""Groups to datums: exact tokens, the sampler's own logprobs, and each attempt's advantage on what it sampled."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from engine.loops.datums import TrainingDatum
from engine.policy.tokens import Segment
from engine.recipes.rl.groups import Group


def datum_of(segment: Segment, advantage: float) -> TrainingDatum | None:
    """One segment as a token-aligned datum, or None where nothing of it is trained.

    Sampled positions of kept replies carry the advantage and the sampler's logprob; all others 0.0 in both, which
    masks them out of the loss and its denominator. Shares the segment's arrays where it can: they do not grow any more.
    """
    length = len(segment.tokens)
    advantages, mask = [0.0] * length, [0.0] * length
    logprobs = segment.logprobs if all(span.trained for span in segment.spans) else segment.logprobs[:]
    for span in segment.spans:
        size = span.end - span.start
        if span.trained:
            advantages[span.start : span.end] = [advantage] * size
            mask[span.start : span.end] = [1.0] * size
        else:
            logprobs[span.start : span.end] = array("d", bytes(8 * size))  # 0.0 each
    if advantage == 0.0 or not any(mask):
        return None
    replies = [
        (span.start, span.end, span.policy_version)
        for span in segment.spans
        if span.trained and span.policy_version is not None
    ]
    return TrainingDatum(segment.tokens, logprobs, advantages, mask, replies)


def pack(groups: Sequence[Group]) -> list[list[TrainingDatum]]:
    """The datums of usable groups, group by group in order of their ids, so that a run can be repeated exactly."""
    batches: list[list[TrainingDatum]] = []
    for group in sorted(groups, key=lambda group: group.group_id):
        assert group.verdict is not None
        assert group.verdict.usable
        datums: list[TrainingDatum] = []
        for index, advantage in sorted(group.verdict.advantages.items()):
            result = group.results[index]
            assert result is not None
            for segment in result.trace.segments:
                datum = datum_of(segment, advantage)
                if datum is not None:
                    datums.append(datum)
        batches.append(datums)
    return batches


def loss_config(configured: dict[str, Any], aggregation: str) -> dict[str, Any]:
    """``loss_fn_config`` for an aggregation: "sum" leaves the loss undivided, "token_mean" divides by trained tokens."""
    return {**configured, "skip_token_normalization": aggregation == "sum"}
