"""Checkpoints on disk: an adapter in PEFT's layout, and for a trainer its optimizer and step besides.

A directory holds ``adapter_model.safetensors`` and ``adapter_config.json`` (readable by PEFT), and for a trainer
``optimizer.safetensors`` and ``trainer_state.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlparse

import numpy as np

from engine.local_loops.atomic_files import create_directory
from engine.local_loops.compute.interface import Adapter, FloatArray
from engine.local_loops.records import (
    CheckpointPath,
    CheckpointRecord,
    CheckpointTarget,
    RunRecord,
    new_id,
    now_iso,
)
from engine.local_loops.state import StateStore

ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
TRAINER_STATE = "trainer_state.json"

_MODULE = re.compile(r"([^.]+)\.lora_[AB]\.weight$")


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or does not fit, in one sentence."""


@dataclass(slots=True)
class TrainerState:
    """What a trainer checkpoint restores. ``optimizer`` is flat and opaque: the optimizer knows its names."""

    adapter: Adapter
    step: int
    optimizer: dict[str, FloatArray]


def adapter_config(adapter: Adapter, base_model: str) -> dict[str, Any]:
    """PEFT's description of an adapter."""
    modules = {match[1] for name in adapter.tensors if (match := _MODULE.search(name))}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted(modules),
    }


def _save_tensors(path: Path, tensors: dict[str, FloatArray]) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)


def _load_tensors(path: Path) -> dict[str, FloatArray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        # Copies: the loaded arrays must be writable, the optimizer changes them in place.
        return {name: np.array(value, dtype=np.float32) for name, value in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def _load_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def read_adapter(directory: Path) -> Adapter:
    config = _load_json(directory / ADAPTER_CONFIG)
    return Adapter(int(config["r"]), float(config["lora_alpha"]), _load_tensors(directory / ADAPTER_FILE))


def read_trainer_state(directory: Path, *, with_optimizer: bool) -> TrainerState:
    """The state in a checkpoint directory; a sampler's has weights only."""
    adapter = read_adapter(directory)
    if not with_optimizer:
        return TrainerState(adapter, 0, {})
    if not (directory / TRAINER_STATE).is_file():
        raise CheckpointError(
            f"{directory.name} holds weights only, no optimizer: load it with load_state, or name a checkpoint "
            "made by save_state"
        )
    state = _load_json(directory / TRAINER_STATE)
    return TrainerState(adapter, int(state["step"]), _load_tensors(directory / OPTIMIZER_FILE))


class CheckpointBatch:
    """Checkpoints of a run that enter its index together, when the ``with`` block ends without an error.

    Used from the training thread.
    """

    def __init__(self, store: StateStore, run: RunRecord) -> None:
        self._store = store
        self._run = run
        self._written: list[tuple[CheckpointRecord, Callable[[CheckpointRecord], None]]] = []
        self._arriving: list[str] = []

    def __enter__(self) -> Self:
        return self

    def write(
        self,
        state: TrainerState,
        *,
        target: CheckpointTarget,
        name: str,
        enter: Callable[[CheckpointRecord], None],
        version: int = 0,
        expires_at: float | None = None,
        flush: bool = False,
    ) -> CheckpointRecord:
        """Write a checkpoint's directory; ``enter`` puts it into the run's record later.

        ``flush`` makes it outlive the machine's end as well, not just the process's.
        """
        checkpoint_id = new_id("ckpt")
        directory = self._store.run_directory(self._run.id) / "checkpoints" / checkpoint_id

        def fill(into: Path) -> None:
            _save_tensors(into / ADAPTER_FILE, state.adapter.tensors)
            config = adapter_config(state.adapter, self._run.base_model)
            (into / ADAPTER_CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
            if target == "trainer":
                _save_tensors(into / OPTIMIZER_FILE, state.optimizer)
                (into / TRAINER_STATE).write_text(json.dumps({"step": state.step}), encoding="utf-8")

        self._store.announce(checkpoint_id)
        self._arriving.append(checkpoint_id)
        size = create_directory(directory, fill, flush=flush)
        record = CheckpointRecord(
            id=checkpoint_id,
            run_id=self._run.id,
            name=name,
            target=target,
            created_at=now_iso(),
            base_model=self._run.base_model,
            rank=state.adapter.rank,
            alpha=state.adapter.alpha,
            step=state.step,
            version=version,
            size_bytes=size,
            expires_at=expires_at,
        )
        self._written.append((record, enter))
        return record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._store.lock:
            if error is None:
                for record, enter in self._written:
                    enter(record)
            self._store.withdraw(self._arriving)
            if self._written:
                # After an error this removes the directories that were written and will not be entered.
                self._store.save_run(self._run)


def replace_named(run: RunRecord, record: CheckpointRecord) -> None:
    """Enter a checkpoint in its run's index, over an older one of the same name and target."""
    run.checkpoints = [
        known for known in run.checkpoints if (known.target, known.name) != (record.target, record.name)
    ]
    run.checkpoints.append(record)


def locate(store: StateStore, path: str) -> tuple[Path, CheckpointRecord | None]:
    """The directory of a checkpoint path: ``bt://…`` of this server, or a local directory."""
    parsed = CheckpointPath.parse(path)
    if parsed is not None:
        with store.lock:
            run = store.runs.get(parsed.run_id)
            record = run.find(parsed.target, parsed.name) if run is not None else None
        if record is None:
            raise CheckpointError(f"No Loops checkpoint found for path {path!r} on this server.")
        return store.checkpoint_directory(record), record
    local = Path(unquote(urlparse(path).path)) if path.startswith("file://") else Path(path)
    if not local.is_absolute():
        raise CheckpointError(
            f"checkpoint path {path!r} is neither bt://loops:<run>/weights/<name> nor an absolute directory"
        )
    if not (local / ADAPTER_CONFIG).is_file():
        raise CheckpointError(f"checkpoint directory {local} does not exist or holds no {ADAPTER_CONFIG}")
    return local, None


def require_fit(adapter: Adapter, like: Adapter, base_model: str) -> None:
    """Refuse an adapter whose tensors are not those of the base model at its rank."""
    shapes = {name: value.shape for name, value in adapter.tensors.items()}
    expected = {name: value.shape for name, value in like.tensors.items()}
    if shapes != expected:
        odd = sorted(name for name in {*shapes, *expected} if shapes.get(name) != expected.get(name))
        raise CheckpointError(
            f"the checkpoint's adapter does not fit {base_model}: {len(odd)} tensors differ, first {odd[0]}"
        )
