"""The trainer of one run: its adapter, optimizer and gradient buffer, and the operations on them.

Everything here runs on the compute thread, one operation at a time. An operation is a generator: it yields where
decode steps may come between, and returns an :class:`Outcome`. A failing operation leaves the trainer as it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.local_loops.adam import Adam, AdamParams
from engine.local_loops.checkpoints import (
    CheckpointBatch,
    TrainerState,
    locate,
    read_trainer_state,
    replace_named,
    require_fit,
)
from engine.local_loops.compute.interface import Adapter, Backend, RowScores, ScoreRow
from engine.local_loops.gradient_buffer import GradientBuffer
from engine.local_loops.logbook import Logbook
from engine.local_loops.losses import DatumError, Loss, PreparedDatum, build_loss, mean_loss
from engine.local_loops.policies import Policy
from engine.local_loops.records import CheckpointRecord, RunRecord
from engine.local_loops.state import StateStore
from engine.local_loops.wire import ForwardPass, InitTrainer, LoadState, OptimStep, Publish, SaveState

#: Name of the checkpoint that only a restart reads; it is in no listing.
AUTOSAVE = "autosave"
#: Parameters times tokens of one slice: a few tenths of a second of one core.
SLICE_WORK = 2_000_000_000
MIN_SLICE_TOKENS = 128
#: Tokens that are read from the wire in about the time that one is computed.
PREPARED_PER_COMPUTED = 10


@dataclass(slots=True)
class Outcome:
    """What an operation answers, and the policy version it published, if any."""

    result: dict[str, Any]
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
        *,
        slice_tokens: int,
    ) -> None:
        self._run = run
        self._backend = backend
        self._store = store
        self._logbook = logbook
        # A large model gets smaller slices, so that decoding waits about as long for one.
        self._slice_tokens = min(slice_tokens, max(MIN_SLICE_TOKENS, SLICE_WORK // backend.card.parameters))
        self._adapter: Adapter | None = None
        self._adam = Adam()
        self._buffer = GradientBuffer()
        self._weights: Any = None
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
        self._weights = None

    def _merged(self) -> Any:
        """Effective weights of the adapter as it is now; kept until the adapter changes."""
        if self._weights is None:
            self._weights = self._backend.weights(self._current())
        return self._weights

    def _state(self) -> TrainerState:
        return TrainerState(self._current(), self.step, self._adam.state())

    # -- forward and backward ------------------------------------------------------------------------------

    def forward(self, wanted: ForwardPass) -> Operation:
        """Score a batch; the gradient buffer is left alone."""
        loss, data = yield from self._prepare(wanted)
        weights = self._merged()
        scores: list[RowScores] = []
        for part in self._parts(data, loss.rows_together):
            scores += self._backend.score(weights, _rows(data, part), top_k=wanted.top_k_logprobs)
            yield
        return Outcome(_scored(loss, data, scores, wanted.top_k_logprobs))

    def forward_backward(self, wanted: ForwardPass) -> Operation:
        """Score a batch and add its gradients to the buffer, all of them or, if it fails, none."""
        loss, data = yield from self._prepare(wanted)
        adapter, weights = self._current(), self._merged()
        fresh = self._backend.zero_gradients(adapter)
        scores: list[RowScores] = []
        for part in self._parts(data, loss.rows_together):
            members = data[part.start : part.stop]

            def gradient(indices: Sequence[int], rows: Sequence[RowScores], members=members) -> Sequence[Any]:
                chosen = [members[index] for index in indices]
                return loss.evaluate(chosen, [row.logprobs for row in rows]).gradients

            scores += self._backend.accumulate(
                weights,
                adapter,
                _rows(data, part),
                gradient,
                fresh,
                rows_together=loss.rows_together,
                top_k=wanted.top_k_logprobs,
            )
            yield
        result = loss.evaluate(data, [row.logprobs for row in scores])
        self._buffer.add(fresh, result.tokens, normalise=not loss.config.skip_token_normalization)
        return Outcome(_scored(loss, data, scores, wanted.top_k_logprobs))

    def _prepare(self, wanted: ForwardPass) -> Generator[None, None, tuple[Loss, list[PreparedDatum]]]:
        """Check a batch as a whole before any of it is computed."""
        loss = build_loss(wanted.loss_fn, wanted.loss_fn_config)
        data: list[PreparedDatum] = []
        unyielded = 0
        for index, raw in enumerate(wanted.data):
            data.append(self._datum(loss, index, raw))
            unyielded += len(data[-1].row.tokens)
            if unyielded > self._slice_tokens * PREPARED_PER_COMPUTED:
                unyielded = 0
                yield
        loss.check_batch(data)
        return loss, data

    def _datum(self, loss: Loss, index: int, raw: Any) -> PreparedDatum:
        try:
            tokens = _tokens_of(raw)
            if len(tokens) > self._run.context:
                raise DatumError(f"{len(tokens)} tokens exceed the run's context of {self._run.context}.")
            inputs = raw.get("loss_fn_inputs") or {}
            if not isinstance(inputs, Mapping):
                raise DatumError("loss_fn_inputs must be an object of tensors.")
            datum = loss.prepare(tokens, inputs)
            vocabulary = self._backend.card.vocab_size
            for name, ids in (("model_input", datum.row.tokens), ("target_tokens", datum.row.targets)):
                if ids.size and (
                    int(ids.max()) >= vocabulary or (name == "model_input" and int(ids.min()) < 0)
                ):
                    raise DatumError(f"{name} holds ids outside the model's vocabulary of {vocabulary}.")
            return datum
        except DatumError as error:
            raise DatumError(f"data[{index}]: {error}") from error

    def _parts(self, data: Sequence[PreparedDatum], together: int) -> Iterator[range]:
        """Consecutive rows whose tokens fill one slice of the thread; rows that belong together never part."""
        start = tokens = 0
        for at in range(0, len(data), together):
            size = sum(len(datum.row.tokens) for datum in data[at : at + together])
            if at > start and tokens + size > self._slice_tokens:
                yield range(start, at)
                start, tokens = at, 0
            tokens += size
        if start < len(data):
            yield range(start, len(data))

    # -- the optimizer -------------------------------------------------------------------------------------

    def optim_step(self, wanted: OptimStep) -> Operation:
        """One step of Adam on the accumulated gradients, which are used up whether or not it succeeds."""
        yield
        adapter = self._current()
        buffer, self._buffer = self._buffer, GradientBuffer()
        gradients = buffer.total(self._backend.zero_gradients(adapter))
        params = AdamParams(**wanted.adam_params.model_dump())
        metrics = self._adam.step(adapter.tensors, gradients, params)
        self._weights = None
        self.step += 1
        metrics |= {"tokens": buffer.tokens, "requests": float(buffer.requests), "step": float(self.step)}
        return Outcome({"metrics": _finite_metrics(metrics)})

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
        return Outcome({"step": 0, "lora_rank": wanted.lora_rank})

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
        return Outcome({"step": self.step})

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
        return Outcome({"mode": "full", "path": record.path})

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
            # The trainer's own merged weights, so that publishing costs no second merge.
            weights=self._merged(),
        )
        self._note(f"published version {version} as {wanted.name!r} at step {self.step}")
        return Outcome({"version": version, "path": record.path}, policy, wanted.bump_version)

    def _note(self, message: str) -> None:
        self._logbook.write(self._run.deployment_id, message)


def _tokens_of(raw: Any) -> list[int]:
    """The token ids of a datum's text chunks."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("model_input"), Mapping):
        raise DatumError("a datum must be an object with a model_input.")
    tokens: list[int] = []
    for chunk in raw["model_input"].get("chunks") or []:
        kind = chunk.get("type") if isinstance(chunk, Mapping) else None
        if kind != "encoded_text":
            raise DatumError(
                f"this local server trains on text only; model_input has a chunk of type {kind!r}."
            )
        ids = chunk.get("tokens")
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise DatumError("model_input holds tokens that are no whole numbers.")
        tokens += ids
    return tokens


