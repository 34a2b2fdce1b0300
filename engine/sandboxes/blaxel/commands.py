"""Commands in a Blaxel sandbox: started under a name of their own, then waited for.

The service ends a command at its deadline by itself (``keep_alive`` with a ``timeout``), so that one outlives neither
us nor a silent connection. A lost answer is no lost command: its name tells whether it runs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.sandboxes.blaxel.connection import Connection
from engine.sandboxes.blaxel.failures import classify, not_found_inside, pause
from engine.sandboxes.contract import WORKDIR, Exec
from engine.sandboxes.errors import (
    PermanentError,
    ProviderError,
    SandboxGone,
    TransientError,
)
from engine.sandboxes.outputs import cut

if TYPE_CHECKING:
    from blaxel.core.sandbox.client.models import ProcessResponse

MARK = "LTUI_EXEC"
"""A variable of every command of ours and of what it starts; ``processes`` finds them by it."""
GRACE_SECONDS = 15.0
"""What is waited beyond a command's deadline for the service to have ended it."""
_SHORT_SECONDS = 30.0
_SHORT_TRIES = 3
_SHOWN_BYTES = 64 * 1024
"""What an answer holds of each stream, at most; the whole is asked for separately."""
_KEPT_BYTES = 4 * 1024 * 1024
"""What the service keeps of each stream, at most: the end of it."""
_PIECE_SECONDS = 20.0
"""The SDK waits through failures of the sandbox; so often it is asked whether the sandbox still exists."""
_THREAD_BYTES = 256 * 1024
_START_TRIES = 4
_WAIT_TRIES = 6


@dataclass(frozen=True, slots=True)
class Order:
    """A command to run. ``line`` is a shell command line, ``seconds`` its deadline."""

    line: str
    cwd: str
    env: Mapping[str, str]
    seconds: float
    max_output: int
    merged: bool


@dataclass(slots=True)
class _Streams:
    stdout: bytes = b""
    stderr: bytes = b""
    both: bytes = b""


