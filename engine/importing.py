"""Importing something large while somebody waits for this process to answer."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import in here what is large and stays for good.

    It makes some hundred thousand objects. Python's collector would walk over all of them, and over those before them,
    again and again, and no other thread runs for the 30 to 100 ms which each time takes. So it is off meanwhile, and
    never looks at what is there afterwards.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collected:
            gc.enable()
