"""Which task a group works on, and the seed of each sampling call: pure functions of the run's seed."""

from __future__ import annotations

import hashlib
import random

#: In place of an attempt's number: a call for all of them.
WHOLE_GROUP = -1


class TaskOrder:
    """Passes over the tasks, each shuffled by (seed, pass) alone, so that any group's task can be recomputed."""

    def __init__(self, count: int, seed: int, shuffle: bool) -> None:
        self._count, self._seed, self._shuffle = count, seed, shuffle
        self._cached: tuple[int, list[int]] = (-1, [])

    def of(self, group_id: int) -> tuple[int, int]:
        """(task index, pass) of a group."""
        epoch, place = divmod(group_id, self._count)
        if self._cached[0] != epoch:
            order = list(range(self._count))
            if self._shuffle:
                random.Random(f"tasks/{self._seed}/{epoch}").shuffle(order)
            self._cached = (epoch, order)
        return self._cached[1][place], epoch


def sampling_seed(seed: int, group_id: int, attempt: int, tried: int, call: int) -> int:
    """A seed for one sampling call: distinct for each, and the same whatever order calls are made in."""
    text = f"sample/{seed}/{group_id}/{attempt}/{tried}/{call}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) >> 1
