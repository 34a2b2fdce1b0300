"""Which models Loops offers, asked with one plain request.

A check needs no session and no client of the SDK, and the SDK's own call cannot be bounded: it blocks a thread for
minutes where an address accepts connections and never answers, and the process would wait for that thread.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, ValidationError

from engine.loops.errors import LoopsUnavailable, explain

DEFAULT_URL = "https://app.baseten.co"  # the SDK's own


class OfferedModel(BaseModel):
    """A model that Loops serves; ``max_context_length`` in tokens, None where Loops does not say."""

    model_name: str
    max_context_length: int | None = None


class _Capabilities(BaseModel):
    supported_models: list[OfferedModel]


async def offered_models(url: str | None, api_key: str, seconds: float) -> list[OfferedModel]:
    """Ask Loops for its models; raises LoopsUnavailable with one sentence."""
    import httpx

    base = (url or DEFAULT_URL).rstrip("/")
    doing = "asking which models it serves"

    async def ask() -> Any:
        async with httpx.AsyncClient(timeout=seconds) as client:
            answer = await client.get(
                f"{base}/v1/loops/capabilities", headers={"Authorization": f"Api-Key {api_key}"}
            )
            answer.raise_for_status()
            return answer.json()

    try:
        return _Capabilities.model_validate(await asyncio.wait_for(ask(), seconds)).supported_models
    except ValidationError as error:
        raise LoopsUnavailable(
            f"{base} does not speak Loops: it names no models when asked for them"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
        raise LoopsUnavailable(explain(error, doing, url)) from error
