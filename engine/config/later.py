"""Keys that configs for other tools or of later versions use and that this version refuses by name."""

from __future__ import annotations

_LATER = frozenset(
    {
        "compute.reuse",
        "console",
        "output.console",
        "output.wandb_entity",
        "output.wandb_project",
        "runtime.config.execution_sandbox",
        "runtime.config.grading_sandbox",
    }
)


def is_later(key: str) -> bool:
    """Whether ``key`` or a table around it belongs to a later version."""
    parts = key.split(".")
    return any(".".join(parts[:end]) in _LATER for end in range(1, len(parts) + 1))
