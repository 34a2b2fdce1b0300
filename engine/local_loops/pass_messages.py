"""What the server and the process that computes passes say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.local_loops.compute.interface import Adapter, Gradients


@dataclass(frozen=True, slots=True)
class Pass:
    """What is to be computed: a batch as it came over the wire, on the weights of one adapter.

    ``adapter_key`` is another one whenever the adapter has changed. ``slice_tokens`` bounds the tokens between two
    yields; ``context`` those of a datum.
    """

    directory: Path
    adapter_key: int
    adapter: Adapter
    data: list[Any]
    loss_fn: str
    loss_fn_config: dict[str, Any] | None
    top_k: int
    backward: bool
    context: int
    slice_tokens: int


@dataclass(frozen=True, slots=True)
class PassResult:
    """A pass's encoded answer, and what the gradient buffer gets of it: None for a forward pass.

    ``tokens`` is the denominator of the gradients' sum; they are divided by it only where ``normalise`` is set.
    """

    answer: bytes
    gradients: Gradients | None
    tokens: float
    normalise: bool


class PassesLost(RuntimeError):
    """The process ended in the middle of a pass; the sentence says how."""


@dataclass(frozen=True, slots=True)
class Load:
    """Read a model before it is needed."""

    directory: Path


@dataclass(frozen=True, slots=True)
class Begin:
    """Open a pass under a number."""

    number: int
    wanted: Pass


@dataclass(frozen=True, slots=True)
class Advance:
    """Compute the next slice of an open pass."""

    number: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget an open pass."""

    number: int


Message = Load | Begin | Advance | Drop


@dataclass(frozen=True, slots=True)
class Failed:
    """What the message raised; a pass that failed is not open any more."""

    error: Exception


#: None: done, and of a pass that it is still open.
Answer = PassResult | Failed | None
