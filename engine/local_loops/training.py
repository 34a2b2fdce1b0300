"""The trainer of one run: its adapter, optimizer and gradient buffer, and the operations on them.

Everything here runs on the training thread, one operation at a time. An operation is a generator: it yields where
another run's may come between, and returns an :class:`Outcome`. A failing operation leaves the trainer as it was.
Passes over a batch are computed in a process of their own.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.local_loops.adam import Adam, AdamParams
from engine.local_loops.answers import encode_result, finite_metrics
from engine.local_loops.checkpoints import (
    CheckpointBatch,
    TrainerState,
    locate,
    read_trainer_state,
    replace_named,
    require_fit,
)
from engine.local_loops.compute.interface import Adapter, Backend
from engine.local_loops.gradient_buffer import GradientBuffer
from engine.local_loops.logbook import Logbook
from engine.local_loops.pass_messages import Pass
from engine.local_loops.pass_process import PassProcess
from engine.local_loops.policies import Policy
from engine.local_loops.records import CheckpointRecord, RunRecord
from engine.local_loops.state import StateStore
from engine.local_loops.wire import ForwardPass, InitTrainer, LoadState, OptimStep, Publish, SaveState

#: Name of the checkpoint that only a restart reads; it is in no listing.
AUTOSAVE = "autosave"
#: Every adapter that passes are computed on has a number of its own, over all runs of this process.
_ADAPTER_KEYS = itertools.count(1)


@dataclass(slots=True)
class Outcome:
    """An operation's encoded answer, and the policy version it published, if any."""

    answer: bytes
    published: Policy | None = None
    live: bool = False


Operation = Generator[None, None, Outcome]


