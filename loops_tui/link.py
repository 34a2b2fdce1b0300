"""The engine behind the app: the project's store, and the runs that live in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loops_tui.ports import Hosting

if TYPE_CHECKING:
    from engine.store.store import Store


def open_store(project_dir: Path) -> Store:
    """The project's store; made where there is none. Raises StoreError."""
    from engine.store.store import Store

    return Store.open(project_dir)


def make_hosting(project_dir: Path) -> Hosting:
    raise NotImplementedError
