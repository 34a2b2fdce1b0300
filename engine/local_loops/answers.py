"""What an operation of the trainer is answered with, as bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def encode_result(result: dict[str, Any]) -> bytes:
    """A finished operation's answer. NaN never reaches this point, so it is refused rather than sent."""
    return json.dumps({"status": "done", "result": result}, allow_nan=False, separators=(",", ":")).encode()


def finite_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without those that are no number just now: the wire has no NaN."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def encode_error(message: str, error_class: str) -> bytes:
    """A failed operation's answer, raised by the SDK as ``RemoteOpError``."""
    return json.dumps({"status": "error", "error": message, "error_class": error_class}).encode()
