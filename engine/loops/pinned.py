"""A sampler of fixed weights: a checkpoint of some run, or a base model, without a trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.loops.errors import LoopsUnavailable, explain, sample_failure
from engine.loops.session import SamplingSettings, exact_completion, quiet_sdk, sampling_params
from engine.policy.tokens import Completion


class PinnedSampler:
    """Continues prompts with weights that never change (the ``Sampler`` of ``engine.policy.tokens``)."""

    def __init__(self, client: Any, settings: SamplingSettings, url: str | None) -> None:
        self._client, self._settings, self._url = client, settings, url

    @classmethod
    async def open(
        cls,
        *,
        url: str | None,
        api_key: str | None,
        settings: SamplingSettings,
        base_model: str | None = None,
        model_path: str | None = None,
    ) -> PinnedSampler:
        """Open a sampler of exactly one of ``base_model`` and ``model_path`` (``bt://loops:<run>/sampler_weights/…``).

        On Baseten this provisions a sampler, which bills.

        Raises:
            LoopsUnavailable: with one sentence.
        """
        quiet_sdk()
        from baseten.loops import ServiceClient

        try:
            service = await asyncio.to_thread(ServiceClient, api_key=api_key, base_url=url)
            client = await service.create_sampling_client_async(base_model=base_model, model_path=model_path)
        except Exception as error:
            raise LoopsUnavailable(explain(error, "opening a sampler", url)) from error
        return cls(client, settings, url)

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        """Raises SampleFailed or LoopsUnavailable, as a session's ``sample``."""
        from baseten.loops import ModelInput

        try:
            response = await self._client.sample_async(
                ModelInput.from_ints(list(prompt)),
                sampling_params=sampling_params(self._settings, max_tokens, seed),
                affinity_key=affinity_key,
            )
        except Exception as error:
            raise sample_failure(error, self._url) from error
        return exact_completion(response.sequences[0], None)

    async def close(self) -> None:
        await self._client.aclose()
