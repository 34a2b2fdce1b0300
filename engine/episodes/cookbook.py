"""Lets an episode written for the Loops cookbook import its names although that package is not installed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from engine import episodes


def answer_for_cookbook() -> bool:
    """Register ``loops_cookbook.episodes`` as another name of ``engine.episodes``, with ``.blaxel`` below it.

    Does nothing, and returns False, where the real package can be imported: its own episodes are not ours to replace.
    """
    if "loops_cookbook" in sys.modules:
        return getattr(sys.modules["loops_cookbook"], "__loops_tui_stand_in__", False)
    if importlib.util.find_spec("loops_cookbook") is not None:
        return False
    package = ModuleType(
        "loops_cookbook", "Stand-in for the Loops cookbook: only its episodes, by loops-tui."
    )
    package.__path__ = []
    setattr(package, "__loops_tui_stand_in__", True)  # noqa: B010 - a module has no such declared attribute
    setattr(package, "episodes", episodes)  # noqa: B010
    sys.modules["loops_cookbook"] = package
    sys.modules["loops_cookbook.episodes"] = episodes
    blaxel = ModuleType("loops_cookbook.episodes.blaxel", "Stand-in: the marker of Blaxel's sandboxes.")
    setattr(blaxel, "Blaxel", episodes.Blaxel)  # noqa: B010
    sys.modules["loops_cookbook.episodes.blaxel"] = blaxel
    return True
