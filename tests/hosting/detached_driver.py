"""``engine.hosting.detached`` with an obedient recipe and no server."""

from __future__ import annotations

import functools
import sys

from engine.hosting import detached, headless
from tests.hosting.driver import _sound
from tests.hosting.stand_ins import AddressOnly, obedient

if __name__ == "__main__":
    headless.require_sound = _sound
    headless.LocalServer = AddressOnly
    detached.run_headless = functools.partial(headless.run_headless, train=obedient)
    sys.exit(detached.main())
