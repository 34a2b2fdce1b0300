"""A checkpoint while Loops writes it."""

from __future__ import annotations

from typing import Any

from engine.loops.errors import SaveFailed, explain


class Saving:
    """A checkpoint that Loops is writing."""

    def __init__(self, name: str, state: Any, weights: Any, url: str | None) -> None:
        self.name, self._state, self._weights, self._url = name, state, weights, url

    async def paths(self) -> tuple[str, str]:
        """Wait for the end; the addresses of trainer state and sampler weights as Loops gave them.

        Raises:
            SaveFailed: with one sentence; one of the two may have been saved.
        """
        try:
            state = await self._state.result_async()
            weights = await self._weights.result_async()
        except Exception as error:
            raise SaveFailed(explain(error, f"saving {self.name}", self._url)) from error
        if not state.path or not weights.path:
            raise SaveFailed(f"Loops saved {self.name} without saying where")
        return str(state.path), str(weights.path)
