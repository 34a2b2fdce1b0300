"""What the SDK holds of a call is let go of once the call is over.

Each request of the SDK is part of three cycles (tenacity's decorator, its list of actions, and a callback that watches
the connection), and so its prompt, as a list and as bytes, stays until Python's collector comes by. With hundreds of
attempts these are gigabytes, and each time the collector holds up every thread for a tenth of a second and more. None
of it is needed after the answer, so the cycles are opened here. Where the SDK is built otherwise, nothing changes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any


def release_calls(sdk: Any) -> None:
    """Have the requests of a sampling client leave memory with their answers. Idempotent."""
    _release_retries()
    options = getattr(getattr(sdk, "_async_client", None), "_kwargs", None)
    if not isinstance(options, dict):
        return
    hooks = dict(options.get("event_hooks") or {})
    if _forget_connecting not in (on_response := hooks.get("response", [])):
        options["event_hooks"] = {**hooks, "response": [*on_response, _forget_connecting]}


async def _forget_connecting(response: Any) -> None:
    """An httpx hook: its connection is made, so nobody need watch that any more."""
    response.request.extensions.pop("trace", None)


def _release_retries() -> None:
    """Decorate the SDK's requests with what retries them just the same and keeps nothing."""
    module = importlib.import_module("baseten.loops.retry")
    theirs = getattr(module, "retry", None)
    if theirs is None or theirs is retrying:
        return
    import tenacity

    if theirs is tenacity.retry:
        module.retry = retrying  # type: ignore[attr-defined]


def retrying(**options: Any) -> Callable[[Any], Any]:
    """As ``tenacity.retry``. A coroutine function may be called once at a time, as the SDK does."""
    import tenacity

    def decorated(function: Any) -> Any:
        if not inspect.iscoroutinefunction(function):
            return tenacity.retry(**options)(function)

        async def call(*arguments: Any, **named: Any) -> Any:
            attempts = tenacity.AsyncRetrying(**options)
            try:
                return await attempts(function, *arguments, **named)
            finally:
                attempts.iter_state.reset()

        return call

    return decorated
