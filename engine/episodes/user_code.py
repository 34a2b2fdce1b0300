"""Calling a user's code: for how long it may run, and what it raises, as one sentence."""

from __future__ import annotations

import asyncio
import ctypes
import sysconfig
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from engine.config.user_errors import message_of
from engine.loops.errors import LoopsUnavailable, one_line

#: Frames below these are not the user's own code.
_NOT_THE_USERS = (Path(__file__).resolve().parents[1], Path(sysconfig.get_path("stdlib")).resolve())


#: Code that is to end is cancelled so often. Each time it has so many seconds to let go of what it holds.
CANCELLATIONS, LET_GO_SECONDS = 3, 10.0

#: Which call of a user's code a task belongs to; tasks that the code begins inherit it.
_CALL: ContextVar[object] = ContextVar("_CALL")

#: A user's method with its arguments.
type Call = Callable[[], Awaitable[Any]]
#: Told of a level and a text for what a person should be able to find later.
type Log = Callable[[str, str], None]


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


@contextmanager
def infrastructure(what: str) -> Iterator[None]:
    """Whatever the block raises that concerns its attempt alone is raised as Infrastructure."""
    try:
        yield
    except BaseException as error:
        if passes_through(error):
            raise
        raise Infrastructure(raised(what, error)) from error


async def guarded(call: Call, deadline: asyncio.Timeout, seconds: float, what: str, log: Log) -> Any:
    """As ``within``, for ``deadline`` of so many seconds; anything the code raises is infrastructure.

    Raises Infrastructure.
    """
    try:
        return await within(call, deadline, what, log)
    except BaseException as error:
        if passes_through(error):
            raise
        late = f"{what} took longer than {seconds:g} s"
        raise Infrastructure(late if deadline.expired() else raised(what, error)) from error


async def within(
    call: Call,
    deadline: asyncio.Timeout,
    what: str,
    log: Log,
    over: Callable[[], None] = lambda: None,
) -> Any:
    """Await a user's code until its deadline, in a task of its own: code that does not end is left behind.

    It has ``CANCELLATIONS`` x ``LET_GO_SECONDS`` to let go, after the deadline and where the caller is cancelled;
    ``over`` is called before that. The code shares the caller's context.

    Raises:
        TimeoutError: the deadline is over (``deadline.expired()``), unless the code returned something even so.
        asyncio.CancelledError: the caller was cancelled, whatever the code made of it.
        BaseException: what the code raised by itself.
    """
    caller = asyncio.current_task()
    assert caller is not None
    mark = object()
    work = asyncio.create_task(_caught(call, mark), name=what, context=caller.get_context())
    try:
        async with deadline:
            await asyncio.wait({work})
    except asyncio.CancelledError:
        over()
        await _end(work, mark, what, log)
        raise
    except TimeoutError:
        over()
        await _end(work, mark, what, log)
        if not work.done():
            raise
        value, error = work.result()
        if error is not None and not passes_through(error):  # what it made of being cancelled
            raise
    else:
        value, error = work.result()
    if error is not None:
        raise error
    return value


async def _caught(call: Call, mark: object) -> tuple[Any, BaseException | None]:
    """What the code returns or raises. asyncio would let a SystemExit end its loop, and complain of what nobody reads."""
    _CALL.set(mark)
    try:
        return await call(), None
    except BaseException as error:  # noqa: BLE001 - raised again by whoever awaits the call
        return None, error


async def _end(work: asyncio.Task[Any], mark: object, what: str, log: Log) -> None:
    """Cancel the code until it ends, and leave it behind where it does not.

    Raises CancelledError where the caller is cancelled meanwhile, which cancels the code once more.
    """
    cancelled = None
    for _ in range(CANCELLATIONS):
        if not work.done():
            work.cancel()
            try:
                await asyncio.wait({work}, timeout=LET_GO_SECONDS)
            except asyncio.CancelledError as error:
                cancelled = error
    if not work.done():
        log(
            "warning",
            f"{what} did not let go although it was cancelled {CANCELLATIONS} times in {CANCELLATIONS * LET_GO_SECONDS:g} s: "
            "its code goes on in the background, without the policy and soon without its sandbox, and keeps what else it "
            "holds (memory, connections); code that catches BaseException, or everything, must raise "
            "asyncio.CancelledError again",
        )
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task() and task.get_context().get(_CALL) is mark:
                _disown(task)
    if cancelled is not None:
        raise cancelled


def _disown(task: asyncio.Task[Any]) -> None:
    """Let nobody wait for a task at the end of its loop, and never collect it.

    Collecting would throw into its code once more; what catches that and awaits again would never end outside a loop.
    """
    asyncio.tasks._unregister_task(task)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


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
