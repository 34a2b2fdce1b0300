"""Faults that are injected: what, where, how often. Seeded, so that a run of tests can be had again."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

type FaultKind = Literal[
    "latency",  # wait ``seconds``, then go on
    "status",  # answer ``status`` as JSON (429 with Retry-After), the request has no effect
    "html",  # answer a proxy's HTML page with ``status``, no effect
    "drop",  # close the connection, no effect
    "hang",  # no effect and no answer until the edge's time is over
    "slow_reply",  # the effect at once, its reply ``seconds`` later
    "lost_reply",  # the effect, then the connection is closed without a reply
    "late_failure",  # the effect, then a proxy's HTML page with ``status`` in place of the reply
    "slow_delete",  # a deletion takes ``seconds``
    "die",  # a sandbox ends by itself ``seconds`` after its creation; ``how``: terminated or failed
    "slow_command",  # a command starts ``seconds`` late
    "hung_command",  # a command does nothing and never ends
]
KINDS: tuple[str, ...] = get_args(FaultKind.__value__)
CREATE = r"^POST /v0/sandboxes$"
DELETE = r"^DELETE /v0/sandboxes/"
RECORDS = r"^(GET|PUT) /v0/sandboxes"
PLANE = r"/sandboxes/[^/]+/(process|filesystem)"


@dataclass
class Fault:
    """One rule. ``where``: a regular expression on "METHOD /path", and for the kinds of command also on the command
    that follows; ``seconds``: a number, or from and to."""

    kind: FaultKind
    where: str = ""
    probability: float = 1.0
    count: int | None = None  # how often at most
    seconds: float | tuple[float, float] = 1.0
    status: int = 503
    retry_after: float | None = None
    code: str = ""
    how: Literal["terminated", "failed"] = "terminated"
    used: int = field(default=0)

    def __post_init__(self) -> None:
        """Raises ValueError for what can never be a fault."""
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is no kind of fault; there are {', '.join(KINDS)}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"the probability {self.probability} of a fault must be from 0 to 1")
        if isinstance(self.seconds, list):
            self.seconds = (float(self.seconds[0]), float(self.seconds[1]))
        re.compile(self.where)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Faults:
    """The rules in force and the dice."""

    def __init__(self, rules: Iterable[Fault] = (), seed: int = 0) -> None:
        self.rules = list(rules)
        self._dice = random.Random(seed)

    def draw(self, subject: str, kinds: Iterable[str]) -> list[Fault]:
        """The faults of these kinds that hit this request, each rule thrown for on its own."""
        hit: list[Fault] = []
        for rule in self.rules:
            if rule.kind not in kinds or not re.search(rule.where, subject):
                continue
            if (
                rule.count is not None and rule.used >= rule.count
            ) or self._dice.random() >= rule.probability:
                continue
            rule.used += 1
            hit.append(rule)
        return hit

    def seconds(self, fault: Fault) -> float:
        if isinstance(fault.seconds, tuple):
            return self._dice.uniform(*fault.seconds)
        return float(fault.seconds)

    def abrupt(self) -> bool:
        """Whether a dropped connection is reset rather than closed."""
        return self._dice.random() < 0.5


def every_kind(probability: float, *, scale: float = 1.0) -> list[Fault]:
    """A rule of every kind, each at this probability (those that take a minute, at a fifth of it).

    ``scale`` stretches their times.
    """
    return [
        Fault("latency", probability=probability, seconds=(0.2 * scale, 1.0 * scale)),
        Fault("status", CREATE, probability, status=429, retry_after=1, code="RATE_LIMIT_EXCEEDED"),
        Fault("status", CREATE, probability, status=403, code="QUOTA_EXCEEDED"),
        Fault("status", f"{DELETE}|{RECORDS}|{PLANE}", probability, status=429, retry_after=1),
        Fault("status", probability=probability, status=500),
        Fault("status", probability=probability, status=503, code="SERVICE_UNAVAILABLE"),
        Fault("html", probability=probability, status=502),
        Fault("html", probability=probability, status=504),
        Fault("drop", probability=probability),
        Fault("hang", probability=probability / 5),
        Fault("lost_reply", probability=probability),
        Fault("late_failure", probability=probability, status=504),
        Fault("slow_reply", CREATE, probability, seconds=(0.5 * scale, 3.0 * scale)),
        Fault("slow_delete", DELETE, probability, seconds=(1.0 * scale, 5.0 * scale)),
        Fault("die", CREATE, probability / 2, seconds=(0.0, 3.0 * scale), how="terminated"),
        Fault("die", CREATE, probability / 2, seconds=(0.0, 3.0 * scale), how="failed"),
        Fault("slow_command", PLANE, probability, seconds=(0.2 * scale, 1.0 * scale)),
        Fault("hung_command", PLANE, probability / 5),
    ]
