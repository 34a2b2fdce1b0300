"""Sandboxes on this machine."""

from engine.sandboxes.local.provider import LocalProvider

__all__ = ["LocalProvider"]
