"""Training through the SDK: losses, accumulation, the optimizer, failures."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest
from baseten.loops import (
    AdamParams,
    Datum,
    ModelInput,
    SamplingParams,
    ServiceClient,
    TensorData,
    TrainingClient,
)
from baseten.loops.helpers.datum import attach_reference_logprobs
from baseten.loops.promise_client import RemoteOpError
from baseten.loops.rl_metrics import loops_compute_kl_sample_train

from tests.local_loops.batches import preference, rollout, supervised, tensor
from tests.local_loops.conftest import new_trainer
from tests.local_loops.server_process import ServerProcess
from tests.local_loops.tiny_model import CONTEXT

STEP = AdamParams(learning_rate=1e-2)


def _logprobs(trainer: TrainingClient, data: list[Datum]) -> list[float]:
    """What the trainer's weights say of a batch: a fingerprint of the adapter."""
    outputs = trainer.forward(data).result().loss_fn_outputs
    return [value for output in outputs for value in output["logprobs"].data]


@pytest.mark.parametrize(
    ("loss", "config"),
    [
        ("importance_sampling", None),
        ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
        ("cispo", None),
        ("dro", {"beta": 0.1}),
        ("dppo", {"kl_tau": 1e-2}),
    ],
)
def test_each_policy_loss_in_both_alignments(trainer: TrainingClient, loss: Any, config: dict | None) -> None:
    tokens = [rollout(1, 1.0), rollout(2, -0.5), rollout(3, 0.0)]
    shifted = [rollout(1, 1.0, targets=True), rollout(2, -0.5, targets=True), rollout(3, 0.0, targets=True)]
    by_token = trainer.forward_backward(tokens, loss, config).result()
    by_target = trainer.forward_backward(shifted, loss, config).result()
    assert by_token.loss == pytest.approx(by_target.loss, rel=1e-5)
    assert all(math.isfinite(value) for value in by_token.metrics.values())
    for datum, output, other in zip(tokens, by_token.loss_fn_outputs, by_target.loss_fn_outputs, strict=True):
        own, shift = output["logprobs"], other["logprobs"]
        assert own.shape == [datum.model_input.length]
        assert own.data[1:] == pytest.approx(shift.data, rel=1e-5)
        assert own.data[:4] == [0.0] * 4
    assert by_token.loss_fn_outputs[2]["logprobs"].data == [0.0] * 12
    # The SDK's own metrics accept the outputs of either.
    for data, result in ((tokens, by_token), (shifted, by_target)):
        logprobs = [output["logprobs"] for output in result.loss_fn_outputs]
        assert loops_compute_kl_sample_train(data, logprobs)["optim/train-sample-div/n_action_tokens"] == 16.0
    assert trainer.optim_step(STEP).result().metrics["grad_norm"] > 0  # pyright: ignore[reportOptionalSubscript]


def test_cross_entropy_learns(trainer: TrainingClient) -> None:
    data = [supervised(seed) for seed in range(4)]
    losses = []
    for _ in range(5):
        losses.append(trainer.forward_backward(data).result().loss)
        trainer.optim_step(STEP).result()
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.1
    assert trainer.policy_version == 5


def test_dpo_on_pairs_and_its_helper(trainer: TrainingClient) -> None:
    data = [preference(seed) for seed in range(4)]
    result = trainer.forward_backward(data, "dpo", {"beta": 0.2}).result()
    assert result.metrics["pairs"] == 2.0
    reference = trainer.save_weights_and_get_sampling_client()
    scored = attach_reference_logprobs([supervised(seed) for seed in range(2)], reference)
    at_reference = trainer.forward_backward(scored, "dpo").result()
    # The policy is its own reference, so the margin is nothing but rounding and what the last target adds.
    assert at_reference.loss == pytest.approx(math.log(2), abs=0.5)
    reference.close()


