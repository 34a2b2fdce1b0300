"""Blocking work with a deadline that holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


async def run_bounded[ResultT](work: Callable[[], ResultT], seconds: float) -> ResultT:
    """Run ``work`` in a thread and wait for at most ``seconds``; raises TimeoutError after that.

    The thread is a daemon of its own: work that never ends (a tokenizer's download without a network) would keep
    an executor's thread, and with it the whole process, from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def settle(result: ResultT | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] - without an error it is the work's result

    def body() -> None:
        result: ResultT | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed to the waiting task, whatever it is
            failure = error
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, result, failure)
            except RuntimeError:  # the loop closed in between: nobody waits any more
                return

    threading.Thread(target=body, name="loops-tui-check", daemon=True).start()
    return await asyncio.wait_for(future, seconds)
