"""The marker of Blaxel's sandboxes: ``require_sandbox(Blaxel)`` gives the SDK's own."""

from engine.episodes import Blaxel

__all__ = ["Blaxel"]
