"""Work that holds the event loop for milliseconds, spread over the loop's turns.

Hundreds of attempts become ready at the same moment: their slots, their tools or their replies come in bursts. If each
of them rendered a prompt in the same turn of the loop, everything else would wait for a second. So such a piece of
work waits for a turn of its own; between two of them whatever else is due gets its chance. Nothing is slower for it:
the pieces follow each other as before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary


class Turns:
    """One piece of work in each turn of one event loop, in the order in which they were asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._soon = loop.call_soon
        self._future = loop.create_future
        self._taken = False  # whether this turn has its piece of work
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def mine(self) -> None:
        """Wait for a turn; what follows, up to the next wait, is its piece of work. At once where nobody waits."""
        if self._taken:
            turn = self._future()
            self._waiting.append(turn)
            await turn
        else:
            self._taken = True
            self._soon(self._next)

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled: whoever waited has gone
                turn.set_result(None)
                self._soon(self._next)  # after the piece of work, which is in the same turn
                return
        self._taken = False


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


async def turn_of_loop() -> None:
    """Wait for a turn of the running event loop (see ``Turns.mine``), which all runs on it share."""
    loop = asyncio.get_running_loop()
    turns = _of_loops.get(loop)
    if turns is None:
        turns = _of_loops[loop] = Turns(loop)
    await turns.mine()
