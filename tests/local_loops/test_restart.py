"""What survives the end of the server, asked for or not."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from baseten.loops import (
    AdamParams,
    ModelInput,
    SamplingClient,
    SamplingParams,
    ServiceClient,
    TrainingClient,
)

from tests.local_loops.batches import supervised
from tests.local_loops.conftest import new_trainer
from tests.local_loops.server_process import ServerProcess

STEP = AdamParams(learning_rate=3e-2)
DATA = [supervised(1)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _logprobs(trainer: TrainingClient) -> list[float]:
    return trainer.forward(DATA).result().loss_fn_outputs[0]["logprobs"].data


def _train(trainer: TrainingClient) -> None:
    trainer.forward_backward(DATA).result()
    trainer.optim_step(STEP).result()


def _voice(sampler: SamplingClient) -> list[float | None]:
    return sampler.compute_logprobs(ModelInput.from_ints([3, 1, 4, 1, 5]))


@pytest.mark.parametrize("end", [ServerProcess.stop, ServerProcess.kill], ids=["stopped", "killed"])
def test_a_run_is_sampled_from_and_trained_on_after_a_restart(
    tmp_path: Path, tiny_model: Path, end: Callable[[ServerProcess], object]
) -> None:
    """With the clients of before: same port, same key."""
    server = ServerProcess(tmp_path / "state", {"tiny": tiny_model}, port=_free_port()).start()
    service = ServiceClient(api_key=server.key, base_url=server.url)
    trainer = new_trainer(service)
    _train(trainer)
    named = trainer.save_weights_and_get_sampling_client("named")
    _train(trainer)
    live = trainer.save_weights_and_get_sampling_client("default")
    trainer.save_weights_for_sampler("default").result()  # saves over the live one's name
    state, voices, step = _logprobs(trainer), [_voice(named), _voice(live)], trainer.policy_version
    _train(trainer)  # after the last publish: a restart does not bring it back
    ended = trainer.run_id
    end(server)
    # A checkpoint that was being written when it happened.
    directory = tmp_path / "state" / "runs" / str(ended) / "checkpoints"
    (directory / ".tmp-half").mkdir()
    shutil.copytree(
        next(path for path in directory.iterdir() if path.name.startswith("ckpt")), directory / "ckpt-lost"
    )

    server.start()
    assert not (directory / ".tmp-half").exists()
    assert not (directory / "ckpt-lost").exists()
    assert [_voice(named), _voice(live)] == voices
    assert live.sample(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1)).policy_version == 2
    assert trainer.policy_version == step
    assert _logprobs(trainer) == state
    _train(trainer)
    published = trainer.save_weights_and_get_sampling_client("default")
    assert published.sample(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1)).policy_version == 4
    # The session survives as well: the same ServiceClient makes another run.
    other = new_trainer(service)
    for client in (named, live, published, trainer, other):
        client.close()
    server.stop()


def test_a_deactivated_run_stays_deactivated(tmp_path: Path, tiny_model: Path) -> None:
    server = ServerProcess(tmp_path / "state", {"tiny": tiny_model}).start()
    service = ServiceClient(api_key=server.key, base_url=server.url)
    trainer = new_trainer(service)
    with server.client() as client:
        client.post(f"/v1/loops/runs/{trainer.run_id}/deactivate").raise_for_status()
    trainer.close()
    server.stop()
    with server, server.client() as client:
        shown = client.get(f"/v1/loops/runs/{trainer.run_id}").json()["run"]
        assert shown["status"] == {"name": "INACTIVE"}
        # The address is that of the server now.
        assert shown["base_url"].startswith(server.url)


def test_a_damaged_state_directory_is_told_in_one_sentence(tmp_path: Path, tiny_model: Path) -> None:
    from tests.local_loops.server_process import DidNotStart

    state = tmp_path / "state"
    state.mkdir()
    (state / "server.json").write_text("{")
    with pytest.raises(DidNotStart) as refused:
        ServerProcess(state, {"tiny": tiny_model}).start()
    assert refused.value.status == 1
    assert "cannot be read" in refused.value.stderr
    assert "Traceback" not in refused.value.stderr
