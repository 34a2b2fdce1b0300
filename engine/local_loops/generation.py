"""One sampling request on its way through the decoder: what ends a completion, and what it has gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from engine.local_loops.compute.interface import DecodeRequest, PromptScores

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from engine.local_loops.policies import Policy

FinishReason = Literal["stop", "length"]

#: Tokens decoded beyond a stop string's own length: a character may span several byte-level tokens.
_WINDOW_SLACK = 4


@dataclass(slots=True)
class Completion:
    """Tokens drawn so far for one of a request's completions."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    #: The stop string that ended it, for cutting it off the text.
    stopped_by: str | None = None


class StopStrings:
    """Recognises stop strings in sampled tokens.

    Special tokens count as text here, so a stop string may name one. Every token stands for at least one byte,
    so a window as many tokens long as the longest string has bytes is enough to see it whole.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer) -> None:
        self._strings = [string for string in strings if string]
        self._tokenizer = tokenizer
        self._window = max((len(s.encode()) for s in self._strings), default=0) + _WINDOW_SLACK

    def found(self, tokens: Sequence[int]) -> str | None:
        """The stop string that the last token completed, if any."""
        text = self._tokenizer.decode(list(tokens[-self._window :]), skip_special_tokens=False)
        return next((string for string in self._strings if string in text), None)


class GenerationFailed(Exception):
    """Why a request got no completion: the status and the sentence for its caller."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(eq=False, slots=True)
class Generation:
    """A request on its way through the decode thread, which calls ``finished`` exactly once."""

    request: DecodeRequest
    policy: Policy
    #: The run whose deactivation ends this request, if any.
    owner: str | None
    max_tokens: int
    stop_ids: frozenset[int]
    stop_strings: StopStrings | None
    finished: Callable[[Generation, GenerationFailed | None], None]
    arrived: float = 0.0
    cancelled: bool = False
    completions: list[Completion] = field(default_factory=list)
    unfinished: int = 0
    prompt_scores: PromptScores | None = None

    def __post_init__(self) -> None:
        self.completions = [Completion() for _ in range(self.request.n)]
        self.unfinished = self.request.n

    def take(self, index: int, token: int, logprob: float) -> bool:
        """Add a token to a completion; True when that ends it."""
        completion = self.completions[index]
        completion.tokens.append(token)
        completion.logprobs.append(logprob)
        if token in self.stop_ids:
            completion.finish = "stop"
        elif self.stop_strings is not None and (found := self.stop_strings.found(completion.tokens)):
            completion.finish = "stop"
            completion.stopped_by = found
        elif len(completion.tokens) >= self.max_tokens:
            completion.finish = "length"
        else:
            return False
        self.unfinished -= 1
        return True

    def end_without_tokens(self) -> None:
        """Close a request that asked for no tokens (a prompt that fills the context, being scored)."""
        for completion in self.completions:
            completion.finish = "length"
        self.unfinished = 0
