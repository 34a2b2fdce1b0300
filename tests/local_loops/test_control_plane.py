"""The control plane: sessions, the management client's models, checkpoints, keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from baseten.client import AsyncManagementClient, ManagementClient
from baseten.client.managementapi import (
    CreateLoopsRunRequest,
    GetLoopsCheckpointsFilesRequest,
    GetLoopsCheckpointsRequest,
    GetLoopsDeploymentMetricsRequest,
    GetLoopsDeploymentsLogsRequest,
    GetLoopsRunsRequest,
    PatchLoopsUserConfigRequest,
    ResponseError,
    ValidateLoopsCheckpointRequest,
)
from baseten.loops import ModelInput, SamplingParams, ServiceClient, TrainingClient
from baseten.loops.models import CheckpointTarget
from baseten.loops.promise_client import RemoteOpError
from baseten.loops.sampling_client import SamplerTerminatedError
from safetensors.numpy import load_file

from tests.local_loops.batches import supervised
from tests.local_loops.conftest import new_trainer
from tests.local_loops.server_process import ServerProcess


@pytest.fixture(scope="module")
def run(service: ServiceClient) -> Iterator[TrainingClient]:
    client = new_trainer(service, name="shown", with_sampler=True)
    client.save_weights_for_sampler("published").result()
    client.save_state("saved").result()
    client.save_weights_for_sampler("saved").result()
    yield client
    client.close()


@pytest.fixture(scope="module")
def management(server: ServerProcess) -> Iterator[ManagementClient]:
    with ManagementClient(api_key=server.key, base_url_override=server.url) as client:
        yield client


def test_the_management_client_reads_everything(
    management: ManagementClient, run: TrainingClient, service: ServiceClient
) -> None:
    api = management.api
    assert run.run_id is not None
    models = {model.model_name: model for model in api.get_loops_capabilities().supported_models}
    assert models["tiny"].max_context_length == 256
    assert api.get_loops_sessions(session_id=service.session_id).session.id == service.session_id
    shown = api.get_loops_runs_run_id(run_id=run.run_id).run
    assert (shown.name, shown.base_model, shown.status.name) == ("shown", "tiny", "ACTIVE")
    assert shown.sampler is not None
    assert shown.deployment_id is not None
    listed = api.get_loops_runs(request=GetLoopsRunsRequest(run_id=run.run_id)).runs
    assert [item.id for item in listed] == [run.run_id]
    assert api.get_loops_runs(request=GetLoopsRunsRequest(base_model="other")).runs == []
    deployments = {item.id: item for item in api.get_loops_deployments().deployments}
    assert deployments[shown.deployment_id].active_run_id == run.run_id
    deployment = api.get_loops_deployments_deployment_id(deployment_id=shown.deployment_id).deployment
    assert deployment.status.name == "RUNNING"
    assert shown.sampler.id in {item.id for item in api.get_loops_samplers().samplers}
    assert api.get_loops_samplers_sampler_id(sampler_id=shown.sampler.id).sampler.status.name == "ACTIVE"
    logs = api.get_loops_deployments_logs(
        deployment_id=shown.deployment_id, request=GetLoopsDeploymentsLogsRequest.model_validate({"limit": 2})
    ).logs
    assert len(logs) == 2
    assert logs[0].timestamp >= logs[1].timestamp
    api.post_loops_deployments_metrics(
        deployment_id=shown.deployment_id, request=GetLoopsDeploymentMetricsRequest()
    )
    assert (
        api.get_loops_deployments_debug_archive_files(deployment_id=shown.deployment_id).presigned_urls == []
    )
    api.patch_loops_user_config(request=PatchLoopsUserConfigRequest(trainer_accelerator_priority=["H100"]))
    assert api.get_loops_user_config().user_config.trainer_accelerator_priority == ["H100"]
    made = api.post_loops_runs(
        request=CreateLoopsRunRequest.model_validate({"session_id": service.session_id, "base_model": "tiny"})
    ).run
    assert made.id != run.run_id


def test_the_management_client_sees_checkpoints(management: ManagementClient, run: TrainingClient) -> None:
    api = management.api
    found = api.get_loops_checkpoints(request=GetLoopsCheckpointsRequest(run_id=run.run_id)).checkpoints
    assert {(item.checkpoint_id, item.target) for item in found} == {
        ("published", "sampler"),
        ("saved", "trainer"),
        ("saved", "sampler"),
    }
    path = f"bt://loops:{run.run_id}/weights/saved"
    by_path = api.get_loops_checkpoints(request=GetLoopsCheckpointsRequest(checkpoint_path=path)).checkpoints
    assert [item.target for item in by_path] == ["trainer"]
    files = api.get_loops_checkpoints_files(
        checkpoint_id=by_path[0].id, request=GetLoopsCheckpointsFilesRequest(page_size=3)
    )
    assert (files.total_count, files.next_page_token, len(files.presigned_urls)) == (4, 3, 3)
    api.post_loops_checkpoints_validate(
        request=ValidateLoopsCheckpointRequest.model_validate({"checkpoint_path": path})
    )
    with pytest.raises(ResponseError):
        api.post_loops_checkpoints_validate(
            request=ValidateLoopsCheckpointRequest.model_validate({"checkpoint_path": path + "-not"})
        )


async def test_the_async_management_client_works_as_well(server: ServerProcess, run: TrainingClient) -> None:
    assert run.run_id is not None
    async with AsyncManagementClient(api_key=server.key, base_url_override=server.url) as client:
        assert (await client.api.get_loops_runs_run_id(run_id=run.run_id)).run.id == run.run_id


def test_a_checkpoint_downloads_in_a_layout_that_peft_reads(run: TrainingClient, tmp_path: Path) -> None:
    done = run.download_checkpoint(
        name="saved", target=CheckpointTarget.trainer, dest_dir=str(tmp_path / "out")
    )
    assert done.file_count == 4
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "optimizer.safetensors",
        "trainer_state.json",
    }
    tensors = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert all(name.endswith(("lora_A.weight", "lora_B.weight")) for name in tensors)
    with pytest.raises(ValueError, match="No checkpoint named 'nope'"):
        run.download_checkpoint(name="nope", dest_dir=str(tmp_path / "other"))


def test_download_urls_are_of_no_use_for_anything_else(run: TrainingClient) -> None:
    files = run.get_checkpoint_archive_url(name="published").presigned_urls
    url = files[0].url
    directory, _, name = url.rpartition("/")
    assert httpx.get(url).status_code == 200
    parts = directory.rsplit("/", 2)
    for wrong in (
        f"{directory}/nope",
        f"{directory}/..%2F..%2Frun.json",
        f"{parts[0]}/{parts[1]}/{'0' * 64}/{name}",
        f"{parts[0]}/ckpt-0000000000/{parts[2]}/{name}",
    ):
        assert httpx.get(wrong).status_code == 404


def test_a_wrong_key_is_refused_in_one_sentence(server: ServerProcess) -> None:
    with pytest.raises(httpx.HTTPStatusError, match=r"401 .* Invalid API key"):
        ServiceClient(api_key="wrong", base_url=server.url)
    assert httpx.get(f"{server.url}/v1/loops/capabilities").json() == {"error": "Invalid API key"}
    for scheme in ("Api-Key", "Bearer", "bearer"):
        headers = {"Authorization": f"{scheme} {server.key}"}
        assert httpx.get(f"{server.url}/v1/loops/capabilities", headers=headers).status_code == 200
    assert (
        httpx.get(f"{server.url}/v1/loops/x", headers={"Authorization": f"Basic {server.key}"}).status_code
        == 401
    )


def test_unknown_paths_are_final_and_in_json(server: ServerProcess) -> None:
    with server.client() as client:
        for answer in (
            client.get("/nowhere"),
            client.put("/v1/loops/sessions"),
            client.get("/v1/loops/runs/none"),
        ):
            assert answer.status_code in {404, 405}
            assert answer.headers["x-baseten-error-source"] == "06"
            assert isinstance(answer.json()["error"], str)


def test_team_and_debug_routes_do_the_same(server: ServerProcess) -> None:
    service = ServiceClient(api_key=server.key, base_url=server.url, team="local")
    assert new_trainer(service, with_sampler=True, scope="team").run_id is not None
    with server.client() as client:
        assert len(client.get("/v1/teams/local/loops/runs").json()["runs"]) >= 1
        assert client.get("/v1/teams/local/loops/samplers").status_code == 200


def test_a_session_of_another_server_is_refused(server: ServerProcess) -> None:
    with server.client() as client:
        for path, body in (("trainers", {"base_model": "tiny"}), ("samplers", {"base_model": "tiny"})):
            answer = client.post(f"/v1/loops/{path}", json={"session_id": "session-0", **body})
            assert answer.status_code == 422
            assert "create a new ServiceClient" in answer.json()["error"]


@pytest.mark.parametrize(
    "body", [{"base_model": "tiny"}, {"base_model": "tiny", "lora_rank": 0}, {"lora_rank": "x"}]
)
def test_incomplete_requests_are_refused(server: ServerProcess, service: ServiceClient, body: dict) -> None:
    known = {"session_id": service.session_id} if "lora_rank" in body else {}
    with server.client() as client:
        answer = client.post("/v1/loops/trainers", json={**known, **body})
        assert answer.status_code == 422
        assert isinstance(answer.json()["error"], str)


def test_a_paired_sampler_is_made_once(
    server: ServerProcess, service: ServiceClient, run: TrainingClient
) -> None:
    body = {"session_id": service.session_id, "run_id": run.run_id}
    with server.client() as client:
        ids = {client.post("/v1/loops/samplers", json=body).json()["sampler"]["id"] for _ in range(2)}
        assert len(ids) == 1
        both = client.post("/v1/loops/samplers", json={"session_id": service.session_id})
        assert both.status_code == 422


def test_a_model_directory_works_as_a_model_name(service: ServiceClient, tiny_model: Path) -> None:
    client = new_trainer(service, base_model=str(tiny_model))
    assert client.base_checkpoint == f"hf://{tiny_model}"
    client.close()
    with pytest.raises(httpx.HTTPStatusError, match="does not exist"):
        new_trainer(service, base_model="/no/such/directory")


def test_a_custom_base_checkpoint_starts_there(service: ServiceClient, tiny_model: Path) -> None:
    client = new_trainer(service, base_checkpoint=f"hf://{tiny_model}")
    assert client.base_checkpoint == f"hf://{tiny_model}"
    client.close()
    with pytest.raises(httpx.HTTPStatusError, match="reads only local directories"):
        new_trainer(service, base_checkpoint="hf://org/repo")


def test_max_seq_len_bounds_the_run(service: ServiceClient) -> None:
    client = new_trainer(service, max_seq_len=10)
    sampler = client.save_weights_and_get_sampling_client()
    sequences = sampler.sample(ModelInput.from_ints([1, 2]), 4).sequences
    assert all(len(sequence.tokens) <= 8 for sequence in sequences)
    with pytest.raises(httpx.HTTPStatusError, match="context is 10 tokens"):
        sampler.sample(ModelInput.from_ints([1] * 11))
    with pytest.raises(RemoteOpError, match="exceed the run's context of 10"):
        client.forward([supervised(1)]).result()
    sampler.close()
    client.close()


def test_a_deactivated_run_neither_trains_nor_samples(
    service: ServiceClient, management: ManagementClient, tmp_path: Path
) -> None:
    client = new_trainer(service)
    assert client.run_id is not None
    sampler = client.save_weights_and_get_sampling_client("kept")
    sampler.sample(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1))
    assert management.api.post_loops_runs_deactivate(run_id=client.run_id).id == client.run_id
    shown = management.api.get_loops_runs_run_id(run_id=client.run_id).run
    assert shown.status.name == "INACTIVE"
    assert shown.sampler is not None
    assert shown.sampler.status.name == "INACTIVE"
    assert shown.deployment_id is not None
    deployment = management.api.get_loops_deployments_deployment_id(
        deployment_id=shown.deployment_id
    ).deployment
    assert (deployment.status.name, deployment.active_run_id) == ("STOPPED", None)
    with pytest.raises(httpx.HTTPStatusError, match=r"422 .* is deactivated"):
        client.forward([supervised(1)])
    with pytest.raises(httpx.HTTPStatusError, match=r"422 .* is deactivated"):
        sampler.sample(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1))
    with pytest.raises(SamplerTerminatedError):
        sampler.ensure_ready(5.0)
    assert client.download_checkpoint(name="kept", dest_dir=str(tmp_path / "kept")).file_count == 2
    standalone = service.create_sampling_client(model_path=f"bt://loops:{client.run_id}/sampler_weights/kept")
    assert standalone.sample(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1)).policy_version == 1
    for closing in (standalone, sampler, client):
        closing.close()
