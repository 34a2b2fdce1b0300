"""A group of the schedule from its beginning until it is trained on or rejected."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from engine.recipes.rl.groups import Group


@dataclass(slots=True, eq=False)
class Kept:
    """A group that has begun and is neither rejected nor trained on."""

    group: Group
    tasks: list[asyncio.Task[None]] = field(default_factory=list)  # of the attempts that have begun
    left: int = 0  # attempts that have not ended
    in_hand: bool = False  # once it may sample; a pause does not hold it any more
    sampled: bool = False

    @property
    def all_begun(self) -> bool:
        return len(self.tasks) == self.group.size

    @property
    def usable(self) -> bool:
        return self.group.verdict is not None and self.group.verdict.usable
