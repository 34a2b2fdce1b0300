"""Array types of the numpy back end.

Everything is float32 in use and float64 where gradients are checked, so arrays are typed as floating, and the
back end's face (float32 by contract) is met by a cast.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from engine.local_loops.compute.interface import FloatArray

Array = npt.NDArray[np.floating[Any]]
Complex = npt.NDArray[np.complexfloating[Any, Any]]
FloatType = np.dtype[np.floating[Any]]


def float_type(dtype: npt.DTypeLike) -> FloatType:
    """float32 or float64 as a dtype object; anything else is refused."""
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"the numpy back end computes in float32 or float64, not {kind}.")
    return cast(FloatType, kind)


def complex_type(dtype: FloatType) -> np.dtype[np.complexfloating[Any, Any]]:
    """The complex type of two such floats."""
    return np.dtype(np.complex64) if dtype == np.float32 else np.dtype(np.complex128)


def as_contract(array: Array) -> FloatArray:
    """The same array under the face's type."""
    return cast(FloatArray, array)
