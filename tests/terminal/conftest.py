"""A project whose store is filled: made once for the tests of a module, copied for each of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.sample_store import fill


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("terminal") / "agents"
    root.mkdir()
    fill(root)
    return root


@pytest.fixture
def project(filled: Path, tmp_path: Path) -> Path:
    target = tmp_path / "agents"
    shutil.copytree(filled, target)
    return target
