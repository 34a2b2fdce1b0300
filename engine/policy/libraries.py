"""``renderers`` and ``transformers``, imported with no more than what is used here.

``renderers`` imports its HTTP client, and with it the whole of ``openai``, for the names of two errors: a second, and
27 MiB. Nothing here speaks to an engine through it; who does still can, for the client is loaded when something else
of it is asked for.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

_CLIENT = "renderers.client"
_ERRORS = ("OverlongPromptError", "MalformedGenerateResponseError")


class _Deferred(ModuleType):
    """``renderers.client``: the errors that the package names, and the rest when it is asked for."""

    OverlongPromptError = type(_ERRORS[0], (Exception,), {"__module__": _CLIENT})
    MalformedGenerateResponseError = type(_ERRORS[1], (ValueError,), {"__module__": _CLIENT})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever walks through the modules does not want it loaded
            raise AttributeError(name)
        sys.modules.pop(_CLIENT, None)
        module = importlib.import_module(_CLIENT)
        package = sys.modules["renderers"]
        for error in _ERRORS:
            setattr(package, error, getattr(module, error))
        return getattr(module, name)


def import_renderers() -> None:
    """Import ``renderers``. Blocks, for a fraction of a second the first time."""
    if "renderers" in sys.modules:
        return
    deferred = sys.modules.setdefault(_CLIENT, _Deferred(_CLIENT))
    package = importlib.import_module("renderers")
    package.__dict__.setdefault("client", deferred)  # as an import of it would have left it


def import_transformers() -> None:
    """Import what chooses a tokenizer's class in ``transformers``. Blocks, for about two seconds the first time."""
    # It says on stderr that it found no PyTorch, which a terminal application must not.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    importlib.import_module("transformers.models.auto.tokenization_auto")
