"""Do published weights really serve? The logprobs of a fixed sequence must change when the weights did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from engine.loops.errors import LoopsError
from engine.loops.session import LoopsSession

#: Tokens of the sequence: enough to be moved by any update, few enough to cost nothing.
LENGTH = 32
SECONDS = 60.0


class Canary:
    """Looks after each publish. Never fails a run: it warns, once, and leaves off where Loops cannot answer.

    ``told``: a level and a sentence for the run's log.
    """

    def __init__(self, session: LoopsSession, told: Callable[[str, str], None]) -> None:
        self._session, self._told = session, told
        self._tokens: list[int] = []
        self._before: list[float | None] | None = None
        self._off = self._warned = False

    async def before_first(self, tokens: Sequence[int]) -> None:
        """The sequence to look at, from the first batch, and its logprobs under the weights that sampled it."""
        if self._off or self._tokens:
            return
        self._tokens = list(tokens[:LENGTH])
        self._before = await self._look()

    async def after_publish(self, gradient: float | None) -> dict[str, float]:
        """``canary/changed``: 1.0 or 0.0; nothing where that cannot be told or no change is due.

        ``gradient``: its norm, where the trainer told it.
        """
        if self._off or self._before is None:
            return {}
        now = await self._look()
        if now is None or gradient == 0.0:
            return {}
        changed = now != self._before
        self._before = now
        if not changed and not self._warned:
            self._warned = True
            self._told(
                "warning",
                "the sampler answers as before the last publish: the new weights may not serve "
                "(said once; see the metric canary/changed)",
            )
        return {"canary/changed": float(changed)}

    async def _look(self) -> list[float | None] | None:
        try:
            async with asyncio.timeout(SECONDS):
                logprobs = await self._session.prompt_logprobs(self._tokens)
            reason = "it returns no logprobs of a prompt"
        except TimeoutError:
            logprobs, reason = None, f"it did not answer within {SECONDS:.0f} s"
        except LoopsError as error:
            logprobs, reason = None, str(error)
        if logprobs is None:
            self._off = True
            self._told("info", f"this sampler cannot be checked for new weights after a publish: {reason}")
        return logprobs
