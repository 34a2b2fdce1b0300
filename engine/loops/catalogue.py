"""Questions to Loops that cost nothing: which models it serves, and ending a run's billing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engine.loops.errors import LoopsError, LoopsUnavailable, explain
from engine.loops.session import quiet_sdk


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """A model that Loops serves; ``max_context`` in tokens, None where Loops does not say."""

    name: str
    max_context: int | None


async def offered_models(url: str | None, api_key: str | None, timeout: float = 30.0) -> list[OfferedModel]:
    """Ask Loops for its models. Opens a session (free) and starts nothing.

    Raises:
        LoopsUnavailable: wrong key, nothing answers, or not Loops; one sentence.
    """
    quiet_sdk()
    from baseten.loops import ServiceClient

    def ask() -> list[OfferedModel]:
        service = ServiceClient(api_key=api_key, base_url=url)
        return [
            OfferedModel(model.model_name, model.max_context_length)
            for model in service.get_server_capabilities().supported_models
        ]

    try:
        return await asyncio.wait_for(asyncio.to_thread(ask), timeout)
    except Exception as error:
        raise LoopsUnavailable(explain(error, "asking which models it serves", url)) from error


async def deactivate(
    url: str | None, api_key: str | None, loops_run_id: str, *, attempts: int = 5, timeout: float = 60.0
) -> None:
    """End a run's billing and confirm that it is INACTIVE.

    Raises:
        LoopsError: it could not be confirmed within ``attempts`` tries; the sentence says to check by hand.
    """
    from baseten.client import AsyncManagementClient
    from tenacity import AsyncRetrying, RetryError, stop_after_attempt, wait_random_exponential

    async def once() -> None:
        async with AsyncManagementClient(
            api_key=api_key or "", base_url_override=(url or "https://app.baseten.co").rstrip("/")
        ) as client:
            run = (await client.api.get_loops_runs_run_id(run_id=loops_run_id)).run
            if str(getattr(run.status.name, "value", run.status.name)) != "INACTIVE":
                await client.api.post_loops_runs_deactivate(run_id=loops_run_id)
                run = (await client.api.get_loops_runs_run_id(run_id=loops_run_id)).run
            if str(getattr(run.status.name, "value", run.status.name)) != "INACTIVE":
                raise LoopsError(f"the run {loops_run_id} is still {run.status.name}")

    try:
        async with asyncio.timeout(timeout):
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(attempts), wait=wait_random_exponential(multiplier=0.5, max=8)
            ):
                with attempt:
                    await once()
    except (RetryError, TimeoutError) as error:
        cause = error.last_attempt.exception() if isinstance(error, RetryError) else error
        raise LoopsError(
            f"the Loops run {loops_run_id} could not be deactivated and may still bill: "
            f"{explain(cause or error, 'deactivating it', url)}"
        ) from error
