"""One key after the other.

Textual hands a key to the widget with the focus and goes on at once with the next one. What a key is bound to happens
only when no widget wanted it and it has come all the way up to the app; a letter is taken by the widget itself. So where
keys come in one burst (a slow line sends what was typed together) a letter overtakes the backspace before it, and what
follows "/" goes to the rows instead of the filter, because the focus is moved later. Here a key waits until the one
before it has been everywhere, and what that one has caused as well.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, Key
from textual.message_pump import MessagePump
from textual.timer import Timer

#: How long a key may be on its way. A widget that goes away may take the news of its end with it.
ON_ITS_WAY_SECONDS = 1.0
#: Ways behind a key: its own; that of the message it made a widget post; that of the focus this moved.
WAYS = 3


class OneKeyApp[ResultT](App[ResultT]):
    """An app in which keys never overtake each other."""

    def __init__(self, **settings: Any) -> None:
        """``settings`` are those of Textual's ``App``."""
        self._keys: deque[Key] = deque()  # that wait for the one on its way
        self._on_its_way: Timer | None = None
        super().__init__(**settings)

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Key) or event.is_forwarded:
            await super().on_event(event)
        elif self._on_its_way is not None:
            self._keys.append(event)
        else:
            await self._send(event)

    async def _send(self, key: Key) -> None:
        first = self.focused or self.screen
        self._on_its_way = self.set_timer(ON_ITS_WAY_SECONDS, self._arrived, name="a key's way")
        await super().on_event(key)
        self._follow(first, self._on_its_way, WAYS)

    def _follow(self, node: MessagePump | None, journey: Timer, ways: int) -> None:
        """Go the way of a key, behind it: from queue to queue, from the widget up to the app."""
        while node is not None and node is not self:
            above = node.parent if isinstance(node, DOMNode) else None
            if node.call_later(self._follow, above, journey, ways):
                return
            node = above  # it is going away, and takes no more messages
        if not self.call_later(self._arrived_at, journey, ways):
            journey.stop()

    async def _arrived_at(self, journey: Timer, ways: int) -> None:
        if journey is not self._on_its_way:
            return
        if ways > 1 and self._keys:
            self._follow(self.focused or self.screen, journey, ways - 1)
        else:
            await self._arrived()

    async def _arrived(self) -> None:
        """The key has been everywhere: the next one may go."""
        if self._on_its_way is not None:
            self._on_its_way.stop()
            self._on_its_way = None
        if self._keys:
            await self._send(self._keys.popleft())