def test_cross_entropy_with_several_targets_per_position(trainer: TrainingClient) -> None:
    length = 5
    datum = Datum(
        model_input=ModelInput.from_ints([1, 2, 3, 4, 5]),
        loss_fn_inputs={
            "target_tokens": TensorData(
                data=[[i, i + 1] for i in range(length)], dtype="int64", shape=[length, 2]
            ),
            "weights": TensorData(data=[0.5, 0.5] * length, dtype="float32", shape=[length, 2]),
        },
    )
    result = trainer.forward_backward([datum]).result()
    assert result.loss_fn_outputs[0]["logprobs"].shape == [length, 2]


def test_sampler_and_trainer_agree(trainer: TrainingClient) -> None:
    trainer.forward_backward([supervised(5)]).result()
    trainer.optim_step(STEP).result()
    sampler = trainer.save_weights_and_get_sampling_client()
    prompt = [7, 8, 9]
    sequences = sampler.sample(ModelInput.from_ints(prompt), 8, SamplingParams(max_tokens=20)).sequences
    sampler.close()
    data = []
    for sequence in sequences:
        assert sequence.logprobs is not None
        tail = len(sequence.tokens)
        inputs = {
            "logprobs": tensor([0.0] * 3 + sequence.logprobs),
            "advantages": tensor([0.0] * 3 + [1.0] * tail),
            "mask": tensor([0.0] * 3 + [1.0] * tail),
        }
        data.append(Datum(model_input=ModelInput.from_ints(prompt + sequence.tokens), loss_fn_inputs=inputs))
    result = trainer.forward(data, "importance_sampling").result()
    metrics = loops_compute_kl_sample_train(data, [output["logprobs"] for output in result.loss_fn_outputs])
    assert metrics["optim/train-sample-div/kl_sample_train_k3"] < 1e-9
    assert metrics["optim/train-sample-div/diff_abs_max"] < 1e-4


def test_gradients_accumulate_to_the_whole_batch(service: ServiceClient) -> None:
    data = [supervised(seed, length=4 + seed) for seed in range(6)]
    together, apart = new_trainer(service), new_trainer(service)
    together.forward_backward(data)
    for part in (data[:1], data[1:4], data[4:]):
        apart.forward_backward(part)
    steps = [client.optim_step(STEP).result().metrics for client in (together, apart)]
    assert steps[0] is not None
    assert steps[1] is not None
    assert steps[0]["tokens"] == steps[1]["tokens"] == sum(datum.model_input.length for datum in data)
    assert steps[0]["grad_norm"] == pytest.approx(steps[1]["grad_norm"], rel=1e-4)
    # Adam divides by the gradient's size: where that is almost nothing, rounding shows in the weights.
    assert _logprobs(together, data) == pytest.approx(_logprobs(apart, data), abs=2e-2)
    together.close()
    apart.close()


def test_forward_leaves_the_gradients_alone(service: ServiceClient) -> None:
    data, other = [supervised(1)], [supervised(2)]
    plain, interleaved = new_trainer(service), new_trainer(service)
    plain.forward_backward(data)
    interleaved.forward(other)
    interleaved.forward_backward(data)
    interleaved.forward(other)
    first, second = (client.optim_step(STEP).result().metrics for client in (plain, interleaved))
    assert first == second
    assert _logprobs(plain, data) == _logprobs(interleaved, data)
    plain.close()
    interleaved.close()


def test_normalisation_can_be_skipped(service: ServiceClient) -> None:
    data = [supervised(3, length=10)]
    mean, total = new_trainer(service), new_trainer(service)
    normal = mean.forward_backward(data).result()
    summed = total.forward_backward(data, loss_fn_config={"skip_token_normalization": True}).result()
    assert (normal.metrics["skip_token_normalization"], summed.metrics["skip_token_normalization"]) == (
        0.0,
        1.0,
    )
    assert summed.loss == pytest.approx(normal.loss * 10, rel=1e-5)
    norms = [client.optim_step(STEP).result().metrics for client in (mean, total)]
    assert norms[1]["grad_norm"] == pytest.approx(norms[0]["grad_norm"] * 10, rel=1e-4)  # pyright: ignore[reportOptionalSubscript]
    mean.close()
    total.close()


