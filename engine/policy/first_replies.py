"""One call for the first replies of a group's attempts, where they all begin with the same tokens.

The sampler then reads the prompt once, and the client makes one request instead of one for each attempt. What an
attempt gets depends on its number, the group's seed and the prompt alone, not on which of them asks first. Nobody waits
for the others: the first to ask makes the call, for the whole group; whoever asks with another prompt, under another
policy, again after a failure or for a later reply makes a call of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from engine.policy.tokens import Completion, Sampler


class ManySampler(Protocol):
    """Whatever continues one prompt several times at once."""

    async def sample_many(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        max_tokens: int,
        seed: int | None,
        affinity_key: str | None,
    ) -> list[Completion]:
        """``count`` continuations, each drawn for itself; the same ones for the same seed."""
        ...


@dataclass(eq=False, slots=True)
class _Shared:
    """A group's call. ``version``: of the policy that was published when it was made."""

    prompt: list[int]
    max_tokens: int
    version: int
    call: asyncio.Task[list[Completion]]
    waiting: int = 0


class FirstReplies:
    """The groups' calls. Where a group's prompts differ, it gives up sharing for good: others' will differ as well.

    Args:
        version: of the policy that is published now.
        told: gets one sentence where sharing is given up.
    """

    def __init__(
        self, sampler: ManySampler, version: Callable[[], int], told: Callable[[str], None] = lambda _: None
    ) -> None:
        self._sampler, self._version, self._told = sampler, version, told
        self._shared: dict[int, _Shared] = {}
        self._off = False

    def of(self, group: int, count: int, attempt: int, seed: int, alone: Sampler) -> Sampler:
        """The sampler of attempt ``attempt`` of a group of ``count``; its later replies come from ``alone``.

        ``seed``: that of the group's call.
        """
        return _Once(partial(self.take, group, count, attempt, seed=seed), alone)

    def forget(self, group: int) -> None:
        """The group has ended: replies that nobody took leave memory."""
        self._shared.pop(group, None)

    async def take(
        self,
        group: int,
        count: int,
        attempt: int,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        seed: int,
        affinity_key: str | None,
    ) -> Completion | None:
        """An attempt's share of its group's call, or None where it has to make its own."""
        if self._off:
            return None
        shared = self._shared.get(group)
        if shared is None:
            call = self._sampler.sample_many(
                prompt, count, max_tokens=max_tokens, seed=seed, affinity_key=affinity_key
            )
            shared = self._shared[group] = _Shared(
                list(prompt), max_tokens, self._version(), asyncio.create_task(call, name=f"group {group}")
            )
        elif shared.prompt != list(prompt):
            self._off = True
            self._told(
                "attempts of one group begin with different prompts, so each makes its own first call "
                "([sampling] share_first_call has no effect)"
            )
            return None
        elif (shared.max_tokens, shared.version) != (max_tokens, self._version()):
            return None
        shared.waiting += 1
        try:
            return (await asyncio.shield(shared.call))[attempt]
        finally:
            shared.waiting -= 1
            abandoned = not shared.waiting and not shared.call.done()
            if abandoned:  # nobody is left to read it
                shared.call.cancel()
            if (abandoned or _failed(shared.call)) and self._shared.get(group) is shared:
                del self._shared[group]  # whoever comes later makes another one


def _failed(call: asyncio.Task[list[Completion]]) -> bool:
    return call.done() and (call.cancelled() or call.exception() is not None)


class _Once:
    """One attempt's sampler."""

    def __init__(self, take: Callable[..., Awaitable[Completion | None]], alone: Sampler) -> None:
        self._take, self._alone = take, alone
        self._first = True

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        if self._first:
            self._first = False
            reply = await self._take(prompt, max_tokens=max_tokens, affinity_key=affinity_key)
            if reply is not None:
                return reply
        return await self._alone.sample(prompt, max_tokens=max_tokens, seed=seed, affinity_key=affinity_key)