def _rows(data: Sequence[PreparedDatum], part: range) -> list[ScoreRow]:
    return [data[index].row for index in part]


def _copied(tensors: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, npt.NDArray[np.float32]]:
    return {name: value.copy() for name, value in tensors.items()}


def _expiry(ttl_seconds: int | None) -> float | None:
    return time.time() + ttl_seconds if ttl_seconds is not None else None


def _scored(
    loss: Loss, data: Sequence[PreparedDatum], scores: Sequence[RowScores], top_k: int
) -> dict[str, Any]:
    """The result of a pass: the mean loss, metrics, and per datum its log-probabilities as the datum is aligned."""
    result = loss.evaluate(data, [row.logprobs for row in scores])
    outputs: list[dict[str, Any]] = []
    for datum, row in zip(data, scores, strict=True):
        output = {"logprobs": _tensor(datum.output(row.logprobs))}
        if top_k and row.top_ids is not None and row.top_logprobs is not None:
            inactive = ~(datum.active if datum.active.ndim == 1 else datum.active.any(axis=1))
            values, ids = row.top_logprobs.copy(), row.top_ids.copy()
            values[inactive], ids[inactive] = np.nan, -1
            output["top_k_logprobs"] = _tensor(datum.realign(values, math.nan))
            output["top_k_tokens"] = _tensor(datum.realign(ids, -1))
        outputs.append(output)
    value = mean_loss(result)
    return {
        "loss": value,
        "loss_fn_output_type": loss.name,
        "loss_fn_outputs": outputs,
        "metrics": _finite_metrics({"loss": value, **result.metrics}),
    }


def _tensor(values: npt.NDArray[Any]) -> dict[str, Any]:
    """An array on the wire: flat data, null for NaN."""
    flat = values.reshape(-1).tolist()
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            flat = [value if math.isfinite(value) else None for value in flat]
        return {"data": flat, "dtype": "float32", "shape": list(values.shape)}
    return {"data": flat, "dtype": "int64", "shape": list(values.shape)}


def _finite_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without those that are no number just now: the wire has no NaN."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
