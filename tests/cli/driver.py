"""``loops-tui`` with an obedient recipe and no server: ``python -m tests.cli.driver run direct/train.toml``."""

from __future__ import annotations

import functools

from engine.hosting import headless
from loops_tui import cli
from tests.hosting.driver import _sound
from tests.hosting.stand_ins import AddressOnly, obedient

if __name__ == "__main__":
    headless.require_sound = _sound
    headless.LocalServer = AddressOnly
    headless.run_headless = functools.partial(headless.run_headless, train=obedient)
    cli.main()
