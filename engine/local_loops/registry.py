"""The base models a server offers: names, directories, and the back ends loaded from them on first use."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.local_loops.faults import unprocessable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from engine.local_loops.compute.interface import Backend

BackendLoader = Callable[[Path], "Backend"]
_FALLBACK_CONTEXT = 2048


class ModelDirectoryError(Exception):
    """A directory that cannot be a model, in one sentence."""


def inspect_model_directory(directory: Path) -> dict[str, Any]:
    """Read a model's config.json, or say what is missing."""
    if not directory.is_dir():
        raise ModelDirectoryError(f"model directory {directory} does not exist")
    config = directory / "config.json"
    if not config.is_file():
        raise ModelDirectoryError(f"model directory {directory} has no config.json")
    if not any(directory.glob("*.safetensors")):
        raise ModelDirectoryError(f"model directory {directory} has no .safetensors weights")
    try:
        parsed = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelDirectoryError(f"{config} is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ModelDirectoryError(f"{config} does not hold a JSON object")
    return parsed


@dataclass(slots=True)
class BaseModel:
    """One base model. ``backend()`` loads it; the same object serves every run and sampler."""

    directory: Path
    max_context: int
    _load: BackendLoader
    _lock: threading.Lock
    _backend: Backend | None = None
    _tokenizer: Tokenizer | None = None

    @property
    def base_checkpoint(self) -> str:
        """What lets the SDK's ``get_tokenizer()`` read the tokenizer from the disk instead of a hub."""
        return f"hf://{self.directory}"

    @property
    def loaded(self) -> bool:
        return self._backend is not None

    def backend(self) -> Backend:
        """The loaded back end; blocking at first use."""
        if self._backend is not None:
            return self._backend
        with self._lock:
            if self._backend is None:
                backend = self._load(self.directory)
                self.max_context = min(self.max_context, backend.card.max_context)
                self._tokenizer = self._read_tokenizer()
                self._backend = backend
            return self._backend

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The directory's tokenizer, read together with the weights, or None where it has none."""
        return self._tokenizer

    def _read_tokenizer(self) -> Tokenizer | None:
        path = self.directory / "tokenizer.json"
        if not path.is_file():
            return None
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))


def load_numpy_backend(directory: Path) -> Backend:
    """The default back end; imported late because numpy must see the BLAS thread setting first."""
    from engine.local_loops.compute.model_files import ModelError
    from engine.local_loops.compute.numpy_backend import load_backend

    try:
        return load_backend(directory)
    except ModelError as error:
        raise ModelDirectoryError(str(error)) from error


class ModelRegistry:
    """Finds a base model by its name or, for a model of the user's own, by its absolute directory."""

    def __init__(self, models: Mapping[str, Path], load: BackendLoader = load_numpy_backend) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._by_directory: dict[Path, BaseModel] = {}
        self._named = {name: self.open(directory) for name, directory in models.items()}

    def open(self, directory: Path) -> BaseModel:
        """The model of a directory; the same object, and so the same loaded weights, for every caller."""
        directory = Path(os.path.expanduser(directory)).resolve()
        if "@" in str(directory):
            raise ModelDirectoryError(
                f"model directory {directory} has an '@' in its path, which the SDK would take for a revision"
            )
        with self._lock:
            known = self._by_directory.get(directory)
            if known is None:
                config = inspect_model_directory(directory)
                context = int(config.get("max_position_embeddings", _FALLBACK_CONTEXT))
                known = BaseModel(directory, context, self._load, threading.Lock())
                self._by_directory[directory] = known
            return known

    def at(self, directory: str) -> BaseModel:
        """The model of a directory as it stands in a record."""
        return self._by_directory.get(Path(directory)) or self.open(Path(directory))

    def named(self) -> Mapping[str, BaseModel]:
        """The models with a name, for the capabilities answer."""
        return self._named

    def resolve(self, base_model: str) -> BaseModel:
        """The model that a request's ``base_model`` means, or a 422 that lists what there is."""
        named = self._named.get(base_model)
        if named is not None:
            return named
        if Path(base_model).is_absolute():
            try:
                return self.open(Path(base_model))
            except ModelDirectoryError as error:
                raise unprocessable(f"base_model: {error}") from error
        available = ", ".join(sorted(self._named)) or "none"
        raise unprocessable(
            f"This local server has no model named {base_model!r}. Available: {available}; "
            "an absolute directory of a Llama-architecture model works as well."
        )

    def resolve_checkpoint(self, base_model: str, base_checkpoint: str | None) -> BaseModel:
        """Like :meth:`resolve`, from a custom base checkpoint where one is named."""
        if base_checkpoint is None:
            return self.resolve(base_model)
        directory = base_checkpoint.removeprefix("hf://")
        if not Path(directory).is_absolute():
            raise unprocessable(
                f"base_checkpoint {base_checkpoint!r} names a hub repository; this local server reads only "
                "local directories (hf:///absolute/directory)."
            )
        return self.resolve(directory)
