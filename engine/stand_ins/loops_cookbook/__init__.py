"""Stand-in for the Loops cookbook where that package is not installed, by loops-tui: its episodes and its library.

The directory above comes last on Python's search path (``pyproject.toml`` sees to it), so the real one wins.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

#: What of the cookbook has a stand-in.
KNOWN = ("loops_cookbook.episodes", "loops_cookbook.project")


class _Refusal:
    """Comes after all finders, so that it is asked only for what none of them has found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name.startswith(f"{__name__}."):
            _refuse(name)


def __getattr__(name: str) -> NoReturn:
    whole = f"{__name__}.{name}"
    if name.startswith("_") or whole in KNOWN:  # what Python looks for, and what is still to be imported
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _refuse(whole)


def _refuse(name: str) -> NoReturn:
    told = f"{name} is not available in this version of loops-tui; of the cookbook, only {' and '.join(KNOWN)} are"
    raise ModuleNotFoundError(told, name=name)


sys.meta_path.append(_Refusal)  # type: ignore[arg-type] - a finder may be a class
