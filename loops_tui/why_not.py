"""What an app says when a key does nothing: a key of the screen that makes no sense just now tells why."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from textual.notifications import SeverityLevel

from loops_tui.readonly import name_of
from loops_tui.sparing import SparingApp


@runtime_checkable
class Explains(Protocol):
    """A screen that knows why one of its keys does nothing."""

    def why_not(self, action: str) -> str | None:
        """Why the action (its name, as in ``action_<name>``) makes no sense now, in a sentence; None: nothing to say."""
        ...


class TellingApp[ResultT](SparingApp[ResultT]):
    """An app in which no key is mute, and nothing is told twice at the same time."""

    def may(self, action: str) -> bool:
        """Whether the action is allowed at all; what is not is told elsewhere."""
        del action
        return True

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        if await super()._check_bindings(key, priority):
            return True
        screen = self.screen
        if not priority and isinstance(screen, Explains):
            bindings = screen._bindings.key_to_bindings.get(key, ())
            names = [name for name in (name_of(binding.action) for binding in bindings) if self.may(name)]
            reasons = [reason for name in names if (reason := screen.why_not(name))]
            if reasons:
                self.notify(reasons[0], severity="warning", markup=False)
        return False

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        shown = {(told.message, told.title) for told in self._notifications}
        if (message, title) not in shown:
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)
