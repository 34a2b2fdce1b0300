"""The face between the Loops-compatible server and a compute back end.

A back end only samples, scores, and carries dL/dlogprob back to the LoRA tensors. Everything that gives
those numbers a meaning (losses, token normalisation, Adam, checkpoints, HTTP) lives outside it and is written
once, so another back end (torch on a GPU, MLX) is one more class with these methods.

Conventions
-----------
* Position ``i`` of a row's ``targets`` is scored from the logits *at* position ``i`` of its ``tokens``
  (next-token alignment). A target of ``-1`` is not scored and gets 0.0 everywhere.
* Log-probabilities are natural logarithms, float32, of the policy itself (temperature 1, no truncation),
  except those a decoder returns for sampled tokens: see :class:`DecodeRequest`.
* A back end decodes on one thread, and scores and accumulates on one (in another process). Everything else is pure and
  may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

#: Gradients of an adapter: the same names and shapes as :attr:`Adapter.tensors`.
Gradients = dict[str, FloatArray]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known of a loaded base model."""

    directory: Path
    architecture: str
    vocab_size: int
    max_context: int
    eos_token_ids: tuple[int, ...]
    parameters: int


@dataclass(slots=True)
class Adapter:
    """A LoRA adapter. Tensors carry PEFT's names (``…q_proj.lora_A.weight``): A is (rank, in), B is (out, rank)."""

    rank: int
    alpha: float
    tensors: dict[str, FloatArray]


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One sequence to score: ``tokens`` is (L,), ``targets`` is (L,) or (L, K); -1 means not scored."""

    tokens: IntArray
    targets: IntArray


@dataclass(slots=True)
class RowScores:
    """Scores of one row. ``logprobs`` has the shape of the row's targets; top-k arrays are (L, k) or None."""

    logprobs: FloatArray
    top_ids: IntArray | None = None
    top_logprobs: FloatArray | None = None


@dataclass(slots=True)
class DecodeRequest:
    """A prompt to continue ``n`` times.

    The log-probability returned for a sampled token is that of the distribution it was drawn from: logits divided
    by ``temperature``, cut to ``top_k`` and then ``top_p``, renormalised. At temperature 0 (greedy) it is the
    policy's own. Completion ``j`` draws from a generator seeded by (seed, j) alone, so it does not depend
    on what else is being decoded. The decoder knows nothing of stop conditions: the caller ends sequences.
    """

    request_id: str
    prompt: Sequence[int]
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    #: None: no prompt log-probabilities. k >= 0: those of the prompt's own tokens and of the k likeliest.
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """One completion of one request."""

    request_id: str
    index: int


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token that one decode step gave one sequence."""

    key: SequenceKey
    token: int
    logprob: float


@dataclass(slots=True)
class PromptScores:
    """Log-probabilities of a prompt: entry i belongs to prompt token i (entry 0 is NaN: nothing predicts it)."""

    logprobs: FloatArray
    top_ids: IntArray | None = None
    top_logprobs: FloatArray | None = None


class Decoder(Protocol):
    """Continuous batching over one set of weights: newcomers join between steps, finished ones leave."""

    @property
    def live(self) -> int:
        """Number of sequences now being decoded."""
        ...

    def admit(self, requests: Sequence[DecodeRequest]) -> dict[str, PromptScores]:
        """Prefill the prompts (once per request, whatever its n) and add their sequences.

        Returns prompt scores for the requests that asked for them, by request id.
        """
        ...

    def step(self) -> list[SampledToken]:
        """Draw one token for every live sequence."""
        ...

    def finish(self, keys: Sequence[SequenceKey]) -> None:
        """Remove sequences; unknown keys are ignored."""
        ...


#: Called once per micro-batch with the indices of its rows and their scores; returns dL/dlogprob per row,
#: shaped like the row's targets.
LogprobGradient = Callable[[Sequence[int], Sequence[RowScores]], Sequence[FloatArray]]


class Backend(Protocol):
    """Everything the server asks of a compute library for one base model."""

    @property
    def card(self) -> ModelCard: ...

    def new_adapter(self, rank: int, seed: int) -> Adapter:
        """A fresh adapter whose effect is zero (B = 0)."""
        ...

    def zero_gradients(self, adapter: Adapter) -> Gradients: ...

    def weights(self, adapter: Adapter | None) -> Any:
        """Effective (merged) weights, opaque to the caller; a later change of ``adapter`` does not reach them."""
        ...

    def score(self, weights: Any, rows: Sequence[ScoreRow], *, top_k: int = 0) -> list[RowScores]:
        """Score rows without gradients."""
        ...

    def accumulate(
        self,
        weights: Any,
        adapter: Adapter,
        rows: Sequence[ScoreRow],
        gradient: LogprobGradient,
        into: Gradients,
        *,
        rows_together: int = 1,
        top_k: int = 0,
    ) -> list[RowScores]:
        """Score rows and add dL/dA, dL/dB to ``into``, micro-batch by micro-batch.

        ``weights`` must come from ``adapter``. ``rows_together`` consecutive rows never part (dpo's pairs).
        """
        ...

    def decoder(self, weights: Any) -> Decoder: ...


@dataclass(slots=True)
class LossResult:
    """What a loss says of some rows (see ``engine.local_loops.losses``).

    ``loss`` is the sum over tokens (not normalised), ``tokens`` the denominator it would be divided by,
    ``gradients`` is d(sum)/dlogprob per row, ``metrics`` are plain finite floats.
    """

    loss: float
    tokens: float
    gradients: list[FloatArray]
    metrics: dict[str, float] = field(default_factory=dict)
