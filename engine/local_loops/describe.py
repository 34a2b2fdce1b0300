"""How sessions, runs, samplers, deployments and checkpoints are shown on the wire.

One shape serves the training SDK and the management client. Everything has the *dedicated* shape: a run has a
``deployment_id`` and a sampler a ``model_id``, which makes a sample one request and gives it a policy version.
"""

from __future__ import annotations

import os
from typing import Any

from engine.local_loops.records import CheckpointRecord, RunRecord, SamplerRecord

USER = {"email": "local@localhost"}


def instance_type() -> dict[str, Any]:
    """This machine, as the kind of instance that a deployment runs on."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024)
    except (ValueError, OSError):
        memory = 0  # not told by this platform; the field is required
    return {
        "id": "local",
        "name": "this machine",
        "memory_limit_mib": memory,
        "millicpu_limit": (os.cpu_count() or 1) * 1000,
        "gpu_count": 0,
        "gpu_type": None,
        "gpu_memory_limit_mib": None,
    }


class Describer:
    """Renders records; knows the address that clients reach the server at."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def trainer_url(self, run: RunRecord) -> str:
        return f"{self.base_url}/trainer/{run.id}"

    def run(self, run: RunRecord, sampler: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": run.id,
            "session_id": run.session_id,
            "deployment_id": run.deployment_id,
            "name": run.name,
            "base_model": run.base_model,
            # The SDK reads the tokenizer from here instead of asking a hub for the model's name.
            "base_checkpoint": f"hf://{run.model_dir}",
            "base_url": self.trainer_url(run),
            "created_at": run.created_at,
            "status": {"name": run.status},
            "user": USER,
            "sampler": sampler,
            "lora_rank": run.lora_rank,
            "max_seq_len": run.context,
        }

    def sampler(self, sampler: SamplerRecord, *, active: bool) -> dict[str, Any]:
        return {
            "id": sampler.id,
            "session_id": sampler.session_id,
            "run_id": sampler.run_id,
            "base_url": f"{self.base_url}/sampler/{sampler.id}",
            "base_model": sampler.base_model,
            "base_checkpoint": f"hf://{sampler.model_dir}",
            "model_path": sampler.model_path,
            "created_at": sampler.created_at,
            "model_id": sampler.model_id,
            "deployment_id": sampler.deployment_id,
            "status": {"name": "ACTIVE" if active else "INACTIVE"},
            "user": USER,
            "instance_type": instance_type(),
            "node_count": 1,
        }

    def deployment(self, run: RunRecord, sampler: dict[str, Any] | None) -> dict[str, Any]:
        active = run.status == "ACTIVE"
        return {
            "id": run.deployment_id,
            "active_run_id": run.id if active else None,
            "latest_run_id": run.id,
            "base_model": run.base_model,
            "base_url": self.trainer_url(run),
            "status": {"name": "RUNNING" if active else "STOPPED"},
            "user": USER,
            "created_at": run.created_at,
            "availability_model": run.availability_model,
            "instance_type": instance_type(),
            "node_count": 1,
            "sampler": sampler,
        }


def checkpoint(record: CheckpointRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "run_id": record.run_id,
        "checkpoint_id": record.name,
        "checkpoint_type": "lora",
        "created_at": record.created_at,
        "base_model": record.base_model,
        "lora_adapter_config": {"r": record.rank, "lora_alpha": record.alpha},
        "size_bytes": record.size_bytes,
        "sync_status": "COMPLETE",
        "target": record.target,
        "path": record.path,
        "step": record.step,
        "version": record.version,
    }
