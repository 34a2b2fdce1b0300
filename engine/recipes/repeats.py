"""Texts that come again and again: told a few times, then counted."""

from __future__ import annotations

#: How often the same text is told before it is only counted.
REPEATS_SHOWN = 3
#: Texts that differ each time are not worth remembering.
MAX_SAID = 1000


class Repeats:
    """One broken line of an episode fails every attempt: its text once more is no news."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}

    def news(self, text: str) -> str | None:
        """The text as it should be told now, or None where it need not be."""
        if len(self._said) > MAX_SAID:
            self._said.clear()
        said = self._said[text] = self._said.get(text, 0) + 1
        if said <= REPEATS_SHOWN:
            return text
        return f"{text} (said {said} times by now)" if said in (10, 100, 1000, 10_000) else None
