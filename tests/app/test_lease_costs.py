"""What sandboxes cost, and which limits hold: in words, on the screen's details and in the list of leases."""

from __future__ import annotations

import pytest

from engine.store.leases import LeaseView
from engine.store.rows import LeaseRow, LeaseState, PaceRow
from loops_tui.lease_words import cost, cost_words, pace_words
from loops_tui.screens.sandboxes_text import lease_details, limits_words

NOW = 1_800_000_000.0


def lease(**changes: object) -> LeaseRow:
    row = LeaseRow("ltui-a", "blaxel", "remote", None, None, None, None, LeaseState.ACTIVE, NOW - 7200)
    row.memory_mb, row.price_per_gb_hour, row.active_at = 2048, 0.5, NOW - 3600
    for name, value in changes.items():
        setattr(row, name, value)
    return row


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, 1.0),
        ({"released_at": NOW - 1800}, 0.5),
        ({"ttl_seconds": 900.0}, 0.25),  # its provider has ended it by then
        ({"active_at": None}, 2.0),
        ({"price_per_gb_hour": None}, None),
        ({"memory_mb": None}, None),
        ({"price_per_gb_hour": 0.0}, 0.0),
    ],
)
def test_a_leases_cost(changes: dict[str, object], known: float | None) -> None:
    row = lease(**changes)
    assert cost(row, NOW) == (None if known is None else pytest.approx(known))
    assert cost_words(row, NOW) == ("–" if known is None else f"{known:.4f}")
    told = "".join(
        text for line in lease_details(LeaseView(row, None, None), NOW, 1, 100) for text, _ in line
    )
    assert ("cost" in told) is (known is not None)


def test_the_limits_that_hold() -> None:
    calm = PaceRow("blaxel", 64, 10.0, NOW, NOW)
    slowed = PaceRow("blaxel", 4, 0.5, NOW, NOW, "the account's quota is used up\x1b[2J")
    assert pace_words([calm]) == "blaxel: at most 64 at once, 10 made a second"
    assert limits_words([], [calm]) == ""
    assert limits_words([LeaseView(lease(), None, None)], [calm]) == pace_words([calm])
    said = limits_words([], [slowed])
    assert said.startswith(
        "blaxel: at most 4 at once, 0.5 made a second, lowered: the account's quota is used up"
    )
    assert "\x1b" not in said