class RunTrainer:
    """Adapter, optimizer and gradients of a run. ``step`` may be read from any thread."""

    def __init__(
        self,
        run: RunRecord,
        backend: Backend,
        store: StateStore,
        logbook: Logbook,
        passes: PassProcess,
        *,
        slice_tokens: int,
    ) -> None:
        self._run = run
        self._backend = backend
        self._store = store
        self._logbook = logbook
        self._passes = passes
        self._slice_tokens = slice_tokens
        self._adapter: Adapter | None = None
        self._adam = Adam()
        self._buffer = GradientBuffer()
        self._adapter_key = 0
        self.step = run.autosave.step if run.autosave is not None else 0

    # -- state ---------------------------------------------------------------------------------------------

    def _current(self) -> Adapter:
        """The adapter; after a restart, or before the first reset, it is made or read here."""
        if self._adapter is None:
            if self._run.autosave is not None:
                directory = self._store.checkpoint_directory(self._run.autosave)
                self._adopt(read_trainer_state(directory, with_optimizer=True))
            else:
                self._adopt(TrainerState(self._fresh(self._run.lora_rank), 0, {}))
        assert self._adapter is not None
        return self._adapter

    def _fresh(self, rank: int) -> Adapter:
        return self._backend.new_adapter(rank, self._run.seed)

    def _adopt(self, state: TrainerState) -> None:
        self._adapter = state.adapter
        self._adam = Adam.from_state(state.optimizer) if state.optimizer else Adam()
        self.step = state.step
        self._buffer = GradientBuffer()
        self._adapter_key = next(_ADAPTER_KEYS)

    def _state(self) -> TrainerState:
        return TrainerState(self._current(), self.step, self._adam.state())

    # -- forward and backward ------------------------------------------------------------------------------

    def forward(self, wanted: ForwardPass) -> Operation:
        """Score a batch; the gradient buffer is left alone."""
        result = yield from self._passes.compute(self._pass(wanted, backward=False))
        return Outcome(result.answer)

    def forward_backward(self, wanted: ForwardPass) -> Operation:
        """Score a batch and add its gradients to the buffer, all of them or, if it fails, none."""
        result = yield from self._passes.compute(self._pass(wanted, backward=True))
        assert result.gradients is not None
        self._buffer.add(result.gradients, result.tokens, normalise=result.normalise)
        return Outcome(result.answer)

    def _pass(self, wanted: ForwardPass, *, backward: bool) -> Pass:
        return Pass(
            directory=self._backend.card.directory,
            adapter=self._current(),
            adapter_key=self._adapter_key,
            data=wanted.data,
            loss_fn=wanted.loss_fn,
            loss_fn_config=wanted.loss_fn_config,
            top_k=wanted.top_k_logprobs,
            backward=backward,
            context=self._run.context,
            slice_tokens=self._slice_tokens,
        )

    # -- the optimizer -------------------------------------------------------------------------------------

    def optim_step(self, wanted: OptimStep) -> Operation:
        """One step of Adam on the accumulated gradients, which are used up whether or not it succeeds."""
        yield
        adapter = self._current()
        buffer, self._buffer = self._buffer, GradientBuffer()
        gradients = buffer.total(self._backend.zero_gradients(adapter))
        params = AdamParams(**wanted.adam_params.model_dump())
        metrics = self._adam.step(adapter.tensors, gradients, params)
        self._adapter_key = next(_ADAPTER_KEYS)
        self.step += 1
        metrics |= {"tokens": buffer.tokens, "requests": float(buffer.requests), "step": float(self.step)}
        return Outcome(encode_result({"metrics": finite_metrics(metrics)}))

    # -- reset, load, save ---------------------------------------------------------------------------------

    def init_trainer_server(self, wanted: InitTrainer) -> Operation:
        """Start over from a fresh adapter; the SDK asks for this whenever a TrainingClient is made."""
        yield
        self._adopt(TrainerState(self._fresh(wanted.lora_rank), 0, {}))
        with self._store.lock:
            changed = self._run.autosave is not None or self._run.lora_rank != wanted.lora_rank
            self._run.autosave, self._run.lora_rank = None, wanted.lora_rank
            if changed:
                self._store.save_run(self._run)
        self._note(f"trainer reset, LoRA rank {wanted.lora_rank}")
        return Outcome(encode_result({"step": 0, "lora_rank": wanted.lora_rank}))

    def load_state(self, wanted: LoadState) -> Operation:
        """Weights only; the optimizer and the step start over."""
        return self._load(wanted.path, with_optimizer=False)

    def load_state_with_optimizer(self, wanted: LoadState) -> Operation:
        """Weights, optimizer and step."""
        return self._load(wanted.path, with_optimizer=True)

    def _load(self, path: str, *, with_optimizer: bool) -> Operation:
        yield
        directory, _ = locate(self._store, path)
        state = read_trainer_state(directory, with_optimizer=with_optimizer)
        require_fit(state.adapter, self._fresh(state.adapter.rank), self._run.base_model)
        self._adopt(state)
        self._run.lora_rank = state.adapter.rank
        with CheckpointBatch(self._store, self._run) as batch:
            self._autosave(batch)
        self._note(f"loaded {path} at step {self.step}" + ("" if with_optimizer else " (weights only)"))
        return Outcome(encode_result({"step": self.step}))

    def save_state(self, wanted: SaveState) -> Operation:
        """A checkpoint that training can be resumed from."""
        yield
        with CheckpointBatch(self._store, self._run) as batch:
            record = batch.write(
                self._state(),
                target="trainer",
                name=wanted.name,
                expires_at=_expiry(wanted.ttl_seconds),
                enter=self._enter_saved,
                flush=True,
            )
        self._note(f"saved {record.path} at step {self.step}")
        return Outcome(encode_result({"mode": "full", "path": record.path}))

    def _enter_saved(self, record: CheckpointRecord) -> None:
        replace_named(self._run, record)
        self._run.autosave = record

    def _autosave(self, batch: CheckpointBatch) -> None:
        """Keep the trainer's state for a restart, out of every listing."""

        def enter(record: CheckpointRecord) -> None:
            self._run.autosave = record

        batch.write(self._state(), target="trainer", name=AUTOSAVE, enter=enter)

    def save_weights_for_sampler(self, wanted: Publish) -> Operation:
        """Publish the adapter under the next version. ``bump_version`` makes it the paired sampler's live policy.

        Versions count publishes, not optimizer steps: the SDK takes version 0 for "no adapter yet" and would drop
        the pin of a client published before the first step.
        """
        yield
        adapter = self._current()
        version = self._run.publish_count + 1
        state = TrainerState(Adapter(adapter.rank, adapter.alpha, _copied(adapter.tensors)), self.step, {})

        def enter(record: CheckpointRecord) -> None:
            self._run.publish_count = version
            replace_named(self._run, record)
            if wanted.bump_version:
                self._run.live_version, self._run.live_checkpoint = version, record

        with CheckpointBatch(self._store, self._run) as batch:
            record = batch.write(
                state,
                target="sampler",
                name=wanted.name,
                version=version,
                expires_at=_expiry(wanted.ttl_seconds),
                enter=enter,
            )
            self._autosave(batch)
        policy = Policy(
            f"{self._run.id}/v{version}",
            self._backend,
            version=version,
            adapter=lambda: state.adapter,
            # Merged here, so that decoding need not wait for it.
            weights=self._backend.weights(state.adapter),
        )
        self._note(f"published version {version} as {wanted.name!r} at step {self.step}")
        return Outcome(encode_result({"version": version, "path": record.path}), policy, wanted.bump_version)

    def _note(self, message: str) -> None:
        self._logbook.write(self._run.deployment_id, message)


def _copied(tensors: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, npt.NDArray[np.float32]]:
    return {name: value.copy() for name, value in tensors.items()}


def _expiry(ttl_seconds: int | None) -> float | None:
    return time.time() + ttl_seconds if ttl_seconds is not None else None
