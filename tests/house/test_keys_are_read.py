"""No key is accepted and ignored: each one is read somewhere outside the config package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.config import known_keys

ROOT = Path(__file__).resolve().parents[2]
# Fixed to one value in this version, so nobody has to read them: another value is refused when the config is loaded.
REFUSED_OTHERWISE = {"runtime.factory"}
# Read by engine.config itself: as the directory of runs_dir and as LOOPS_BASE_URL.
READ_WHEN_LOADED = {"output.output_dir", "compute.base_url"}


@pytest.fixture(scope="module")
def code() -> str:
    files = [*(ROOT / "engine").rglob("*.py"), *(ROOT / "loops_tui").rglob("*.py")]
    own = (ROOT / "engine" / "config", ROOT / "engine" / "checking", ROOT / "engine" / "local_loops")
    return "\n".join(file.read_text() for file in files if not any(file.is_relative_to(path) for path in own))


@pytest.mark.parametrize("key", sorted(set(known_keys()) - REFUSED_OTHERWISE - READ_WHEN_LOADED))
def test_the_key_is_read(code: str, key: str) -> None:
    name = key.rpartition(".")[2]
    assert re.search(rf"""(\.{name}\b|"{name}")""", code), f"nothing reads {key}"
