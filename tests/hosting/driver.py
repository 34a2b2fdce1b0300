"""A headless run in a process of its own: ``python -m tests.hosting.driver PROJECT_DIR RECIPE [CONFIG]``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from engine.hosting import headless
from tests.hosting.stand_ins import RECIPES, AddressOnly


async def _sound(*_: Any) -> None:
    """Checking has tests of its own."""


def main() -> int:
    project_dir = Path(sys.argv[1])
    config = sys.argv[3] if len(sys.argv) > 3 else "direct/train.toml"
    headless.require_sound = _sound
    headless.LocalServer = AddressOnly
    end = asyncio.run(
        headless.run_headless(
            config,
            [],
            project_dir,
            train=RECIPES[sys.argv[2]],
            told=lambda text: print(text, flush=True),
            claimed=lambda run_id: print(f"claimed {run_id}", flush=True),
        )
    )
    return end.status


if __name__ == "__main__":
    sys.exit(main())
