"""What a script here found, as it says it and as its exit status."""

from __future__ import annotations

import json
from collections.abc import Mapping


def tell(result: Mapping[str, object], *, as_json: bool) -> int:
    """Print the figures, a line each or as one JSON value; returns 0 where ``ok`` holds, else 1."""
    print(json.dumps(result) if as_json else "\n".join(f"{key}: {value}" for key, value in result.items()))
    return 0 if result["ok"] else 1