@dataclass(slots=True)
class Commands:
    """Runs commands over one connection."""

    link: Connection
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def run(self, order: Order) -> Exec:
        """Run it to its end or its deadline. Cancelled, it ends the command. Raises ProviderError."""
        name = f"ltui-{next(self._numbers)}"
        mark = f"{self.link.name}.{name}."
        limit = math.ceil(order.seconds)  # the service counts in whole seconds
        request = {
            "name": name,
            "command": _whole_line(order),
            "env": {**self.link.env, **order.env, MARK: mark},
            "keep_alive": True,
            "timeout": limit,
        }
        try:
            ended, began = await self._start_and_wait(name, request, limit)
        except asyncio.CancelledError:
            self.link.janitor.spawn(self._end_cancelled(name, mark), f"end {self.link.name} {name}")
            raise
        seconds = time.monotonic() - began
        late = seconds >= limit - 0.5
        if ended is None or (_by_signal(ended) and late):
            await self.sweep(mark)
            return await self._result(name, ended, order, "timed_out", seconds=seconds)
        if _by_signal(ended):
            return await self._result(name, ended, order, "killed", seconds=seconds)
        return await self._result(name, ended, order, "completed", int(ended.exit_code), seconds=seconds)

    async def short(self, line: str, doing: str) -> ProcessResponse:
        """A quick command of our own that does no harm when it runs twice. Raises ProviderError."""
        request = {
            "command": f"exec /bin/sh -c {shlex.quote(line)}",
            "wait_for_completion": True,
            "timeout": int(_SHORT_SECONDS),
        }
        done = await self.link.ask(
            doing,
            lambda: self.link.box.process.exec(request),
            seconds=_SHORT_SECONDS + 15,
            tries=_SHORT_TRIES,
        )
        if done.status == "running":
            raise TransientError(
                f"Blaxel, {doing} in {self.link.name}: still running after {_SHORT_SECONDS:g} s"
            )
        return done  # type: ignore[return-value]

    async def sweep(self, mark: str) -> bool:
        """End everything that carries the mark, detached processes too; whether the sandbox could tell.

        Raises TransientError where something would not end.
        """
        done = await self.short(_SWEEP % shlex.quote(f"{MARK}={mark}"), "ending processes")
        if int(done.exit_code) == 1:
            raise TransientError(f"processes of the sandbox {self.link.name} would not end")
        return int(done.exit_code) == 0

    # -- start and wait -----------------------------------------------------------------------------------------

    async def _start_and_wait(
        self, name: str, request: dict[str, Any], limit: int
    ) -> tuple[ProcessResponse | None, float]:
        """The command's last record, and when it was asked for (monotonic).

        The record is None where the command had to be ended because the service had not done so.
        """
        for number in range(1, _START_TRIES + 1):
            lost: TransientError | None = None
            began = time.monotonic()
            try:
                await self.link.ask(
                    "starting a command", lambda: self.link.box.process.exec(request), tries=1
                )
            except TransientError as error:
                lost = error  # it may have been started all the same
                await asyncio.sleep(pause(number, error))
            except PermanentError as error:
                if number == 1 or "already" not in str(error):
                    raise  # an earlier, late request of ours has started it after all
            try:
                return await self._wait(name, limit), began
            except _Unknown as error:
                if lost is None:
                    raise SandboxGone(
                        f"the sandbox {self.link.name} has forgotten a command that it had started"
                    ) from error
                if number == _START_TRIES:
                    raise lost from error
        raise AssertionError("unreachable")

    async def _wait(self, name: str, limit: int) -> ProcessResponse | None:
        deadline = time.monotonic() + limit + GRACE_SECONDS
        failures = 0
        while (left := deadline - time.monotonic()) > 0:
            piece = min(left, _PIECE_SECONDS)
            try:
                async with asyncio.timeout(piece + 30):
                    return await self.link.box.process.wait(
                        name, max_wait=int(piece * 1000) + 1, interval=250
                    )
            except TimeoutError as error:
                if error.__cause__ is not None:  # the SDK was told of failures meanwhile, and has waited on
                    await self.link.check_record()
            except Exception as error:
                if self.link.closed:
                    raise self.link.gone() from error
                failures += 1
                failure = classify(error, f"waiting for a command in {self.link.name}")
                if not_found_inside(error):
                    raise _Unknown(name) from error
                if not isinstance(failure, TransientError) or failures == _WAIT_TRIES:
                    raise failure from error
                await asyncio.sleep(min(pause(failures, failure), max(0.0, deadline - time.monotonic())))
        await self.kill(name)
        return None

    async def kill(self, name: str) -> bool:
        """End a command that the service was asked to start, by name or pid, with its process group.

        Whether there was something to end. Raises ProviderError.
        """

        async def kill() -> bool:
            try:
                await self.link.box.process.kill(name)
            except Exception as error:
                if not_found_inside(error):
                    return False
                raise
            return True

        return await self.link.ask("ending a command", kill)

    async def _end_cancelled(self, name: str, mark: str) -> None:
        """Nobody waits for this: what fails here, the command's own deadline or the sandbox's end will do."""
        try:
            for _ in range(3):
                if await self.kill(name):
                    break
                await asyncio.sleep(0.5)  # its start may still be on the way
            await self.sweep(mark)
        except ProviderError:
            return

    # -- the result ---------------------------------------------------------------------------------------------

    async def _result(
        self,
        name: str,
        ended: ProcessResponse | None,
        order: Order,
        status: Any,
        exit_code: int | None = None,
        *,
        seconds: float,
    ) -> Exec:
        streams = await self._streams(name, ended)
        lost = [len(data) >= _KEPT_BYTES - 8 for data in (streams.stdout, streams.stderr, streams.both)]
        stdout, cut_out = cut(streams.stdout, order.max_output, head_lost=lost[0])
        stderr, cut_err = cut(streams.stderr, order.max_output, head_lost=lost[1])
        both, _ = cut(streams.both or streams.stdout + streams.stderr, order.max_output, head_lost=lost[2])
        return Exec(status, exit_code, stdout, stderr, both, cut_out or cut_err, seconds)

    async def _streams(self, name: str, ended: ProcessResponse | None) -> _Streams:
        if ended is not None:
            known = _Streams(_bytes(ended.stdout), _bytes(ended.stderr), _bytes(ended.logs))
            if max(len(known.stdout), len(known.stderr), len(known.both)) < _SHOWN_BYTES - 8:
                return known

        async def read() -> _Streams:
            # The SDK's method asks for all streams, and hands out one of them.
            response = await self.link.client.get(f"/process/{name}/logs")
            self.link.box.process.handle_response_error(response)
            body = response.content
            parse = _parse_logs
            return parse(body) if len(body) < _THREAD_BYTES else await asyncio.to_thread(parse, body)

        return await self.link.ask("reading a command's output", read)


class _Unknown(Exception):
    """The sandbox knows no command of that name."""


def _parse_logs(body: bytes) -> _Streams:
    table = json.loads(body)
    return _Streams(*(_bytes(table.get(key)) for key in ("stdout", "stderr", "logs")))


def _bytes(text: Any) -> bytes:
    return text.encode("utf-8", "replace") if isinstance(text, str) else b""


def _by_signal(ended: ProcessResponse) -> bool:
    """Killed through the API, at its deadline, or by a signal from inside."""
    return str(ended.status) in {"killed", "stopped"} or int(ended.exit_code) < 0


def _whole_line(order: Order) -> str:
    """The directory, made where it is the one that every sandbox has, and then the command in a shell of its own."""
    where = shlex.quote(order.cwd)
    make = f"mkdir -p {where} && " if order.cwd == WORKDIR else ""
    both = " 2>&1" if order.merged else ""
    return f"{make}cd -- {where} || exit 126; exec /bin/sh -c {shlex.quote(order.line)}{both}"


# Exit code 0: nothing carries the mark any more; 1: something would not end; 3: this image cannot tell.
_SWEEP = r"""
mark=%s
command -v grep >/dev/null 2>&1 && [ -r /proc/self/environ ] || exit 3
n=0
while [ "$n" -lt 25 ]; do
  found=$(grep -lsF -e "$mark" /proc/[0-9]*/environ 2>/dev/null)
  [ -z "$found" ] && exit 0
  for one in $found; do one=${one#/proc/}; kill -9 "${one%%/environ}" 2>/dev/null; done
  n=$((n + 1))
  if [ "$n" -gt 10 ]; then sleep 1; fi
done
exit 1
"""
