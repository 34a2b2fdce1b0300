"""The control plane: sessions, capabilities, runs, samplers, and the deployments they are shown as."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.local_loops import describe
from engine.local_loops.faults import not_found, unprocessable
from engine.local_loops.logbook import LEVELS
from engine.local_loops.records import RunRecord, SamplerRecord
from engine.local_loops.service import LoopsService
from engine.local_loops.wire import CreateSampler, CreateTrainer, UserConfig, read_body

ROOT = "/v1/loops"
TEAM_ROOT = "/v1/teams/{team_id}/loops"
#: One team, so that a client with a team set finds it whatever the name: see :meth:`ControlPlane.teams`.
TEAM = {"id": "local", "name": "local"}


class ControlPlane:
    """Routes under ``/v1``; the SDK never retries these, so every refusal is final."""

    def __init__(self, service: LoopsService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        found: list[Route] = []
        for root in (ROOT, TEAM_ROOT):
            found += [
                Route(f"{root}/sessions", self.create_session, methods=["POST"]),
                Route(f"{root}/trainers", self.create_run, methods=["POST"]),
                Route(f"{root}/runs", self.create_run, methods=["POST"]),
                Route(f"{root}/runs", self.list_runs, methods=["GET"]),
                Route(f"{root}/samplers", self.create_sampler, methods=["POST"]),
                Route(f"{root}/samplers", self.list_samplers, methods=["GET"]),
                Route(f"{root}/debug/trainers", self.create_run, methods=["POST"]),
                Route(f"{root}/debug/samplers", self.create_sampler, methods=["POST"]),
            ]
        return [
            *found,
            Route("/v1/teams", self.teams, methods=["GET"]),
            Route(f"{ROOT}/sessions/{{session_id}}", self.get_session, methods=["GET"]),
            Route(f"{ROOT}/capabilities", self.capabilities, methods=["GET"]),
            Route(f"{ROOT}/runs/{{run_id}}", self.get_run, methods=["GET"]),
            Route(f"{ROOT}/runs/{{run_id}}/deactivate", self.deactivate_run, methods=["POST"]),
            Route(f"{ROOT}/samplers/{{sampler_id}}", self.get_sampler, methods=["GET"]),
            Route(f"{ROOT}/deployments", self.list_deployments, methods=["GET"]),
            Route(f"{ROOT}/deployments/{{deployment_id}}", self.get_deployment, methods=["GET"]),
            Route(
                f"{ROOT}/deployments/{{deployment_id}}/deactivate",
                self.deactivate_deployment,
                methods=["POST"],
            ),
            Route(f"{ROOT}/deployments/{{deployment_id}}/logs", self.logs, methods=["GET"]),
            Route(f"{ROOT}/deployments/{{deployment_id}}/metrics", self.metrics, methods=["POST"]),
            Route(
                f"{ROOT}/deployments/{{deployment_id}}/debug_archive/files",
                self.debug_archive,
                methods=["GET"],
            ),
            Route(
                "/v1/models/{model_id}/deployments/{deployment_id}", self.model_deployment, methods=["GET"]
            ),
            Route(
                "/v1/models/{model_id}/deployments/{deployment_id}/deactivate",
                self.deactivate_sampler,
                methods=["POST"],
            ),
            Route("/v1/instance_types", self.instance_types, methods=["GET"]),
            Route(f"{ROOT}/user_config", self.get_user_config, methods=["GET"]),
            Route(f"{ROOT}/user_config", self.patch_user_config, methods=["PATCH"]),
        ]

    # -- sessions and capabilities -------------------------------------------------------------------------

    async def create_session(self, _request: Request) -> Response:
        return JSONResponse({"session": {"id": await self._service.create_session()}})

    async def get_session(self, request: Request) -> Response:
        session_id = request.path_params["session_id"]
        if session_id not in self._service.store.sessions:
            raise not_found(f"no session {session_id!r} on this server")
        return JSONResponse({"session": {"id": session_id}})

    async def capabilities(self, _request: Request) -> Response:
        models = [
            {
                "model_name": name,
                "max_context_length": model.max_context,
                "supports_vision_language": False,
            }
            for name, model in self._service.registry.named().items()
        ]
        return JSONResponse({"supported_models": models})

    async def teams(self, _request: Request) -> Response:
        return JSONResponse({"teams": [{**TEAM, "default": True}]})

    # -- runs ----------------------------------------------------------------------------------------------

    def _shown_sampler(self, sampler: SamplerRecord | None) -> dict[str, Any] | None:
        if sampler is None:
            return None
        return self._service.describe.sampler(sampler, active=self._service.sampler_active(sampler))

    def _shown_run(self, run: RunRecord) -> dict[str, Any]:
        return self._service.describe.run(run, self._shown_sampler(self._service.paired_sampler(run)))

    async def create_run(self, request: Request) -> Response:
        run = await self._service.create_run(await read_body(request, CreateTrainer))
        return JSONResponse({"run": self._shown_run(run)})

    async def list_runs(self, request: Request) -> Response:
        run_id = request.query_params.get("run_id")
        base_model = request.query_params.get("base_model")
        runs = [
            self._shown_run(run)
            for run in self._service.store.runs.values()
            if (run_id is None or run.id == run_id) and (base_model is None or run.base_model == base_model)
        ]
        runs.sort(key=lambda shown: shown["created_at"], reverse=True)
        return JSONResponse({"runs": runs})

    async def get_run(self, request: Request) -> Response:
        run = self._service.run_record(request.path_params["run_id"])
        return JSONResponse({"run": self._shown_run(run)})

    async def _deactivated(self, run: RunRecord, shown_id: str) -> Response:
        await self._service.deactivate(run)
        return JSONResponse({"id": shown_id, "base_model": run.base_model, "user": describe.USER})

    async def deactivate_run(self, request: Request) -> Response:
        run = self._service.run_record(request.path_params["run_id"])
        return await self._deactivated(run, run.id)

    # -- samplers ------------------------------------------------------------------------------------------

    async def create_sampler(self, request: Request) -> Response:
        sampler = await self._service.create_sampler(await read_body(request, CreateSampler))
        return JSONResponse({"sampler": self._shown_sampler(sampler)})

    async def list_samplers(self, _request: Request) -> Response:
        shown = [self._shown_sampler(sampler) for sampler in self._service.store.samplers.values()]
        return JSONResponse({"samplers": shown})

    async def get_sampler(self, request: Request) -> Response:
        sampler = self._service.sampler_record(request.path_params["sampler_id"])
        return JSONResponse({"sampler": self._shown_sampler(sampler)})

    async def model_deployment(self, request: Request) -> Response:
        """The status of the deployment behind a sampler: the SDK asks once per sampling client."""
        sampler = self._sampler_of_deployment(request)
        return JSONResponse(
            {
                "id": sampler.deployment_id,
                "model_id": sampler.model_id,
                "name": sampler.id,
                "created_at": sampler.created_at,
                "status": "ACTIVE" if self._service.sampler_active(sampler) else "INACTIVE",
            }
        )

    async def deactivate_sampler(self, request: Request) -> Response:
        """End a sampler on its own, by the deployment behind it; a run's sampler ends with its run."""
        ended = await self._service.deactivate_sampler(self._sampler_of_deployment(request))
        return JSONResponse({"success": True, "no_op": not ended})

    def _sampler_of_deployment(self, request: Request) -> SamplerRecord:
        model_id, deployment_id = request.path_params["model_id"], request.path_params["deployment_id"]
        for sampler in self._service.store.samplers.values():
            if (sampler.model_id, sampler.deployment_id) == (model_id, deployment_id):
                return sampler
        raise not_found(f"no model deployment {model_id}/{deployment_id} on this server")

    async def instance_types(self, _request: Request) -> Response:
        return JSONResponse({"instance_types": [describe.instance_type()]})

    # -- deployments ---------------------------------------------------------------------------------------

    def _shown_deployment(self, run: RunRecord) -> dict[str, Any]:
        sampler = self._shown_sampler(self._service.paired_sampler(run))
        return self._service.describe.deployment(run, sampler)

    def _deployment(self, request: Request) -> RunRecord:
        return self._service.run_of_deployment(request.path_params["deployment_id"])

    async def list_deployments(self, _request: Request) -> Response:
        active = [run for run in self._service.store.runs.values() if run.status == "ACTIVE"]
        return JSONResponse({"deployments": [self._shown_deployment(run) for run in active]})

    async def get_deployment(self, request: Request) -> Response:
        return JSONResponse({"deployment": self._shown_deployment(self._deployment(request))})

    async def deactivate_deployment(self, request: Request) -> Response:
        run = self._deployment(request)
        return await self._deactivated(run, run.deployment_id)

    async def logs(self, request: Request) -> Response:
        run = self._deployment(request)
        query = request.query_params
        level = query.get("min_level", "DEBUG")
        if level not in LEVELS:
            raise unprocessable(f"min_level must be one of {', '.join(LEVELS)}")
        lines = self._service.logbook.read(
            run.deployment_id,
            start_ms=_integer(query.get("start_epoch_millis"), "start_epoch_millis"),
            end_ms=_integer(query.get("end_epoch_millis"), "end_epoch_millis"),
            newest_first=query.get("direction", "desc") == "desc",
            limit=min(_integer(query.get("limit"), "limit") or 500, 1000),
            min_level=level,
        )
        return JSONResponse({"logs": lines})

    async def metrics(self, request: Request) -> Response:
        """The hosted metrics' shape; a local server records no series. Counters: ``/debug/stats``."""
        run = self._deployment(request)
        return JSONResponse(
            {
                "deployment_id": run.deployment_id,
                "metrics": {
                    "inference_volume": [],
                    "concurrent_requests": [],
                    "response_time_stats": [],
                    "inference_volume_by_status": [],
                    "gpu_memory_usage_bytes": {},
                    "gpu_utilization": {},
                    "cpu_usage": [],
                    "cpu_memory_usage_bytes": [],
                    "ephemeral_storage": {"usage_bytes": [], "utilization": []},
                    "per_node_metrics": [],
                },
            }
        )

    async def debug_archive(self, request: Request) -> Response:
        self._deployment(request)
        return JSONResponse({"presigned_urls": [], "next_page_token": None})

    # -- the user's preferences ----------------------------------------------------------------------------

    def _user_config(self) -> Response:
        empty = {"trainer_accelerator_priority": None, "sampler_accelerator_priority": None}
        return JSONResponse({"user_config": {**empty, **self._service.store.user_config}})

    async def get_user_config(self, _request: Request) -> Response:
        return self._user_config()

    async def patch_user_config(self, request: Request) -> Response:
        """Kept and given back; a local server has no accelerators to choose from."""
        change = (await read_body(request, UserConfig)).model_dump(exclude_unset=True)
        self._service.store.set_user_config({**self._service.store.user_config, **change})
        return self._user_config()


def _integer(raw: str | None, name: str) -> int | None:
    if raw is None:
        return None
    try:
        return int(raw)
    except ValueError as error:
        raise unprocessable(f"{name} must be an integer, not {raw!r}") from error