def test_top_k_logprobs(trainer: TrainingClient) -> None:
    result = trainer.forward_backward([rollout(1)], "ppo", top_k_logprobs=3).result()
    output = result.loss_fn_outputs[0]
    assert output["top_k_logprobs"].shape == output["top_k_tokens"].shape == [12, 3]
    assert output["top_k_logprobs"].data[:12] == [None] * 12
    active = output["top_k_logprobs"].data[12:]
    assert all(value is not None and value < 0 for value in active)


def test_an_empty_batch_is_no_error(trainer: TrainingClient) -> None:
    result = trainer.forward_backward([]).result()
    assert (result.loss, result.loss_fn_outputs) == (0.0, [])


def test_a_step_without_advantages_changes_nothing(trainer: TrainingClient) -> None:
    data = [supervised(1)]
    before = _logprobs(trainer, data)
    trainer.forward_backward([rollout(1, 0.0)], "ppo").result()
    trainer.optim_step(STEP).result()
    assert _logprobs(trainer, data) == before


def test_tensors_may_be_nested_and_null_where_they_do_not_count(trainer: TrainingClient) -> None:
    flat = rollout(1)
    loose = rollout(1)
    loose.loss_fn_inputs["logprobs"].data[0] = None
    loose.loss_fn_inputs["advantages"] = TensorData(
        data=[[value] for value in flat.loss_fn_inputs["advantages"].data], dtype="float32", shape=[12]
    )
    results = [trainer.forward([datum], "ppo").result().loss for datum in (flat, loose)]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("data", "loss", "config", "told"),
    [
        ([supervised(1)], "nope", None, ("LossConfigError", "loss_fn 'nope' is unknown")),
        ([rollout(1)], "ppo", {"clip": 2}, ("LossConfigError", "loss_fn_config.clip is no key of ppo")),
        ([rollout(1)], "cross_entropy", None, ("DatumError", "data[0]: cross_entropy needs target_tokens")),
        (
            [supervised(1, CONTEXT + 1)],
            "cross_entropy",
            None,
            ("DatumError", "exceed the run's context of 256"),
        ),
    ],
)
def test_a_bad_batch_fails_its_operation(
    trainer: TrainingClient, data: list[Datum], loss: Any, config: dict | None, told: tuple[str, str]
) -> None:
    with pytest.raises(RemoteOpError) as failed:
        trainer.forward_backward(data, loss, config).result()
    assert failed.value.error_class == told[0]
    assert told[1] in str(failed.value)
    # The trainer is as it was.
    assert trainer.forward_backward([supervised(1)]).result().loss > 0


def test_half_a_pair_fails_its_operation(server: ServerProcess, trainer: TrainingClient) -> None:
    """Past the SDK, which refuses it itself."""
    body = {"data": [preference(1).model_dump(mode="json")], "loss_fn": "dpo"}
    with server.client() as client:
        base = f"/trainer/{trainer.run_id}"
        accepted = client.post(f"{base}/forward_backward", json=body)
        answer = client.get(f"{base}/operations/{accepted.json()['operation_id']}").json()
    assert (answer["status"], answer["error_class"]) == ("error", "DatumError")


def test_a_failed_batch_leaves_no_gradients(trainer: TrainingClient) -> None:
    with pytest.raises(RemoteOpError):
        trainer.forward_backward([supervised(1), rollout(1)]).result()
    assert trainer.optim_step(STEP).result().metrics["grad_norm"] == 0.0  # pyright: ignore[reportOptionalSubscript]


def test_images_are_refused(server: ServerProcess, trainer: TrainingClient) -> None:
    with server.client() as client:
        chunk = {"type": "image", "data": "aGk=", "format": "png", "expected_tokens": 2}
        body = {"data": [{"model_input": {"chunks": [chunk]}, "loss_fn_inputs": {}}]}
        base = f"/trainer/{trainer.run_id}"
        accepted = client.post(f"{base}/forward", json=body)
        answer = client.get(f"{base}/operations/{accepted.json()['operation_id']}").json()
    assert answer["status"] == "error"
    assert answer["error_class"] == "DatumError"
    assert "text only" in answer["error"]


