"""Exact tokens: what the sampler returned, and the segments that training takes them from."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Completion:
    """One sampled continuation, exactly as the sampler returned it.

    ``logprobs`` are natural logarithms, one per token. ``stop_reason`` is "stop" or "length".
    """

    tokens: list[int]
    logprobs: list[float]
    stop_reason: str
    policy_version: int | None = None


class Sampler(Protocol):
    """Whatever continues a prompt with the policy's own tokens."""

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        """Continue ``prompt`` by at most ``max_tokens`` tokens."""
        ...


@dataclass(slots=True)
class Span:
    """One reply inside a segment: positions [start, end) of its tokens were sampled."""

    start: int
    end: int
    policy_version: int | None
    trained: bool = True  # False once the agent discarded the reply


@dataclass(slots=True)
class Segment:
    """A token list in which every reply was sampled from exactly the tokens before it.

    A conversation is one segment as long as each prompt extends the last one; where that cannot be proven
    a new segment starts, and each becomes a datum of its own. Positions that were not sampled carry logprob 0.0.
    Arrays, for a thousand attempts may be in flight: 12 bytes for a token, where lists take 80.
    """

    tokens: array[int] = field(default_factory=lambda: array("i"))
    logprobs: array[float] = field(default_factory=lambda: array("d"))
    spans: list[Span] = field(default_factory=list)

    def append_prompt(self, tokens: Sequence[int]) -> None:
        """Add tokens that the policy did not sample."""
        self.tokens.extend(tokens)
        self.logprobs.frombytes(bytes(self.logprobs.itemsize * len(tokens)))  # 0.0 each

    def append_reply(self, completion: Completion) -> Span:
        """Add a sampled reply and return its span."""
        start = len(self.tokens)
        self.tokens.extend(completion.tokens)
        self.logprobs.extend(completion.logprobs)
        span = Span(start, len(self.tokens), completion.policy_version)
        self.spans.append(span)
        return span

    @property
    def sampled_tokens(self) -> int:
        """Number of sampled tokens, discarded replies included."""
        return sum(span.end - span.start for span in self.spans)

    @property
    def trainable_tokens(self) -> int:
        """Number of sampled tokens that may be trained on."""
        return sum(span.end - span.start for span in self.spans if span.trained)
