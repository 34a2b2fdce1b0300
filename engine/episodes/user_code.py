"""Calling a user's code: in which task, for how long it may run, and what it raises, as one sentence."""

from __future__ import annotations

import asyncio
import ctypes
import sysconfig
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

from engine.config.user_errors import message_of
from engine.loops.errors import LoopsUnavailable, one_line

#: Frames below these are not the user's own code.
_NOT_THE_USERS = (Path(__file__).resolve().parents[1], Path(sysconfig.get_path("stdlib")).resolve())


#: Code that is to end is cancelled so often. Each time it has so many seconds to let go of what it holds.
CANCELLATIONS, LET_GO_SECONDS = 3, 10.0

#: Which episode's code a task belongs to; tasks that the code begins inherit it.
_CODE: ContextVar[object] = ContextVar("_CODE")

#: A user's method with its arguments.
type Call = Callable[[], Awaitable[Any]]
#: What a call returned, or what it raised.
type Outcome = tuple[Any, BaseException | None]
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


class OneTask:
    """Where an episode's code runs, call after call: what ``setup`` opens, ``run`` or ``grade`` may close.

    Libraries insist on that (anyio's task groups, and with them MCP clients). Code that does not let go is left behind
    with its task, and the next call has another. ``close`` it where no more calls come.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._mark = object()  # contexts keep it, where tasks of others inherit them, and so it holds nothing
        self._calls: asyncio.Queue[Call] = asyncio.Queue()
        self._outcome: asyncio.Future[Outcome] | None = None  # of the call under way, or of the last one
        self._task: asyncio.Task[None] | None = None
        self.left_behind = False  # whether the last call was

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, call: Call) -> asyncio.Future[Outcome]:
        """The call's outcome, once it has one. The code shares the context of whoever makes its first call."""
        caller = asyncio.current_task()
        assert caller is not None
        self.left_behind = False
        if self._task is None or self._task.done():
            self._calls = asyncio.Queue()
            self._task = asyncio.create_task(self._serve(), name="episode", context=caller.get_context())
            self._task.add_done_callback(self._ended)
        self._outcome = asyncio.get_running_loop().create_future()
        self._calls.put_nowait(call)
        return self._outcome

    def cancel(self) -> None:
        """Cancel the call that is under way; there must be one."""
        assert self._task is not None
        self._task.cancel()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def leave_behind(self, what: str) -> None:
        """Give up the call under way, and with it the tasks that the code has begun; the log is told."""
        self._log(
            "warning",
            f"{what} did not let go although it was cancelled {CANCELLATIONS} times in {CANCELLATIONS * LET_GO_SECONDS:g} s: "
            "its code goes on in the background, without the policy and soon without its sandbox, and keeps what else it "
            "holds (memory, connections); code that catches BaseException, or everything, must raise "
            "asyncio.CancelledError again",
        )
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task() and task.get_context().get(_CODE) is self._mark:
                _disown(task)
        self._task, self.left_behind = None, True

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        _CODE.set(self._mark)
        while self._task is task:
            await self._one(await self._calls.get(), task)

    async def _one(self, call: Call, task: asyncio.Task[Any]) -> None:
        """Its own function, so that nothing of an episode stays while the next call is waited for."""
        outcome = self._outcome
        found = await _caught(call)
        while task.cancelling():
            task.uncancel()
        assert outcome is not None
        outcome.set_result(found)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task was cancelled between two calls: by ``close``, by what the code has opened, or before a call began."""
        if self._task is task and self._outcome is not None and not self._outcome.done():
            self._outcome.set_result((None, asyncio.CancelledError()))


async def guarded(code: OneTask, call: Call, deadline: asyncio.Timeout, seconds: float, what: str) -> Any:
    """As ``within``, for ``deadline`` of so many seconds; anything the code raises is infrastructure.

    Raises Infrastructure.
    """
    try:
        return await within(code, call, deadline, what)
    except BaseException as error:
        if passes_through(error):
            raise
        late = f"{what} took longer than {seconds:g} s"
        raise Infrastructure(late if deadline.expired() else raised(what, error)) from error


async def within(
    code: OneTask,
    call: Call,
    deadline: asyncio.Timeout,
    what: str,
    over: Callable[[], None] = lambda: None,
) -> Any:
    """Await a user's code until its deadline: code that does not end is left behind.

    It has ``CANCELLATIONS`` x ``LET_GO_SECONDS`` to let go, after the deadline and where the caller is cancelled;
    ``over`` is called before that.

    Raises:
        TimeoutError: the deadline is over (``deadline.expired()``), unless the code returned something even so.
        asyncio.CancelledError: the caller was cancelled, whatever the code made of it.
        BaseException: what the code raised by itself.
    """
    outcome = code.begin(call)
    try:
        async with deadline:
            await asyncio.wait({outcome})
    except asyncio.CancelledError:
        over()
        await _end(code, outcome, what)
        raise
    except TimeoutError:
        over()
        await _end(code, outcome, what)
        if not outcome.done():
            raise
        value, error = outcome.result()
        if error is not None and not passes_through(error):  # what it made of being cancelled
            raise
    else:
        value, error = outcome.result()
    if error is not None:
        raise error
    return value


async def _caught(call: Call) -> Outcome:
    """What the code returns or raises. asyncio would let a SystemExit end its loop, and complain of what nobody reads."""
    try:
        return await call(), None
    except BaseException as error:  # noqa: BLE001 - raised again by whoever awaits the call
        return None, error


async def _end(code: OneTask, outcome: asyncio.Future[Outcome], what: str) -> None:
    """Cancel the code until it ends, and leave it behind where it does not.

    Raises CancelledError where the caller is cancelled meanwhile, which cancels the code once more.
    """
    cancelled = None
    for _ in range(CANCELLATIONS):
        if not outcome.done():
            code.cancel()
            try:
                await asyncio.wait({outcome}, timeout=LET_GO_SECONDS)
            except asyncio.CancelledError as error:
                cancelled = error
    if not outcome.done():
        code.leave_behind(what)
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
