"""What one server process is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

#: The model that ships with the package, and the one a server offers when nothing else is asked for.
SHIPPED_MODEL = "loops-demo-1m"
SHIPPED_MODEL_DIR = Path(__file__).parent / "models" / SHIPPED_MODEL


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Everything that differs between two servers."""

    state_dir: Path
    key: str
    models: dict[str, Path] = field(default_factory=dict)
    default_model: str = SHIPPED_MODEL
    #: How long a poll of an unfinished operation is held. The SDK checks its own deadline between polls.
    poll_hold_seconds: float = 5.0
    #: How long a sample waits for a policy version that is not live yet.
    version_wait_seconds: float = 60.0
    #: Sequences decoded at once, over all policies; the rest wait in order.
    max_live_sequences: int = 64
    #: Policy versions of a run whose adapters stay in memory (named ones are on disk besides).
    kept_versions: int = 8
    #: Memory for merged weights of policies that are not being decoded right now.
    weights_cache_bytes: int = 512 * 1024 * 1024
    #: Prompt and training tokens handled in one slice.
    slice_tokens: int = 2048
