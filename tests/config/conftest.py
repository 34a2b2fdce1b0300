"""A small config to break in one place at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import ConfigError, LoadedConfig, load_config

CONFIG = """\
recipe = "rl"

[runtime.config]
tasks = "tasks.jsonl"
episode = "my_episode:MyEpisode"

[model]
base_model = "loops-demo-1m"
max_seq_len = 256

[training]
group_size = 4
max_steps = 3

[sampling]
max_tokens = 32

[compute]
scope = "local"
"""


@pytest.fixture(autouse=True)
def _no_scope_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BASETEN_LOOPS_SCOPE", raising=False)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write the config with replacements, and lines added at its end."""

    def write_config(*replacements: tuple[str, str], more: str = "", name: str = "train.toml") -> Path:
        text = CONFIG
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + more)
        return path

    return write_config


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LoadedConfig]:
    """Load with the temporary directory as the working directory."""

    def load_it(path: Path | str, *overrides: str, **options: object) -> LoadedConfig:
        return load_config(path, overrides, working_dir=tmp_path, **options)  # type: ignore[arg-type]

    return load_it


@pytest.fixture
def problems(load: Callable[..., LoadedConfig]) -> Callable[..., list[str]]:
    """The sentences that a config is refused with."""

    def problems_of(path: Path | str, *overrides: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(path, *overrides)
        assert "Traceback" not in str(caught.value)
        return [str(problem) for problem in caught.value.problems]

    return problems_of
