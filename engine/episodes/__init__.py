"""What an episode's author imports.

Episodes written for the Loops cookbook say ``from loops_cookbook.episodes import …``; where that package is not
installed, ``engine/stand_ins`` answers for it with the names of this one.
"""

from __future__ import annotations

from typing import Any

from engine.episodes.contract import (
    Episode,
    Grading,
    GroupAttempt,
    Metadata,
    Sampling,
    SandboxNotConfigured,
    Setup,
    Task,
)
from engine.policy.conversation import (
    ContextWindowExceeded,
    Conversation,
    MalformedToolCall,
    Model,
    Reply,
    ToolCall,
)
from engine.sandboxes.contract import Blaxel, Local

__all__ = [
    "Blaxel",
    "ContextWindowExceeded",
    "Conversation",
    "Episode",
    "Grading",
    "GroupAttempt",
    "Local",
    "MalformedToolCall",
    "Metadata",
    "Model",
    "Reply",
    "Sampling",
    "SandboxNotConfigured",
    "Setup",
    "Task",
    "ToolCall",
    "create_runtime",
]


def create_runtime(*_: Any, **__: Any) -> None:
    """The name that ``[runtime] factory`` carries in configs of the cookbook; the engine builds the runtime itself."""
    raise RuntimeError(
        "engine.episodes:create_runtime names the built-in runtime and is not called by itself"
    )
