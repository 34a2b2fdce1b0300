"""A Loops that has certain checkpoints and no others, as an odd server's answers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.loops_admin.odd_server import Answer, Asked

_ADDRESS = re.compile(r"bt://loops:([^/]+)/(weights|sampler_weights)/(.+)")


class KeepsCheckpoints:
    """Answers what is asked about checkpoints; ``addresses`` are those that there are and may change meanwhile."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)

    def __call__(self, asked: Asked) -> Answer:
        url = urlsplit(asked.path)
        if asked.method != "GET" or url.path != "/v1/loops/checkpoints":
            return Answer.of({"error": f"{asked.method} {url.path} is not expected"}, 500)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if "checkpoint_path" in query:
            found = [address for address in self.addresses if address == query["checkpoint_path"]]
            return checkpoints(found) if found else Answer.of({"error": "no such checkpoint"}, 404)
        return checkpoints([at for at in self.addresses if at.startswith(f"bt://loops:{query['run_id']}/")])


def checkpoints(addresses: list[str]) -> Answer:
    """A list of checkpoints as Loops sends it."""
    return Answer.of({"checkpoints": [_checkpoint(address) for address in addresses]})


def _checkpoint(address: str) -> dict[str, Any]:
    match = _ADDRESS.fullmatch(address)
    assert match is not None
    return {
        "id": f"ckpt-{address}",
        "run_id": match[1],
        "checkpoint_id": match[3],
        "checkpoint_type": "lora",
        "created_at": "2026-11-29T10:00:00+00:00",
        "base_model": "m",
        "lora_adapter_config": {"r": 4},
        "size_bytes": 10,
        "target": "trainer" if match[2] == "weights" else "sampler",
    }
