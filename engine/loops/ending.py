"""Ending a Loops run, so that it stops billing."""

from __future__ import annotations

import asyncio

from engine.loops.errors import LoopsError, explain


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
