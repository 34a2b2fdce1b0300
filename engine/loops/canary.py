"""Do published weights really serve? The logprobs of a fixed sequence must change when the weights did.

On many servers they differ a little from call to call under the same weights, for the rounding depends on what else is
computed beside them. So they are asked for twice before the first publish, and a change must be larger than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from engine.loops.errors import LoopsError
from engine.loops.session import LoopsSession

#: Tokens of the sequence: enough to be moved by any update, few enough to cost nothing.
LENGTH = 32
SECONDS = 60.0
#: One failed look may be bad luck; after so many in a row nobody looks any more.
FAILURES = 3
#: A change must be so many times what two answers of the same weights differ by.
BEYOND_NOISE = 2.0


class Canary:
    """Looks after each publish. Never fails a run: it warns, and leaves off where Loops cannot answer.

    ``told``: a level and a sentence for the run's log.
    """

    def __init__(self, session: LoopsSession, told: Callable[[str, str], None]) -> None:
        self._session, self._told = session, told
        self._tokens: list[int] = []
        self._before: list[float | None] | None = None
        self._noise = 0.0
        self._off = self._warned = self._doubted = False
        self._failures = 0

    async def before_first(self, tokens: Sequence[int]) -> None:
        """The sequence to look at, from the first batch, and its logprobs under the weights that sampled it."""
        if self._off or self._tokens:
            return
        self._tokens = list(tokens[:LENGTH])
        self._before = await self._look()
        if self._before is not None and (again := await self._look()) is not None:
            self._noise = _apart(self._before, again)

    async def after_publish(self, step: int, gradient: float | None) -> dict[str, float]:
        """``canary/changed``: 1.0 or 0.0; nothing where that cannot be told or no change is due.

        ``canary/moved``: by how much, in nats of the logprob that changed most.

        ``step``: the update whose weights were published. ``gradient``: its norm, where the trainer told it.
        """
        if self._off or not self._tokens:
            return {}
        before, self._before = self._before, await self._look()
        if before is None or self._before is None or gradient == 0.0:
            return {}
        moved = _apart(before, self._before)
        if 0.0 < moved <= BEYOND_NOISE * self._noise:
            self._doubt()
            return {"canary/moved": moved}
        changed = moved > 0.0
        if not changed and not self._warned:
            self._warned = True
            self._told(
                "warning",
                f"after update {step} the sampler answers a fixed prompt exactly as before: it may still serve the old "
                "weights, and then samples are older than they say. Said once: the metric canary/changed tells of each "
                "step, and a restarted or fresh sampler helps (stop the run, then resume it)",
            )
        return {"canary/changed": float(changed), "canary/moved": moved}

    def _doubt(self) -> None:
        if not self._doubted:
            self._doubted = True
            self._told(
                "info",
                f"this sampler's answers to one prompt differ by up to {self._noise:.1e} under the same weights: whether a "
                "smaller update serves cannot be seen by them (no canary/changed then); kl_sample_train_k3 tells",
            )

    async def _look(self) -> list[float | None] | None:
        """The logprobs of the sequence now; None where they cannot be had."""
        try:
            async with asyncio.timeout(SECONDS):
                logprobs = await self._session.prompt_logprobs(self._tokens)
        except TimeoutError:
            return self._failed(f"it did not answer within {SECONDS:.0f} s")
        except LoopsError as error:
            return self._failed(str(error))
        if logprobs is None:
            self._failures = FAILURES
            return self._failed("it returns no logprobs of a prompt")
        self._failures = 0
        return logprobs

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._off = True
            self._told(
                "info",
                f"this sampler cannot be checked any more for new weights after a publish: {reason}",
            )


def _apart(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """The largest difference between two answers, in nats."""
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a is not None and b is not None]
    return max((abs(a - b) for a, b in pairs), default=0.0)