def test_an_idempotency_key_is_done_once(server: ServerProcess, trainer: TrainingClient) -> None:
    trainer.forward_backward([supervised(1)]).result()
    body = {"adam_params": STEP.model_dump()}
    with server.client(headers={"Idempotency-Key": "once"}) as client:
        base = f"/trainer/{trainer.run_id}"
        answers = [client.post(f"{base}/optim_step", json=body) for _ in range(3)]
        assert [(answer.status_code, answer.json()) for answer in answers] == [
            (202, {"operation_id": "once", "schema_version": 1})
        ] * 3
        results = [client.get(f"{base}/operations/once").json() for _ in range(2)]
        assert results[0] == results[1]
        assert results[0]["status"] == "done"
        unknown = client.get(f"{base}/operations/never")
        assert unknown.status_code == 404
    assert trainer.policy_version == 1


def test_operations_run_in_the_order_they_came(trainer: TrainingClient) -> None:
    futures = []
    for _ in range(4):
        futures.append(trainer.forward_backward([supervised(1)]))
        futures.append(trainer.optim_step(STEP))
    losses = [futures[index].result().loss for index in range(0, 8, 2)]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    ("op", "body"),
    [
        ("optim_step", {"adam_params": {"learning_rate": -1}}),
        ("init_trainer_server", {"lora_rank": 0}),
        ("save_state", {}),
        ("forward", {"data": "no list"}),
        ("load_state", {"path": ""}),
    ],
)
def test_a_malformed_body_is_refused_at_once(
    server: ServerProcess, trainer: TrainingClient, op: str, body: dict
) -> None:
    with server.client() as client:
        answer = client.post(f"/trainer/{trainer.run_id}/{op}", json=body)
        assert answer.status_code == 422
        assert isinstance(answer.json()["error"], str)
        broken = client.post(f"/trainer/{trainer.run_id}/{op}", content=b"{not json")
        assert broken.status_code == 422


def test_a_batch_as_large_as_the_sdk_sends_is_accepted(
    server: ServerProcess, trainer: TrainingClient
) -> None:
    """24 MiB; its loss is unknown, so that it is read in full and then not computed."""
    datum = supervised(1)
    datum.loss_fn_inputs["padding"] = tensor([1.2345678901234567] * 50_000)
    row = datum.model_dump_json()
    rows = ",".join([row] * (24 * 1024 * 1024 // len(row)))
    with server.client() as client:
        base = f"/trainer/{trainer.run_id}"
        accepted = client.post(f"{base}/forward", content=f'{{"data":[{rows}],"loss_fn":"nope"}}'.encode())
        assert accepted.status_code == 202
        answer = client.get(f"{base}/operations/{accepted.json()['operation_id']}").json()
    assert answer["error_class"] == "LossConfigError"


def test_an_unknown_run_is_final(server: ServerProcess) -> None:
    with server.client() as client:
        for answer in (client.post("/trainer/nope/optim_step", json={}), client.get("/trainer/nope/health")):
            assert answer.status_code == 404
            assert answer.headers["x-baseten-error-source"] == "06"


def test_the_seed_decides_the_adapter(service: ServiceClient) -> None:
    data = [supervised(9)]
    found = []
    for seed in (1, 1, 2):
        client = new_trainer(service, seed=seed)
        client.forward_backward(data)
        client.optim_step(STEP).result()
        found.append(_logprobs(client, data))
        client.close()
    assert found[0] == found[1] != found[2]


def test_unknown_models_are_named_with_what_there_is(service: ServiceClient) -> None:
    with pytest.raises(httpx.HTTPStatusError) as refused:
        new_trainer(service, base_model="Qwen/Qwen3-8B")
    assert refused.value.response.status_code == 422
    assert "no model named 'Qwen/Qwen3-8B'. Available:" in str(refused.value)
    assert "tiny" in str(refused.value)
