"""Which weights a sample is drawn from, and what saving and loading bring back."""

from __future__ import annotations

from typing import cast

import httpx
import pytest
from baseten.loops import (
    AdamParams,
    Datum,
    ModelInput,
    SamplingClient,
    SamplingParams,
    ServiceClient,
    TrainingClient,
)
from baseten.loops.models import SaveWeightsForSamplerResponse
from baseten.loops.promise_client import RemoteOpError

from engine.local_loops.settings import ServerSettings
from tests.local_loops.batches import supervised
from tests.local_loops.conftest import new_trainer
from tests.local_loops.server_process import ServerProcess

STEP = AdamParams(learning_rate=3e-2)
DATA = [supervised(seed) for seed in range(2)]


def _train(trainer: TrainingClient, steps: int = 1) -> None:
    for _ in range(steps):
        trainer.forward_backward(DATA).result()
        trainer.optim_step(STEP).result()


def _logprobs(trainer: TrainingClient, data: list[Datum] | None = None) -> list[float]:
    outputs = trainer.forward(data or DATA).result().loss_fn_outputs
    return [value for output in outputs for value in output["logprobs"].data]


def _voice(sampler: SamplingClient) -> list[float | None]:
    """What a sampler's weights say of a fixed prompt."""
    return sampler.compute_logprobs(ModelInput.from_ints([3, 1, 4, 1, 5, 9, 2, 6]))


def _version(sampler: SamplingClient) -> int | None:
    return sampler.sample(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1)).policy_version


def test_each_client_keeps_exactly_its_version(trainer: TrainingClient) -> None:
    """Also of publishes under one name, and before the first step, when a version 0 would pin nothing."""
    clients, voices = [], []
    for expected in (1, 2, 3):
        clients.append(trainer.save_weights_and_get_sampling_client("default"))
        voices.append(_voice(clients[-1]))
        assert _version(clients[-1]) == expected
        _train(trainer)
    assert voices[0] != voices[1] != voices[2]
    assert [_voice(client) for client in clients] == voices
    assert [_version(client) for client in clients] == [1, 2, 3]
    for client in clients:
        client.close()


def test_saving_without_publishing_moves_nothing(trainer: TrainingClient) -> None:
    sampler = trainer.save_weights_and_get_sampling_client("live")
    before = _voice(sampler)
    _train(trainer)
    # The SDK annotates the synchronous form with another class than it returns.
    saved = cast(SaveWeightsForSamplerResponse, trainer.save_weights_for_sampler("aside").result())
    assert (saved.version, saved.path) == (2, f"bt://loops:{trainer.run_id}/sampler_weights/aside")
    assert _voice(sampler) == before
    pinned = trainer.create_sampling_client(saved.path)
    assert _version(pinned) == 2
    assert _voice(pinned) != before
    # Its checkpoint goes before the floor that it carries as well.
    _train(trainer)
    trainer.save_weights_and_get_sampling_client("later").close()
    assert _version(pinned) == 2
    sampler.close()
    pinned.close()


def test_a_version_out_of_memory_and_off_the_disk_gives_way_to_a_newer_one(trainer: TrainingClient) -> None:
    kept = ServerSettings.__dataclass_fields__["kept_versions"].default
    named = trainer.save_weights_and_get_sampling_client("named")
    overwritten = trainer.save_weights_and_get_sampling_client("default")
    for _ in range(kept):
        trainer.save_weights_and_get_sampling_client("default").close()
    assert _version(named) == 1  # read back from the disk
    assert _version(overwritten) == 3  # the nearest newer one that is kept
    named.close()
    overwritten.close()


def test_a_version_that_never_comes_is_told_in_the_end(
    server: ServerProcess, trainer: TrainingClient
) -> None:
    sampler = trainer.save_weights_and_get_sampling_client()
    never = SamplingClient(
        base_model="tiny",
        deployment=sampler._deployment,
        api_key=server.key,
        run_id=trainer.run_id,
        min_policy_version=99,
        ready_timeout=120.0,
    )
    with pytest.raises(
        httpx.HTTPStatusError, match=r"500 .* version 99 .* did not become live within .*\(live: 1\)"
    ):
        _version(never)
    never.close()
    sampler.close()


