"""What is asked of Loops from outside a run: its runs and their end, its checkpoints, its deployments.

Everything goes through the management client of ``baseten``. A question and an ending may be repeated and are, a few
times; a deployment is asked for once, because Baseten makes another one each time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from engine.loops.errors import LoopsError, explain, status_of
from engine.loops.sdk import quiet_sdk

log = logging.getLogger(__name__)

REQUEST_SECONDS = 30.0
TRIES = 4
ACTIVE, INACTIVE = "ACTIVE", "INACTIVE"
#: Answers that say nothing about the next try.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class UnknownToLoops(LoopsError):
    """Loops knows nothing by that id or address."""


class OutcomeUnknown(LoopsError):
    """A request that must not be repeated was sent and not answered: it may or may not have been carried out."""


@dataclass(frozen=True, slots=True)
class LoopsRunInfo:
    """A Loops run as Loops says it is. ``created_at`` in Unix seconds."""

    id: str
    name: str
    base_model: str
    state: str  # "ACTIVE" | "INACTIVE"
    created_at: float
    deployment_id: str | None = None  # None: it runs on the serverless pool
    owner: str | None = None

    @property
    def active(self) -> bool:
        return self.state != INACTIVE


@dataclass(frozen=True, slots=True)
class LoopsSampler:
    """A sampler that belongs to no run: somebody opened it to use fixed weights."""

    id: str
    base_model: str
    state: str  # "ACTIVE", "INACTIVE", "DEPLOYING" …
    created_at: float
    model_id: str
    deployment_id: str

    @property
    def active(self) -> bool:
        return self.state not in (INACTIVE, "DEACTIVATING")


@dataclass(frozen=True, slots=True)
class LoopsCheckpoint:
    """A checkpoint as Loops says it is: ``id`` is unique, ``name`` only within its run and ``target``."""

    id: str
    run_id: str
    name: str
    target: str  # "trainer" | "sampler"
    created_at: float
    size_bytes: int
    base_model: str | None = None

    @property
    def address(self) -> str:
        kind = "weights" if self.target == "trainer" else "sampler_weights"
        return f"bt://loops:{self.run_id}/{kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a checkpoint, behind an address that carries its own permission for a while."""

    name: str  # relative, "/" between its parts
    url: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint's files are: "s3" (presigned addresses), or "volume" with its ``ref`` and ``path``."""

    kind: str
    ref: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A kind of machine that an inference deployment can run on."""

    id: str
    name: str
    gpu_count: int
    gpu_type: str | None


@dataclass(frozen=True, slots=True)
class Deployment:
    """An inference deployment that Baseten has begun to make."""

    model_id: str
    deployment_id: str


class LoopsManagement:
    """``async with LoopsManagement(url, api_key) as loops``. Every method raises LoopsError with one sentence.

    ``url`` None means Baseten.
    """

    def __init__(self, url: str | None, api_key: str | None, *, timeout: float = REQUEST_SECONDS) -> None:
        self.url = url.rstrip("/") if url else None
        self.api_key = api_key or ""
        self._timeout = timeout
        self._client: Any = None

    async def __aenter__(self) -> Self:
        quiet_sdk()
        from baseten.client import AsyncManagementClient

        self._client = AsyncManagementClient(api_key=self.api_key, base_url_override=self.url)
        # The client's own five seconds are short for an ending.
        self._client.http_client.timeout = self._timeout
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    # -- runs ---------------------------------------------------------------------------------------------------

    async def run(self, loops_run_id: str) -> LoopsRunInfo:
        """Raises UnknownToLoops where there is no such run."""
        answer = await self._ask(
            lambda: self._client.api.get_loops_runs_run_id(run_id=loops_run_id),
            f"asking for the run {loops_run_id}",
            missing=f"knows no run {loops_run_id}",
        )
        return _run(answer.run)

    async def runs(self) -> list[LoopsRunInfo]:
        """The caller's own runs, newest first."""
        answer = await self._ask(self._client.api.get_loops_runs, "listing its runs")
        return sorted(map(_run, answer.runs), key=lambda run: run.created_at, reverse=True)

    async def deactivate_run(self, loops_run_id: str) -> None:
        """Ask for a run's end; Loops carries it out in its own time. Safe to repeat."""
        await self._ask(
            lambda: self._client.api.post_loops_runs_deactivate(run_id=loops_run_id),
            f"deactivating the run {loops_run_id}",
            missing=f"knows no run {loops_run_id}",
        )

    async def samplers(self) -> list[LoopsSampler]:
        """The caller's samplers that belong to no run and have a deployment of their own, newest first."""
        answer = await self._ask(self._client.api.get_loops_samplers, "listing its samplers")
        runs = await self._ask(self._client.api.get_loops_runs, "listing its runs")
        paired = {run.sampler.id for run in runs.runs if run.sampler is not None}
        found = [
            LoopsSampler(
                str(raw.id),
                str(raw.base_model),
                _word(raw.status.name),
                raw.created_at.timestamp(),
                str(raw.model_id),
                str(raw.deployment_id),
            )
            for raw in answer.samplers
            if raw.id not in paired
        ]
        return sorted(found, key=lambda sampler: sampler.created_at, reverse=True)

    async def deactivate_sampler(self, model_id: str, deployment_id: str) -> None:
        """End a standalone sampler's deployment. Safe to repeat."""
        await self._ask(
            lambda: self._client.api.post_models_deployments_deactivate(
                model_id=model_id, deployment_id=deployment_id
            ),
            f"ending the sampler's deployment {deployment_id}",
            missing=f"knows no deployment {deployment_id}",
        )

    # -- checkpoints --------------------------------------------------------------------------------------------

    async def checkpoints(self, loops_run_id: str) -> list[LoopsCheckpoint]:
        """A run's checkpoints, oldest first. Raises UnknownToLoops where there is no such run."""
        from baseten.client.managementapi import GetLoopsCheckpointsRequest

        wanted = GetLoopsCheckpointsRequest(run_id=loops_run_id)
        answer = await self._ask(
            lambda: self._client.api.get_loops_checkpoints(request=wanted),
            f"listing the checkpoints of {loops_run_id}",
            missing=f"knows no run {loops_run_id}",
        )
        return sorted(map(_checkpoint, answer.checkpoints), key=lambda found: found.created_at)

    async def checkpoint(self, address: str) -> LoopsCheckpoint:
        """The checkpoint of a ``bt://`` address. Raises UnknownToLoops where there is none."""
        from baseten.client.managementapi import GetLoopsCheckpointsRequest

        wanted = GetLoopsCheckpointsRequest(checkpoint_path=address)
        answer = await self._ask(
            lambda: self._client.api.get_loops_checkpoints(request=wanted),
            f"looking up {address}",
            missing=f"has no checkpoint {address}",
        )
        if not answer.checkpoints:
            raise UnknownToLoops(f"Loops at {self.place} has no checkpoint {address}")
        return _checkpoint(answer.checkpoints[0])

    async def source(self, checkpoint_id: str) -> Source:
        """Where a checkpoint's files are."""

        async def ask() -> Any:
            answer = await self._client.http_client.get(f"/v1/loops/checkpoints/{checkpoint_id}/source")
            answer.raise_for_status()
            return answer.json()["source"]

        found = await self._ask(ask, f"asking where the checkpoint {checkpoint_id} is")
        return Source(str(found["kind"]), found.get("volume_ref"), found.get("path"))

    async def files(self, checkpoint_id: str) -> list[RemoteFile]:
        """Every file of a checkpoint, with fresh addresses."""
        from baseten.client.managementapi import GetLoopsCheckpointsFilesRequest

        files: list[RemoteFile] = []
        token: int | None = 0
        while token is not None:
            page = GetLoopsCheckpointsFilesRequest(page_token=token)
            answer = await self._ask(
                lambda page=page: self._client.api.get_loops_checkpoints_files(
                    checkpoint_id=checkpoint_id, request=page
                ),
                f"listing the files of checkpoint {checkpoint_id}",
                missing=f"has no checkpoint {checkpoint_id}",
            )
            files += [
                RemoteFile(str(file.relative_file_name), str(file.url), int(file.size_bytes))
                for file in answer.presigned_urls
            ]
            token = answer.next_page_token if answer.presigned_urls else None
        return files

    # -- deployments --------------------------------------------------------------------------------------------

    async def instance_types(self) -> list[InstanceType]:
        """The machines that a deployment can be made on."""
        answer = await self._ask(self._client.api.get_instance_types, "listing the instance types")
        return [
            InstanceType(kind.id, kind.name, kind.gpu_count, kind.gpu_type) for kind in answer.instance_types
        ]

    async def deploy(self, body: dict[str, Any]) -> Deployment:
        """Ask for an inference deployment, once (``deployment_request`` of ``engine.loops.deploying`` makes the body).

        Raises:
            OutcomeUnknown: the request was sent and nothing usable came back.
            LoopsError: it was refused, or never sent.
        """
        import httpx

        doing = "asking for a deployment"
        try:
            answer = await self._client.http_client.post("/v1/loops/checkpoints/deploy", json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise LoopsError(explain(error, doing, self.url)) from error  # nothing was sent
        except httpx.HTTPError as error:
            raise OutcomeUnknown(explain(error, doing, self.url)) from error
        if answer.is_error:
            error = httpx.HTTPStatusError("", request=answer.request, response=answer)
            sentence = explain(error, doing, self.url)
            raise (OutcomeUnknown if answer.status_code >= 500 else LoopsError)(sentence)
        try:
            made = answer.json()
            return Deployment(str(made["model_id"]), str(made["deployment_id"]))
        except (ValueError, KeyError, TypeError) as error:
            raise OutcomeUnknown(
                f"Loops at {self.place} answered {answer.status_code} to a deployment without naming it"
            ) from error

    # -- requests -----------------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """Where it is, for sentences."""
        return self.url or "Baseten"

    @property
    def base_url(self) -> str:
        return str(self._client.http_client.base_url).rstrip("/")

    async def _ask(self, call: Callable[[], Awaitable[Any]], doing: str, missing: str | None = None) -> Any:
        """The answer of a request that may be repeated; passing failures are, with growing pauses."""
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        retrying = AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            wait=wait_random_exponential(multiplier=0.3, max=5),
            retry=retry_if_exception(_may_pass),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    return await call()
        except Exception as error:
            sentence = explain(error, doing, self.url)
            if missing is not None and status_of(error) == 404:
                raise UnknownToLoops(f"Loops at {self.place} {missing}") from error
            raise LoopsError(sentence) from error
        raise AssertionError("unreachable: the last try raises or returns")


def _may_pass(error: BaseException) -> bool:
    import httpx

    if isinstance(error, httpx.ConnectError):
        return False  # nothing listens there: the sentence says so at once
    return isinstance(error, httpx.TransportError) or status_of(error) in _PASSING


def _run(raw: Any) -> LoopsRunInfo:
    return LoopsRunInfo(
        id=str(raw.id),
        name=str(raw.name),
        base_model=str(raw.base_model),
        state=_word(raw.status.name),
        created_at=raw.created_at.timestamp(),
        deployment_id=raw.deployment_id,
        owner=getattr(raw.user, "email", None),
    )


def _checkpoint(raw: Any) -> LoopsCheckpoint:
    return LoopsCheckpoint(
        id=str(raw.id),
        run_id=str(raw.run_id),
        name=str(raw.checkpoint_id),
        target=_word(raw.target),
        created_at=raw.created_at.timestamp(),
        size_bytes=int(raw.size_bytes),
        base_model=raw.base_model,
    )


def _word(value: Any) -> str:
    """An enumeration's value as plain text."""
    return str(getattr(value, "value", value))
