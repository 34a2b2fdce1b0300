"""What is asked of Loops from outside a run, of a real server and of one with odd manners."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from engine.loops import ending
from engine.loops.deploying import (
    DeployChoice,
    choice_problem,
    deployment_request,
    name_problem,
    usable_name,
)
from engine.loops.ending import deactivate
from engine.loops.errors import LoopsError, LoopsUnavailable
from engine.loops.management import InstanceType, LoopsManagement, OutcomeUnknown, UnknownToLoops
from engine.loops.pinned import PinnedSampler
from engine.loops.sampling import SamplingSettings
from engine.loops.serving import ServedPolicy
from tests.local_loops.conftest import new_trainer
from tests.local_loops.server_process import ServerProcess
from tests.loops_admin.odd_server import Answer, Asked, OddServer

if TYPE_CHECKING:
    from baseten.loops import ServiceClient, TrainingClient

CHOICE = DeployChoice("my-model", "H100:1", "hf_access_token")


def loops_run(state: str) -> dict[str, Any]:
    return {
        "run": {
            "id": "r1",
            "session_id": "s1",
            "name": "n",
            "base_model": "m",
            "base_url": "http://127.0.0.1:1",
            "created_at": datetime.now(UTC).isoformat(),
            "status": {"name": state},
            "user": {"email": "a@b"},
        }
    }


# -- runs and checkpoints ------------------------------------------------------------------------------------------


async def test_runs_and_checkpoints_are_listed(server: ServerProcess, trained: TrainingClient) -> None:
    assert trained.run_id is not None
    async with LoopsManagement(server.url, server.key) as loops:
        run = await loops.run(trained.run_id)
        assert (run.id, run.base_model, run.state, run.active) == (trained.run_id, "tiny", "ACTIVE", True)
        assert trained.run_id in [found.id for found in await loops.runs()]
        found = {item.target: item for item in await loops.checkpoints(trained.run_id)}
        assert set(found) == {"trainer", "sampler"}
        sampler = found["sampler"]
        assert sampler.address == f"bt://loops:{trained.run_id}/sampler_weights/step-000001"
        assert await loops.checkpoint(sampler.address) == sampler
        files = await loops.files(sampler.id)
        assert sum(file.size_bytes for file in files) == sampler.size_bytes
        assert (await loops.source(sampler.id)).kind == "s3"
        assert [kind.id for kind in await loops.instance_types()] == ["local"]


async def test_what_is_not_there_is_told_in_one_sentence(server: ServerProcess) -> None:
    async with LoopsManagement(server.url, server.key) as loops:
        with pytest.raises(UnknownToLoops, match=r"knows no run run-none$"):
            await loops.run("run-none")
        with pytest.raises(UnknownToLoops, match=r"has no checkpoint bt://loops:run-none/weights/a$"):
            await loops.checkpoint("bt://loops:run-none/weights/a")
    async with LoopsManagement(server.url, "wrong") as loops:
        with pytest.raises(LoopsError, match="refused the API key while listing its runs"):
            await loops.runs()
    async with LoopsManagement("http://127.0.0.1:9", "k") as loops:
        with pytest.raises(LoopsError, match=r"nothing answers at http://127.0.0.1:9 while listing its runs"):
            await loops.runs()


async def test_a_question_is_repeated_where_an_answer_may_still_come(odd: OddServer) -> None:
    answers = iter([Answer.of({}, 502), Answer.of({"run": loops_run("ACTIVE")["run"]})])
    odd.answer = lambda _: next(answers)
    async with LoopsManagement(odd.url, "k") as loops:
        assert (await loops.run("r1")).state == "ACTIVE"
    assert len(odd.asked) == 2


# -- ending --------------------------------------------------------------------------------------------------------


async def test_a_run_is_ended_once_and_stays_ended(server: ServerProcess, service: ServiceClient) -> None:
    client = new_trainer(service)
    assert client.run_id is not None
    for _ in range(2):
        assert (await deactivate(server.url, server.key, client.run_id)).run.state == "INACTIVE"
    client.close()
    with pytest.raises(UnknownToLoops):
        await deactivate(server.url, server.key, "run-none")


async def test_an_ending_is_watched_until_it_is_true(odd: OddServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(ending, "SAY_SECONDS", 0.0)
    states = iter(["ACTIVE", "ACTIVE", "ACTIVE", "INACTIVE"])

    def answer(asked: Asked) -> Answer:
        if asked.method == "POST":
            return Answer.of({"id": "r1", "base_model": "m", "user": {"email": "a@b"}})
        return Answer.of(loops_run(next(states)))

    odd.answer = answer
    said: list[str] = []
    assert (await deactivate(odd.url, "k", "r1", told=said.append)).run.state == "INACTIVE"
    assert said[0] == "Deactivating r1 …"
    assert ["still ACTIVE" in line for line in said[1:]] == [True, True]
    assert [asked.method for asked in odd.asked].count("POST") == 1


async def test_an_ending_that_never_comes_is_told_as_still_billing(odd: OddServer) -> None:
    odd.answer = lambda asked: (
        Answer.of({"id": "r1", "base_model": "m", "user": {"email": "a@b"}})
        if asked.method == "POST"
        else Answer.of(loops_run("ACTIVE"))
    )
    with pytest.raises(LoopsError, match="r1 could not be deactivated and may still bill: it is still not"):
        await deactivate(odd.url, "k", "r1", timeout=0.5)


# -- samplers ------------------------------------------------------------------------------------------------------


async def test_a_sampler_of_its_own_is_ended_when_it_is_closed(
    server: ServerProcess, trained: TrainingClient
) -> None:
    sampler = await PinnedSampler.open(
        url=server.url,
        api_key=server.key,
        settings=SamplingSettings(),
        model_path=f"bt://loops:{trained.run_id}/sampler_weights/step-000001",
    )
    await sampler.sample([1, 2, 3], max_tokens=2, seed=1, affinity_key=None)
    assert sampler.has_deployment
    assert await sampler.close() is None
    with server.client() as client:
        shown = client.get(f"/v1/loops/samplers/{sampler.sampler_id}").json()["sampler"]
        assert shown["status"]["name"] == "INACTIVE"
        refused = client.post(f"/sampler/{sampler.sampler_id}/sample", json={"prompt": [1]})
    assert (refused.status_code, refused.json()["error"]) == (
        422,
        f"sampler {sampler.sampler_id} is deactivated",
    )


async def test_what_a_sampler_still_generates_is_refused_when_it_ends(
    server: ServerProcess, service: ServiceClient
) -> None:
    async with httpx.AsyncClient(
        base_url=server.url, headers={"Authorization": f"Api-Key {server.key}"}, timeout=60.0
    ) as client:
        session = {"session_id": service.session_id, "base_model": "tiny"}
        made = (await client.post("/v1/loops/samplers", json=session)).json()["sampler"]
        body = {"prompt": [1, 2], "n": 512, "max_tokens": 250, "seed": 1}
        running = asyncio.create_task(client.post(f"/sampler/{made['id']}/sample", json=body))
        async with asyncio.timeout(120):
            while not (await client.get("/debug/stats")).json()["live"]:
                assert not running.done()
        async with LoopsManagement(server.url, server.key) as loops:
            await loops.deactivate_sampler(made["model_id"], made["deployment_id"])
        refused = await running
    assert refused.json()["error"] == f"sampler {made['id']} is deactivated"


async def test_a_sampler_that_cannot_be_served_from_is_ended(
    server: ServerProcess, trained: TrainingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(*_: object) -> None:
        raise TimeoutError("it is not ready")

    monkeypatch.setattr(ServedPolicy, "serve", serve)
    with pytest.raises(LoopsUnavailable, match="it is not ready"):
        await PinnedSampler.open(
            url=server.url, api_key=server.key, settings=SamplingSettings(), base_model="tiny"
        )
    async with LoopsManagement(server.url, server.key) as loops:
        assert (await loops.samplers())[0].state == "INACTIVE"


async def test_a_sampler_that_cannot_be_ended_says_what_bills(odd: OddServer, server: ServerProcess) -> None:
    sampler = await PinnedSampler.open(
        url=server.url, api_key=server.key, settings=SamplingSettings(), base_model="tiny"
    )
    sampler._url = odd.url
    odd.answer = lambda _: Answer.of({"error": "not now"}, 409)
    said = await sampler.close()
    assert said is not None
    assert sampler.sampler_id in said
    assert "may still bill" in said


# -- deployments ---------------------------------------------------------------------------------------------------


async def test_a_deployment_is_asked_for_once(odd: OddServer) -> None:
    odd.answer = lambda _: Answer.of({"model_id": "m1", "deployment_id": "d1"})
    async with LoopsManagement(odd.url, "k") as loops:
        made = await loops.deploy(deployment_request(["c1"], CHOICE))
    assert (made.model_id, made.deployment_id) == ("m1", "d1")
    (asked,) = odd.asked
    assert (asked.method, asked.path) == ("POST", "/v1/loops/checkpoints/deploy")
    assert asked.json == {
        "checkpoint_ids": ["c1"],
        "model_name": "my-model",
        "instance_type_id": "H100:1",
        "hf_secret_name": "hf_access_token",
    }
    assert asked.headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(silent=True),
        Answer.of({"error": "bad gateway"}, 502),
        Answer.of({"model_id": "m1", "deployment_id": "d1"}),
        Answer.of({"unexpected": 1}),
    ],
    ids=["no answer", "gateway", "cut off", "no names"],
)
async def test_an_unknown_outcome_is_never_tried_again(odd: OddServer, answer: Answer) -> None:
    if b"d1" in answer.body:
        answer.cut = 5
    odd.answer = lambda _: answer
    async with LoopsManagement(odd.url, "k", timeout=0.5) as loops:
        with pytest.raises(OutcomeUnknown):
            await loops.deploy(deployment_request(["c1"], CHOICE))
    assert len(odd.asked) == 1


async def test_what_was_refused_or_never_sent_is_no_unknown_outcome(
    server: ServerProcess, trained: TrainingClient
) -> None:
    assert trained.run_id is not None
    async with LoopsManagement(server.url, server.key) as loops:
        found = {item.target: item.id for item in await loops.checkpoints(trained.run_id)}
        for ids, said in (
            ([found["sampler"]], "makes no inference deployments"),
            ([found["trainer"]], "is a trainer's state"),
            (["ckpt-none"], "no checkpoint 'ckpt-none'"),
            ([], "checkpoint_ids"),
        ):
            with pytest.raises(LoopsError, match=said) as refused:
                await loops.deploy(deployment_request(ids, CHOICE))
            assert not isinstance(refused.value, OutcomeUnknown)
    async with LoopsManagement("http://127.0.0.1:9", "k") as loops:
        with pytest.raises(LoopsError, match="nothing answers") as refused:
            await loops.deploy(deployment_request(["c1"], CHOICE))
        assert not isinstance(refused.value, OutcomeUnknown)


def test_a_choice_is_looked_at_before_anything_is_sent() -> None:
    assert choice_problem(CHOICE) is None
    assert "model name" in (choice_problem(DeployChoice("a b", "x")) or "")
    assert "secret name" in (choice_problem(DeployChoice("a", "x", "hf_$ecret")) or "")
    assert choice_problem(DeployChoice("a", "")) is None  # it may still be asked for
    kinds = [InstanceType("H100:1", "one", 1, "H100"), InstanceType("cpu", "none", 0, None)]
    assert choice_problem(DeployChoice("a", "H100:1"), kinds) is None
    said = choice_problem(DeployChoice("a", "h100"), kinds)
    assert said == "there is no instance type 'h100' (did you mean 'H100:1'?); there are H100:1 (1 x H100)"
    for name in ("my run", "-x", "ä", "", "n" * 120):
        assert name_problem(name) is not None
        assert name_problem(usable_name(name)) is None
