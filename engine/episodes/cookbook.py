"""Lets an episode written for the Loops cookbook import its names although that package is not installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import engine

STAND_INS = Path(engine.__file__).parent / "stand_ins"


def answer_for_cookbook() -> None:
    """Make ``loops_cookbook`` importable, as installing loops-tui does; for a source tree that is merely on the path.

    The real package, where it can be imported, keeps its name: its own episodes are not ours to replace.
    """
    if "loops_cookbook" not in sys.modules and importlib.util.find_spec("loops_cookbook") is None:
        sys.path.append(str(STAND_INS))
