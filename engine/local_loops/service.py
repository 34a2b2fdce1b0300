"""The server's one object: its records, its models, its runs in memory, its two threads, and the process that trains."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from engine.local_loops import describe
from engine.local_loops.checkpoints import CheckpointError, locate, read_adapter
from engine.local_loops.decode_thread import DecodeThread
from engine.local_loops.faults import not_found, unprocessable
from engine.local_loops.logbook import Logbook
from engine.local_loops.operations import Operations
from engine.local_loops.pass_process import PassProcess
from engine.local_loops.policies import Policy, RunPolicies
from engine.local_loops.records import CheckpointRecord, RunRecord, SamplerRecord, new_id, now_iso
from engine.local_loops.registry import BaseModel, ModelDirectoryError, ModelRegistry
from engine.local_loops.settings import ServerSettings
from engine.local_loops.state import StateStore
from engine.local_loops.training import RunTrainer
from engine.local_loops.training_thread import Slices, TrainingThread, Work
from engine.local_loops.wire import CreateSampler, CreateTrainer

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LiveRun:
    """An active run in memory."""

    record: RunRecord
    model: BaseModel
    trainer: RunTrainer
    policies: RunPolicies


class LoopsService:
    """What the routes call. Used from the event loop; blocking parts run in threads of their own."""

    def __init__(
        self, settings: ServerSettings, store: StateStore, registry: ModelRegistry, base_url: str
    ) -> None:
        self.settings = settings
        self.store = store
        self.registry = registry
        self.describe = describe.Describer(base_url)
        self.logbook = Logbook()
        self.operations = Operations()
        self.decoding = DecodeThread(
            max_live=settings.max_live_sequences,
            slice_tokens=settings.slice_tokens,
            weights_cache_bytes=settings.weights_cache_bytes,
        )
        self.training = TrainingThread()
        self.passes = PassProcess()
        self._live: dict[str, LiveRun] = {}
        self._live_lock = asyncio.Lock()
        self._base_policies: dict[Path, Policy] = {}
        #: Policies read from checkpoints on disk, by checkpoint id; the most recent few.
        self._stored_policies: dict[str, Policy] = {}

    def start(self) -> None:
        self.decoding.start()
        self.training.start()

    def stop(self, timeout: float) -> None:
        """End the threads and the process that computes passes; blocks for up to ``timeout`` seconds for each."""
        self.decoding.stop(timeout)
        in_time = self.training.stop(timeout)
        # A slice that is still being computed ends with the process.
        self.passes.close()
        if not in_time:
            self.training.stop(timeout)

    # -- sessions ------------------------------------------------------------------------------------------

    async def create_session(self) -> str:
        session_id = new_id("session")
        await asyncio.to_thread(self.store.add_session, session_id, now_iso())
        return session_id

    def require_session(self, session_id: str) -> None:
        if session_id not in self.store.sessions:
            raise unprocessable(
                f"unknown session {session_id!r}: it belongs to another server; create a new ServiceClient"
            )

    # -- runs ----------------------------------------------------------------------------------------------

    def run_record(self, run_id: str) -> RunRecord:
        record = self.store.runs.get(run_id)
        if record is None:
            raise not_found(f"no run {run_id!r} on this server")
        return record

    def active_run(self, run_id: str) -> RunRecord:
        """A run that may train and sample."""
        record = self.run_record(run_id)
        if record.status != "ACTIVE":
            raise unprocessable(f"run {run_id} is deactivated; its checkpoints remain available")
        return record

    def run_of_deployment(self, deployment_id: str) -> RunRecord:
        for record in self.store.runs.values():
            if record.deployment_id == deployment_id:
                return record
        raise not_found(f"no deployment {deployment_id!r} on this server")

    async def create_run(self, wanted: CreateTrainer) -> RunRecord:
        """Enter a run and load its model, so that its trainer is ready once this returns."""
        self.require_session(wanted.session_id)
        model = self.registry.resolve_checkpoint(wanted.base_model, wanted.base_checkpoint)
        custom_base = wanted.base_checkpoint is not None
        if wanted.path is not None:
            origin = self._origin_of(wanted.path)
            if origin is not None and origin.custom_base:
                model, custom_base = self.registry.at(origin.model_dir), True
        await self.load(model)
        record = RunRecord(
            id=new_id("run"),
            session_id=wanted.session_id,
            name=wanted.name or wanted.base_model,
            base_model=wanted.base_model,
            model_dir=str(model.directory),
            lora_rank=wanted.lora_rank,
            seed=wanted.seed if wanted.seed is not None else secrets.randbits(31),
            context=min(model.max_context, wanted.max_seq_len or model.max_context),
            created_at=now_iso(),
            deployment_id=new_id("deployment"),
            availability_model=wanted.availability_model,
            custom_base=custom_base,
        )
        await asyncio.to_thread(self.store.save_run, record)
        self._warm_up(record)
        self.logbook.write(record.deployment_id, f"run {record.id} created on {record.base_model}")
        if wanted.reuse_from_run_id is not None:
            self.logbook.write(
                record.deployment_id,
                "reuse_from_run_id has no effect: a local trainer has no cold start to save",
                level="WARNING",
            )
        return record

    def _warm_up(self, record: RunRecord) -> None:
        """Start the process that computes passes, so that the run's first batch need not wait for it."""

        def load() -> Slices:
            self.passes.load(Path(record.model_dir))
            yield

        def failed(error: Exception) -> None:
            log.warning("%s is not ready to train on yet: %s", record.model_dir, error)

        self.training.submit(Work(record.id, load(), lambda _: None, failed))

    def _origin_of(self, path: str) -> RunRecord | None:
        try:
            _, checkpoint = locate(self.store, path)
        except CheckpointError as error:
            raise unprocessable(str(error)) from error
        return self.store.runs.get(checkpoint.run_id) if checkpoint is not None else None

    async def load(self, model: BaseModel) -> None:
        """Load a model's weights, or say why it cannot be."""
        if model.loaded:
            return
        try:
            await asyncio.to_thread(model.backend)
        except ModelDirectoryError as error:
            raise unprocessable(f"cannot load the model: {error}") from error

    async def live_run(self, run_id: str) -> LiveRun:
        """The run in memory; after a restart it is rebuilt from the state directory."""
        record = self.active_run(run_id)
        known = self._live.get(run_id)
        if known is not None:
            return known
        async with self._live_lock:
            if run_id not in self._live:
                model = self.registry.at(record.model_dir)
                await self.load(model)
                self._live[run_id] = self._bring_to_life(record, model)
            return self._live[run_id]

    def _bring_to_life(self, record: RunRecord, model: BaseModel) -> LiveRun:
        def stored(version: int) -> Policy | None:
            for checkpoint in record.checkpoints:
                if (
                    checkpoint.target == "sampler"
                    and checkpoint.version == version
                    and not checkpoint.expired
                ):
                    return self.checkpoint_policy(checkpoint, model)
            return None

        policies = RunPolicies(record.id, self.settings.kept_versions, stored)
        if record.live_checkpoint is not None:
            policies.publish(self.checkpoint_policy(record.live_checkpoint, model), live=True)
        trainer = RunTrainer(
            record,
            model.backend(),
            self.store,
            self.logbook,
            self.passes,
            slice_tokens=self.settings.slice_tokens,
        )
        return LiveRun(record, model, trainer, policies)

    async def deactivate(self, record: RunRecord) -> None:
        """End a run: nothing of it trains or samples any more; its checkpoints stay."""
        if record.status == "INACTIVE":
            return
        record.status = "INACTIVE"
        await asyncio.to_thread(self.store.save_run, record)
        reason = f"run {record.id} is deactivated; its checkpoints remain available"
        self.training.close_owner(record.id, reason)
        self.decoding.close_owner(record.id, reason)
        live = self._live.pop(record.id, None)
        if live is not None:
            live.policies.close()
        self.logbook.write(record.deployment_id, f"run {record.id} deactivated")

    # -- samplers ------------------------------------------------------------------------------------------

    def sampler_record(self, sampler_id: str) -> SamplerRecord:
        record = self.store.samplers.get(sampler_id)
        if record is None:
            raise not_found(f"no sampler {sampler_id!r} on this server")
        return record

    def sampler_active(self, sampler: SamplerRecord) -> bool:
        if sampler.run_id is None:
            return sampler.status == "ACTIVE"
        run = self.store.runs.get(sampler.run_id)
        return run is not None and run.status == "ACTIVE"

    def active_sampler(self, sampler_id: str) -> SamplerRecord:
        """A sampler that may sample."""
        sampler = self.sampler_record(sampler_id)
        if sampler.run_id is not None:
            self.active_run(sampler.run_id)
        elif sampler.status != "ACTIVE":
            raise unprocessable(f"sampler {sampler_id} is deactivated")
        return sampler

    async def deactivate_sampler(self, sampler: SamplerRecord) -> bool:
        """End a sampler of its own: what it still generates is refused. False where it had ended before."""
        if sampler.run_id is not None:
            raise unprocessable(f"sampler {sampler.id} belongs to run {sampler.run_id}; deactivate the run")
        if sampler.status != "ACTIVE":
            return False
        await asyncio.to_thread(self.store.add_sampler, replace(sampler, status="INACTIVE"))
        self.decoding.close_owner(sampler.id, f"sampler {sampler.id} is deactivated")
        return True

    def paired_sampler(self, run: RunRecord) -> SamplerRecord | None:
        return self.store.samplers.get(run.sampler_id) if run.sampler_id is not None else None

    async def create_sampler(self, wanted: CreateSampler) -> SamplerRecord:
        self.require_session(wanted.session_id)
        if wanted.run_id is not None:
            return await self._pair(wanted, self.active_run(wanted.run_id))
        if (wanted.base_model is None) == (wanted.model_path is None):
            raise unprocessable("a sampler takes exactly one of run_id, base_model and model_path")
        if wanted.model_path is not None:
            origin = self._origin_of(wanted.model_path)
            if origin is None:
                raise unprocessable(
                    f"model_path {wanted.model_path!r} is not a checkpoint of a run of this server"
                )
            name, custom_base = origin.base_model, origin.custom_base
            model = self.registry.at(origin.model_dir)
        else:
            name, custom_base = wanted.base_model or "", False
            model = self.registry.resolve(name)
        await self.load(model)
        context = min(model.max_context, wanted.max_seq_length or model.max_context)
        sampler = self._new_sampler(wanted.session_id, name, model.directory, context, path=wanted.model_path)
        await asyncio.to_thread(self.store.add_sampler, sampler)
        log.info("sampler %s created on %s (custom base: %s)", sampler.id, name, custom_base)
        return sampler

    async def _pair(self, wanted: CreateSampler, run: RunRecord) -> SamplerRecord:
        """The run's sampler; asked for up to twice by the SDK and always the same."""
        known = self.paired_sampler(run)
        if known is not None:
            return known
        sampler = self._new_sampler(
            wanted.session_id, run.base_model, Path(run.model_dir), run.context, run_id=run.id
        )
        run.sampler_id = sampler.id  # at once: a second request must find it

        def enter() -> None:
            self.store.add_sampler(sampler)
            self.store.save_run(run)

        await asyncio.to_thread(enter)
        return sampler

    @staticmethod
    def _new_sampler(
        session_id: str,
        base_model: str,
        directory: Path,
        context: int,
        *,
        run_id: str | None = None,
        path: str | None = None,
    ) -> SamplerRecord:
        return SamplerRecord(
            id=new_id("sampler"),
            session_id=session_id,
            base_model=base_model,
            model_dir=str(directory),
            context=context,
            created_at=now_iso(),
            model_id=new_id("model"),
            deployment_id=new_id("sampling"),
            run_id=run_id,
            model_path=path,
        )

    # -- which weights -------------------------------------------------------------------------------------

    def base_policy(self, model: BaseModel) -> Policy:
        policy = self._base_policies.get(model.directory)
        if policy is None:
            policy = self._base_policies[model.directory] = Policy(
                f"base {model.directory.name}", model.backend()
            )
        return policy

    def path_policy(self, path: str, model: BaseModel) -> Policy:
        """The policy of a checkpoint path; shared by everyone who names the same checkpoint."""
        try:
            _, checkpoint = locate(self.store, path)
        except CheckpointError as error:
            raise unprocessable(str(error)) from error
        if checkpoint is None:
            raise unprocessable(f"X-Checkpoint-Path {path!r} is not a checkpoint of this server")
        run = self.store.runs[checkpoint.run_id]
        if Path(run.model_dir) != model.directory:
            raise unprocessable(f"checkpoint {path} belongs to {run.base_model}, not to this sampler's model")
        return self.checkpoint_policy(checkpoint, model)

    def checkpoint_policy(self, checkpoint: CheckpointRecord, model: BaseModel) -> Policy:
        """The policy of a checkpoint on disk; one object for everyone who wants the same one."""
        known = self._stored_policies.get(checkpoint.id)
        if known is None:
            known = self._stored_policies[checkpoint.id] = Policy(
                f"{checkpoint.run_id}/{checkpoint.name}",
                model.backend(),
                version=checkpoint.version,
                adapter=functools.partial(read_adapter, self.store.checkpoint_directory(checkpoint)),
            )
            while len(self._stored_policies) > self.settings.kept_versions:
                del self._stored_policies[next(iter(self._stored_policies))]
        return known

    async def policy_for(
        self, sampler: SamplerRecord, model: BaseModel, checkpoint_path: str | None, floor: int | None
    ) -> Policy:
        """What a sample is drawn from: a checkpoint path before a version floor, before the live policy."""
        path = checkpoint_path or sampler.model_path
        if path is not None:
            return self.path_policy(path, model)
        if sampler.run_id is None:
            return self.base_policy(model)
        run = await self.live_run(sampler.run_id)
        if floor is not None:
            return await run.policies.wait_for(floor, self.settings.version_wait_seconds)
        return run.policies.live or self.base_policy(model)
