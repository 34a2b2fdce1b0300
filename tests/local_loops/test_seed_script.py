"""The documented loop, as its page has it, against the shipped model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from baseten.loops import (
    AdamParams,
    Datum,
    ModelInput,
    SampledSequence,
    SamplingParams,
    ServiceClient,
    TensorData,
)
from baseten.loops.rl_metrics import compute_logprob_disparity

from engine.local_loops.settings import SHIPPED_MODEL, SHIPPED_MODEL_DIR
from tests.local_loops.server_process import ServerProcess

SCRIPT = Path(__file__).with_name("rl_loop.py.txt")

pytestmark = pytest.mark.skipif(
    not (SHIPPED_MODEL_DIR / "config.json").is_file(), reason="the shipped model is not built"
)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("shipped") / "state") as running:
        assert running.model == SHIPPED_MODEL
        yield running


def test_the_script_of_the_documentation_runs_to_its_end(shipped: ServerProcess, tmp_path: Path) -> None:
    script = tmp_path / "rl_loop.py"
    script.write_text(SCRIPT.read_text())
    ended = subprocess.run(
        [sys.executable, str(script)],
        env=shipped.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "mean reward" in ended.stdout
    assert "over 4 completions" in ended.stdout


def _datum(prompt: list[int], sequence: SampledSequence, advantage: float) -> Datum:
    """As the script builds it, with the mask that the SDK's divergence metrics need besides."""
    assert sequence.logprobs is not None
    length = len(prompt) + len(sequence.tokens)

    def tensor(head: float, tail: list[float]) -> TensorData:
        return TensorData(data=[head] * len(prompt) + tail, dtype="float32", shape=[length])

    return Datum(
        model_input=ModelInput.from_ints(prompt + sequence.tokens),
        loss_fn_inputs={
            "logprobs": tensor(0.0, sequence.logprobs),
            "advantages": tensor(0.0, [advantage] * len(sequence.tokens)),
            "mask": tensor(0.0, [1.0] * len(sequence.tokens)),
        },
    )


async def test_the_same_loop_with_256_rollouts_at_once(shipped: ServerProcess) -> None:
    service = await asyncio.to_thread(ServiceClient, api_key=shipped.key, base_url=shipped.url)
    trainer = await service.create_lora_training_client_async(
        base_model=SHIPPED_MODEL, rank=8, with_sampler=True, ready_timeout=120.0
    )
    sampler = await trainer.save_weights_and_get_sampling_client_async()
    tokenizer = await asyncio.to_thread(trainer.get_tokenizer)
    prompt: list[int] = tokenizer.encode("What is 17 times 24?", add_special_tokens=False)
    rollouts = await asyncio.gather(
        *(
            sampler.sample_async(ModelInput.from_ints(prompt), 1, SamplingParams(max_tokens=8, seed=seed))
            for seed in range(256)
        )
    )
    assert [rollout.policy_version for rollout in rollouts] == [1] * 256
    sequences = [rollout.sequences[0] for rollout in rollouts]
    data = [_datum(prompt, sequence, 1.0 if index % 2 else -1.0) for index, sequence in enumerate(sequences)]
    passed = await (await trainer.forward_backward_async(data, "importance_sampling")).result_async()
    disparity = compute_logprob_disparity(data, [output["logprobs"] for output in passed.loss_fn_outputs])
    assert disparity.n_tokens == sum(len(sequence.tokens) for sequence in sequences)
    assert disparity.kl_sample_train_k3 < 1e-6
    await (await trainer.optim_step_async(AdamParams(learning_rate=1e-3))).result_async()
    later = await trainer.save_weights_and_get_sampling_client_async()
    answer = await later.sample_async(ModelInput.from_ints(prompt), 1, SamplingParams(max_tokens=2))
    assert answer.policy_version == 2
    await sampler.aclose()
    await later.aclose()
    await trainer.aclose()
    await asyncio.to_thread(trainer.close)
