"""Limits on how many attempts do the same thing at once, as one attempt meets them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol


class Places(Protocol):
    """Room for the parts of an attempt whose number is limited. ``waiting`` is called if there is none at once."""

    def sampling(self, waiting: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Held while ``run`` runs, for each try."""
        ...

    def grading(self, waiting: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Held while ``grade`` runs."""
        ...


class Unlimited:
    """Places without a limit."""

    def sampling(self, waiting: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def grading(self, waiting: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return nullcontext()
