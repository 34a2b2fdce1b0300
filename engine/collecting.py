"""Python's collector, in a process with much that stays.

It looks for unused cycles of objects, and no thread runs meanwhile. What it looks through in full is everything that
has lived for a while: the libraries' half a million objects and those of hundreds of attempts, for a tenth of a second
and more each time. The engine leaves few cycles behind (see ``engine.loops.releasing``): its objects leave memory as
soon as nobody needs them.
"""

from __future__ import annotations

import gc

#: Passes over young objects and over those that outlived one, before everything is looked through (10 by default).
FULL_AFTER = 50


def spare_what_stays() -> None:
    """Never look again at what is there now, and seldom at what comes to stay. For after start-up."""
    gc.freeze()
    youngest, young, _ = gc.get_threshold()
    gc.set_threshold(youngest, young, FULL_AFTER)
