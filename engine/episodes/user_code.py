"""Calling a user's code: for how long it may run, and what it raises, as one sentence."""

from __future__ import annotations

import asyncio
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engine.config.user_errors import message_of
from engine.loops.errors import LoopsUnavailable, one_line

#: Frames below these are not the user's own code.
_NOT_THE_USERS = (Path(__file__).resolve().parents[1], Path(sysconfig.get_path("stdlib")).resolve())


#: After a deadline an agent has so many seconds to let go of what it holds, before it is cancelled again.
INSIST_SECONDS = 10.0


class Infrastructure(Exception):
    """setup or run raised: the episode did not happen. The message is one sentence."""


def passes_through(error: BaseException) -> bool:
    """Whether what a user's code raised concerns more than its attempt.

    ``sys.exit()`` in an episode does not: asyncio would let it tear down the loop and every other attempt with it.
    Nor does a CancelledError that nobody asked for.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return False
    return isinstance(error, LoopsUnavailable) or not isinstance(error, Exception)


async def guarded(
    call: Any, seconds: float | None, what: str, deadline: asyncio.Timeout | None = None
) -> Any:
    """Await a user's coroutine within so many seconds, if any; anything it raises is infrastructure.

    ``deadline``: one of so many seconds that ``standing_still`` may hold up. Raises Infrastructure.
    """
    deadline = deadline or asyncio.timeout(seconds)
    try:
        async with deadline:
            return await call
    except TimeoutError as error:
        if deadline.expired():
            raise Infrastructure(f"{what} took longer than {seconds:g} s") from error
        raise Infrastructure(raised(what, error)) from error
    except BaseException as error:
        if passes_through(error):
            raise
        raise Infrastructure(raised(what, error)) from error


@contextmanager
def insisting(deadline: asyncio.Timeout) -> Iterator[None]:
    """Cancel the block again and again once its deadline is over: code that catches whatever is raised would go on."""
    loop, task, due = asyncio.get_running_loop(), asyncio.current_task(), deadline.when()
    assert task is not None
    assert due is not None
    cancelled = 0

    def again() -> None:
        nonlocal cancelled, handle
        cancelled += 1
        task.cancel()
        handle = loop.call_later(INSIST_SECONDS, again)

    handle = loop.call_at(due + INSIST_SECONDS, again)
    try:
        yield
    finally:
        handle.cancel()
        for _ in range(cancelled):
            task.uncancel()


@contextmanager
def standing_still(deadline: asyncio.Timeout) -> Iterator[None]:
    """The time that the block takes is not counted against a deadline that has begun."""
    loop = asyncio.get_running_loop()
    began, due = loop.time(), deadline.when()
    if due is None or deadline.expired():  # another one has stopped it, or it is over
        yield
        return
    deadline.reschedule(None)
    try:
        yield
    finally:
        with suppress(RuntimeError):  # grading has ended meanwhile
            deadline.reschedule(due + loop.time() - began)


def raised(what: str, error: BaseException) -> str:
    """What was raised and the innermost line of the user's own files, without a traceback."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if "site-packages" not in path.parts and not any(map(path.is_relative_to, _NOT_THE_USERS)):
            place = f" (line {line} of {path.name})"
    return f"{what} raised {type(error).__name__}: {one_line(message_of(error)) or 'no message'}{place}"
