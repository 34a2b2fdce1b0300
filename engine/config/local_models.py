"""Models that a local run can train: the shipped ones and directories in the usual layout.

Only file names and ``config.json`` are looked at; loading weights is the local server's business.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_SHIPPED = Path(__file__).resolve().parent.parent / "local_loops" / "models"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """What a model directory says about itself."""

    directory: Path
    architecture: str
    context_length: int | None


class UnusableModel(Exception):
    """A directory that holds no model the local server can run; the message says why."""


def shipped_models() -> dict[str, Path]:
    """The models that come with the package, by name."""
    if not _SHIPPED.is_dir():
        return {}
    return {path.name: path for path in sorted(_SHIPPED.iterdir()) if (path / "config.json").is_file()}


def model_directory(base_model: str) -> Path | None:
    """The directory of ``base_model``, a shipped model's name or a directory; None where there is none."""
    shipped = shipped_models().get(base_model)
    if shipped is not None:
        return shipped
    path = Path(base_model)
    return path if path.is_absolute() and os.path.isdir(path) else None


def describe_model(directory: Path) -> LocalModel:
    """Architecture and context length of a model directory; raises UnusableModel."""
    config_file = directory / "config.json"
    try:
        config: Any = json.loads(config_file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UnusableModel(f"{directory} is no model directory: it has no config.json") from error
    except (OSError, ValueError, RecursionError) as error:  # no JSON, or nested and long beyond reading
        raise UnusableModel(f"{config_file} cannot be read: {error}") from error
    architectures = config.get("architectures") if isinstance(config, dict) else None
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else None
    if architecture is None:
        raise UnusableModel(f"{config_file} names no architecture")
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise UnusableModel(
            f"{directory} holds a {architecture}; local runs train {', '.join(SUPPORTED_ARCHITECTURES)}"
        )
    if not any(directory.glob("*.safetensors")):
        raise UnusableModel(f"{directory} holds no weights in safetensors")
    if not (directory / "tokenizer.json").is_file():
        raise UnusableModel(f"{directory} holds no tokenizer.json")
    length = config.get("max_position_embeddings")
    return LocalModel(directory, architecture, length if isinstance(length, int) and length > 0 else None)


def model_fingerprint(directory: Path) -> str:
    """Changes with the model's ``config.json`` and with the names and sizes of its weights' files.

    Weights are not read: they may be many gigabytes.
    """
    digest = hashlib.sha256()
    config = directory / "config.json"
    digest.update(config.read_bytes() if config.is_file() else b"")
    for file in sorted(directory.glob("*.safetensors")):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    return digest.hexdigest()
