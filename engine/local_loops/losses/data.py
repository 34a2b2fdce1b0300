"""From a datum on the wire to a row to score and the arrays its loss needs.

Two alignments are accepted. *Shifted*: the datum has ``target_tokens``; position i of every tensor belongs to
``target_tokens[i]``, predicted at position i. *Token-aligned*: it has none; position i of every tensor belongs to
token i itself, which is scored from the logits at i-1. Internally everything is shifted, and
:meth:`PreparedDatum.output` turns the answer back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.local_loops.compute.interface import FloatArray, IntArray, ScoreRow

Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: The value some data sets use for "not a target", beside our own -1.
IGNORE_INDEX = -100


class DatumError(ValueError):
    """A datum that a loss cannot use; the message names the tensor and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class PreparedDatum:
    """A row to score and its per-position arrays, all in the alignment of ``row.targets``.

    ``active`` has the shape of ``row.targets`` and says where the loss looks; ``weights`` (cross_entropy),
    ``sampler_logprobs`` and ``advantages`` (RL), ``ref_logprobs`` (dpo) have that shape too, or are None. A
    ``ref_logprobs`` of shape (1,) is the sum over the sequence.
    """

    row: ScoreRow
    active: Bools
    token_aligned: bool
    zero_inactive: bool
    weights: Doubles | None = None
    sampler_logprobs: Doubles | None = None
    advantages: Doubles | None = None
    ref_logprobs: Doubles | None = None

    def output(self, values: FloatArray) -> FloatArray:
        """Values shaped like ``row.targets``, re-aligned to the datum as it came, 0.0 where not scored."""
        if self.zero_inactive:
            values = np.where(self.active, values, np.float32(0.0)).astype(np.float32)
        return self.realign(values, 0)

    def realign(self, values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
        """Any (L, …) array in the row's alignment, turned to the datum's; position 0 gets ``fill``."""
        if not self.token_aligned:
            return values
        result = np.full_like(values, fill)
        result[1:] = values[:-1]
        return result


def wire_tensor(name: str, wire: Any) -> npt.NDArray[Any]:
    """A wire tensor ``{data, dtype, shape}`` as an array: int64 or float64, reshaped, null as NaN.

    ``data`` may be flat or nested.
    """
    if not isinstance(wire, Mapping) or "data" not in wire:
        raise DatumError(f"{name} must be a tensor with data, dtype and shape.")
    flat = _flatten(wire["data"])
    dtype = str(wire.get("dtype", "float32"))
    shape = tuple(wire.get("shape") or (len(flat),))
    integer = dtype.startswith(("int", "uint", "bool"))
    try:
        if integer:
            if any(value is None for value in flat):
                raise DatumError(f"{name} holds null, and whole numbers are needed there.")
            array = np.array(flat, dtype=np.float64)
            if array.size and not np.array_equal(array, np.rint(array)):
                raise DatumError(f"{name} says dtype {dtype} but holds fractions.")
            array = array.astype(np.int64)
        else:
            array = np.array([np.nan if value is None else value for value in flat], dtype=np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, DatumError):
            raise
        raise DatumError(f"{name} holds something that is no number.") from error
    if any(not isinstance(size, int) or size < 0 for size in shape) or int(np.prod(shape)) != array.size:
        raise DatumError(f"{name} has {array.size} elements, which does not fit its shape {list(shape)}.")
    return array.reshape(shape)


def _flatten(data: Any) -> list[Any]:
    if not isinstance(data, (list, tuple)):
        return [data]
    if not any(isinstance(item, (list, tuple)) for item in data):
        return list(data)
    return [leaf for item in data for leaf in _flatten(item)]


def prepare(loss: str, tokens: Sequence[int], tensors: Mapping[str, Any]) -> PreparedDatum:
    """Turn a datum (token ids and its wire tensors) into a row to score and the arrays ``loss`` needs."""
    ids = np.asarray(tokens, dtype=np.int64)
    if ids.ndim != 1 or ids.size == 0:
        raise DatumError("model_input holds no tokens.")
    arrays = {name: wire_tensor(name, wire) for name, wire in tensors.items()}
    shifted = "target_tokens" in arrays
    if loss == "cross_entropy" and not shifted:
        raise DatumError(
            "cross_entropy needs target_tokens; without them only the RL losses and dpo know the targets."
        )
    targets = _targets(arrays["target_tokens"], ids.size) if shifted else _own_targets(ids)
    if targets.ndim == 2 and loss != "cross_entropy":
        raise DatumError(
            f"target_tokens has shape {list(targets.shape)}; only cross_entropy takes several per position."
        )
    view = _View(arrays, ids.size, targets.shape, token_aligned=not shifted)
    scored = targets >= 0
    if (mask := view.get("mask", needed=scored)) is not None:
        scored = scored & (mask != 0)
    if loss == "cross_entropy":
        weights = view.get("weights", needed=scored)
        weights = np.where(scored, 1.0 if weights is None else weights, 0.0)
        # Positions of weight 0 are scored all the same: a custom loss reads their log-probabilities.
        return PreparedDatum(ScoreRow(ids, targets), weights != 0, False, False, weights=weights)
    if loss == "dpo":
        if (weights := view.get("weights", needed=scored)) is not None:
            scored = scored & (weights != 0)
        reference = _reference(view, arrays, scored)
        row = ScoreRow(ids, np.where(scored, targets, -1))
        return PreparedDatum(row, scored, not shifted, True, ref_logprobs=reference)
    advantages = np.where(scored, view.require("advantages", loss, needed=scored), 0.0)
    active = scored & (advantages != 0)
    sampled = np.where(active, view.require("logprobs", loss, needed=active), 0.0)
    row = ScoreRow(ids, np.where(active, targets, -1))
    return PreparedDatum(row, active, not shifted, True, sampler_logprobs=sampled, advantages=advantages)


@dataclass(frozen=True, slots=True)
class _View:
    """Reads per-position tensors in the alignment of the row's targets, and refuses what does not fit."""

    arrays: Mapping[str, npt.NDArray[Any]]
    length: int
    shape: tuple[int, ...]
    token_aligned: bool

    def get(self, name: str, *, needed: Bools) -> Doubles | None:
        array = self.arrays.get(name)
        if array is None:
            return None
        values = array.astype(np.float64)
        if values.size == 1 and name == "advantages":
            values = np.full(self.shape, values.reshape(()))
        elif values.shape != self.shape:
            if len(self.shape) == 2 and values.shape == self.shape[:1]:
                values = np.broadcast_to(values[:, None], self.shape)
            else:
                raise DatumError(
                    f"{name} has shape {list(values.shape)}, but the datum needs {list(self.shape)}"
                    + (" or one element." if name == "advantages" else ".")
                )
        if self.token_aligned:
            values = np.concatenate([values[1:], np.zeros(1)])
        bad = needed & ~np.isfinite(values)
        if bad.any():
            at = int(np.argwhere(bad)[0][0]) + (1 if self.token_aligned else 0)
            raise DatumError(
                f"{name} holds null (NaN or infinity) at position {at}, where a number is needed."
            )
        return values

    def require(self, name: str, loss: str, *, needed: Bools) -> Doubles:
        values = self.get(name, needed=needed)
        if values is None:
            raise DatumError(f"{loss} needs the tensor {name}, with one value per position.")
        return values


def _targets(array: npt.NDArray[Any], length: int) -> IntArray:
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or not np.array_equal(array, np.rint(array)):
            raise DatumError("target_tokens must hold whole numbers.")
        array = array.astype(np.int64)
    if array.ndim not in (1, 2) or array.shape[0] != length:
        raise DatumError(
            f"target_tokens has shape {list(array.shape)}, but model_input has {length} tokens; "
            f"it must be [{length}] or [{length}, K]."
        )
    targets = np.where(array == IGNORE_INDEX, -1, array)
    if (targets < -1).any():
        raise DatumError(
            "target_tokens holds a negative id; only -1 and -100 (not a target) may be negative."
        )
    return targets


def _own_targets(ids: IntArray) -> IntArray:
    return np.concatenate([ids[1:], np.array([-1], dtype=np.int64)])


def _reference(view: _View, arrays: Mapping[str, npt.NDArray[Any]], scored: Bools) -> Doubles:
    reference = arrays.get("ref_logprobs")
    if reference is not None and reference.size == 1 and view.length != 1:
        total = reference.astype(np.float64).reshape(1)
        if not np.isfinite(total).all():
            raise DatumError("ref_logprobs holds null (NaN or infinity), where a number is needed.")
        return total
    return np.where(scored, view.require("ref_logprobs", "dpo", needed=scored), 0.0)
