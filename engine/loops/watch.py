"""A watch on the Loops control plane, so that a dead server ends a run in seconds rather than after the SDK's hour."""

from __future__ import annotations

import asyncio

import httpx

from engine.loops.session import on_loopback

PROBE_SECONDS = 2.0
PROBE_TIMEOUT = 4.0
#: How long nothing may answer before the server counts as gone, in seconds: a local process that refuses
#: connections is dead, the internet may be away for a while.
LOCAL_PATIENCE = 6.0
REMOTE_PATIENCE = 180.0


async def until_gone(url: str | None, api_key: str | None) -> str:
    """Return one sentence as soon as nothing has answered at ``url`` for the patience it deserves.

    Any HTTP answer counts as life: a busy or failing server is not this watch's business. Runs until cancelled.
    """
    if url is None:  # the SDK's default address: its own retries judge it
        await asyncio.Event().wait()
    assert url is not None
    loop = asyncio.get_running_loop()
    patience = LOCAL_PATIENCE if on_loopback(url) else REMOTE_PATIENCE
    headers = {"Authorization": f"Api-Key {api_key}"} if api_key else {}
    last_answer = loop.time()
    async with httpx.AsyncClient(timeout=PROBE_TIMEOUT, trust_env=not on_loopback(url)) as client:
        while True:
            try:
                await client.get(f"{url.rstrip('/')}/v1/loops/capabilities", headers=headers)
                last_answer = loop.time()
            except httpx.ConnectError:
                if (silent := loop.time() - last_answer) >= patience:
                    return f"the Loops server at {url} is gone: nothing has answered for {silent:.0f} s"
            except httpx.HTTPError:
                # Slow, not gone: a loaded machine may take longer than the probe's timeout. The patience is larger.
                if loop.time() - last_answer >= max(patience, 60.0):
                    return f"the Loops server at {url} no longer answers"
            await asyncio.sleep(PROBE_SECONDS)
