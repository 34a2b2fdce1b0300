"""A sampler of fixed weights: a checkpoint of some run, or a base model, without a trainer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from engine.loops.errors import LoopsError, LoopsUnavailable, explain, sample_failure
from engine.loops.management import LoopsManagement
from engine.loops.sampling import SamplingSettings, exact_completion, sampling_params
from engine.loops.sdk import ready_sdk
from engine.loops.serving import ServedPolicy
from engine.loops.session import LOCAL_READY_SECONDS, on_loopback
from engine.policy.tokens import Completion

log = logging.getLogger(__name__)

#: How long a sampler on Baseten may take to come up, in seconds.
READY_SECONDS = 3600.0
CLOSE_SECONDS = 60.0
#: The SDK's own bound on creating a sampler.
OPEN_SECONDS = 300.0


class PinnedSampler:
    """Continues prompts with weights that never change (the ``Sampler`` of ``engine.policy.tokens``).

    Attributes:
        sampler_id: Loops' own name for it.
        has_deployment: whether it has a deployment of its own, which bills until :meth:`close`; samplers of the
            serverless pool bill by token and have none.
    """

    def __init__(
        self, client: Any, settings: SamplingSettings, url: str | None, api_key: str | None = None
    ) -> None:
        self._served = ServedPolicy()
        self._settings, self._url, self._api_key = settings, url, api_key
        # The SDK keeps where a sampler runs to itself, and offers no end of it.
        deployment = client._deployment
        self._model_id: str | None = getattr(deployment, "model_id", None)
        self._deployment_id: str | None = getattr(deployment, "deployment_id", None)
        self.sampler_id = str(client._sampler_id or "")

    @classmethod
    async def open(
        cls,
        *,
        url: str | None,
        api_key: str | None,
        settings: SamplingSettings,
        base_model: str | None = None,
        model_path: str | None = None,
        max_seq_len: int | None = None,
        scope: str | None = None,
        request_seconds: float | None = None,
    ) -> PinnedSampler:
        """Open a sampler of exactly one of ``base_model`` and ``model_path`` (``bt://loops:<run>/sampler_weights/…``).

        On Baseten this provisions a sampler, which bills. ``scope`` is the SDK's word: default, serverless or
        deployment. ``request_seconds`` bounds one sample.

        Raises:
            LoopsUnavailable: with one sentence.
        """
        ready_sdk()
        from baseten.loops import ServiceClient

        async def provision() -> PinnedSampler:
            try:
                service = await asyncio.to_thread(ServiceClient, api_key=api_key, base_url=url)
                client = await service.create_sampling_client_async(
                    base_model=base_model,
                    model_path=model_path,
                    max_seq_len=max_seq_len,
                    timeout=request_seconds,
                    ready_timeout=LOCAL_READY_SECONDS if on_loopback(url) else READY_SECONDS,
                    scope=scope,
                )
            except Exception as error:
                raise LoopsUnavailable(explain(error, "opening a sampler", url)) from error
            sampler = cls(client, settings, url, api_key)
            try:
                await sampler._served.serve(client, 0)
            except Exception as error:
                await sampler._let_go()
                raise LoopsUnavailable(explain(error, "opening a sampler", url)) from error
            return sampler

        opening = asyncio.create_task(provision())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The request is under way in a thread that nobody can stop: what it makes must not be left to bill.
            await asyncio.wait({opening}, timeout=OPEN_SECONDS)
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result()._let_go()
            raise

    def use_sampling(self, settings: SamplingSettings) -> None:
        """How :meth:`sample` samples from now on."""
        self._settings = settings

    @property
    def has_deployment(self) -> bool:
        return self._model_id is not None and self._deployment_id is not None

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        """Raises SampleFailed or LoopsUnavailable, as a session's ``sample``."""
        from baseten.loops import ModelInput

        async with self._served.calling() as client:
            try:
                response = await client.sdk.sample_async(
                    ModelInput.from_ints(list(prompt)),
                    sampling_params=sampling_params(self._settings, max_tokens, seed),
                    affinity_key=affinity_key,
                )
            except Exception as error:
                raise sample_failure(error, self._url) from error
        return exact_completion(response.sequences[0], None)

    async def close(self) -> str | None:
        """Close the clients and end the sampler. Never raises: a sentence where it may still bill, else None."""
        await self._served.close()
        if self._model_id is None or self._deployment_id is None:
            return None
        try:
            async with asyncio.timeout(CLOSE_SECONDS), LoopsManagement(self._url, self._api_key) as loops:
                await loops.deactivate_sampler(self._model_id, self._deployment_id)
        except (LoopsError, TimeoutError) as error:
            return (
                f"the sampler {self.sampler_id} (deployment {self._deployment_id} of model {self._model_id}) could not "
                f"be ended and may still bill: {error or 'no answer'}"
            )
        return None

    async def _let_go(self) -> None:
        """Nobody gets it: what may still bill is told in the log."""
        left = await self.close()
        if left is not None:
            log.error("%s", left)