def test_loading_weights_only_starts_the_optimizer_over(trainer: TrainingClient) -> None:
    _train(trainer, 2)
    path = trainer.save_state("two").result().path
    assert path == f"bt://loops:{trainer.run_id}/weights/two"
    reference = _logprobs(trainer)
    _train(trainer, 2)
    assert trainer.load_state(path).result().step == 0
    assert trainer.policy_version == 0
    assert _logprobs(trainer) == reference


def test_resuming_with_the_optimizer_goes_on_as_if_nothing_had_happened(
    service: ServiceClient, trainer: TrainingClient
) -> None:
    _train(trainer, 2)
    path = trainer.save_state("resume").result().path
    _train(trainer, 2)
    expected = _logprobs(trainer)
    resumed = service.create_training_client_from_state_with_optimizer(path)
    assert resumed.run_id != trainer.run_id
    assert resumed.policy_version == 2
    _train(resumed, 2)
    assert _logprobs(resumed) == expected
    weights_only = service.create_training_client_from_state(path)
    assert weights_only.policy_version == 0
    _train(weights_only, 2)
    assert _logprobs(weights_only) != expected
    # The version-0 trap: published at step 0, and still pinned.
    sampler = weights_only.save_weights_and_get_sampling_client()
    assert _version(sampler) == 1
    for client in (sampler, weights_only, resumed):
        client.close()


def test_sampler_weights_can_be_trained_on(trainer: TrainingClient) -> None:
    _train(trainer)
    published = trainer.save_weights_for_sampler("weights").result().path
    reference = _logprobs(trainer)
    _train(trainer)
    trainer.load_state(published).result()
    assert _logprobs(trainer) == reference
    with pytest.raises(RemoteOpError, match="weights only, no optimizer"):
        trainer.load_state_with_optimizer(published).result()


def test_what_cannot_be_loaded_is_told(service: ServiceClient, trainer: TrainingClient) -> None:
    for path, sentence in (
        (f"bt://loops:{trainer.run_id}/weights/nope", "No Loops checkpoint found"),
        ("relative/path", "neither bt://"),
        ("/no/such/directory", "does not exist"),
    ):
        with pytest.raises(RemoteOpError, match=sentence):
            trainer.load_state(path).result()
    with pytest.raises(ValueError, match="No Loops checkpoint found"):
        service.create_training_client_from_state(f"bt://loops:{trainer.run_id}/weights/nope")
    with pytest.raises(ValueError, match="No Loops checkpoint found"):
        service.create_sampling_client(model_path=f"bt://loops:{trainer.run_id}/sampler_weights/nope")
    with pytest.raises(httpx.HTTPStatusError, match="No Loops checkpoint found"):
        trainer.create_sampling_client(f"bt://loops:{trainer.run_id}/sampler_weights/nope")


def test_a_local_directory_can_be_loaded(
    trainer: TrainingClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _train(trainer)
    trainer.save_state("out").result()
    reference = _logprobs(trainer)
    directory = tmp_path_factory.mktemp("download") / "checkpoint"
    trainer.download_checkpoint(name="out", dest_dir=str(directory))
    _train(trainer)
    assert trainer.load_state_with_optimizer(f"file://{directory}").result().step == 1
    assert _logprobs(trainer) == reference


def test_another_rank_comes_with_the_checkpoint(service: ServiceClient, trainer: TrainingClient) -> None:
    path = trainer.save_state("rank-4").result().path
    other = new_trainer(service, rank=2)
    other.load_state(path).result()
    saved = other.save_state("again").result()
    listed = {checkpoint.checkpoint_id: checkpoint for checkpoint in other.list_checkpoints()}
    assert listed["again"].lora_adapter_config.rank == 4
    assert saved.mode
    other.close()


def test_a_name_is_saved_over(trainer: TrainingClient) -> None:
    first = trainer.save_state("same").result()
    _train(trainer)
    second = trainer.save_state("same").result()
    assert first.path == second.path
    assert [item.checkpoint_id for item in trainer.list_checkpoints()] == ["same"]
    assert trainer.load_state_with_optimizer(second.path).result().step == 1
