"""One row of a batch for an RL loss, in the engine's words and in the SDK's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self


@dataclass(slots=True)
class TrainingDatum:
    """One token-aligned row for an RL loss: all four lists have one entry per token of ``tokens``.

    ``advantages`` and ``logprobs`` are 0.0 where nothing is trained; ``mask`` is 1.0 on trained tokens. ``replies``:
    where each trained reply begins and ends, and the version of the policy that sampled it.
    """

    tokens: Sequence[int]
    logprobs: Sequence[float]
    advantages: Sequence[float]
    mask: Sequence[float]
    replies: Sequence[tuple[int, int, int]] = ()

    def of_version(self, version: int) -> Self:
        """The same row, trained only where this version of the policy sampled it."""
        mask = [0.0] * len(self.mask)
        for start, end, sampled_by in self.replies:
            if sampled_by == version:
                mask[start:end] = self.mask[start:end]
        return replace(self, mask=mask)


def wire_datum(datum: TrainingDatum) -> Any:
    """A datum as the SDK sends it."""
    from baseten.loops import Datum, ModelInput, TensorData

    length = len(datum.tokens)

    def tensor(values: Sequence[float]) -> TensorData:
        return TensorData(data=list(values), dtype="float32", shape=[length])

    return Datum(
        model_input=ModelInput.from_ints(list(datum.tokens)),
        loss_fn_inputs={
            "logprobs": tensor(datum.logprobs),
            "advantages": tensor(datum.advantages),
            "mask": tensor(datum.mask),
        },
    )


class WireDatums(Collection[Any]):
    """Rows as the SDK reads them, each made when its turn comes: a large batch is never there twice."""

    def __init__(self, rows: Sequence[TrainingDatum]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return map(wire_datum, self._rows)

    def __contains__(self, datum: object) -> bool:
        return any(each == datum for each in self)
