"""``python -m tests.blaxel_emulator [--port 0] [--faults 0.05]``: prints ``{"url", "workspace", "key"}`` and serves."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.blaxel_emulator.faults import Fault, every_kind
from tests.blaxel_emulator.records import Settings
from tests.blaxel_emulator.serving import emulator


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.blaxel_emulator", description=(__doc__ or "").strip()
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.0, help="the probability of each kind of fault")
    parser.add_argument("--max-live", type=int, help="the account's quota")
    parser.add_argument("--json", default="{}", help="settings, faults and seed as one JSON value")
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when standard input is closed")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    told = json.loads(chosen.json)
    settings = Settings(**told.get("settings", {}))
    if chosen.max_live is not None:
        settings = dataclasses.replace(settings, max_live=chosen.max_live)
    faults = [Fault(**fault) for fault in told.get("faults", [])]
    if chosen.faults > 0:
        faults += every_kind(chosen.faults)
    asyncio.run(serve(settings, faults, told.get("seed", chosen.seed), chosen))
    return 0


async def serve(settings: Settings, faults: list[Fault], seed: int, chosen: Any) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    if chosen.exit_with_stdin:
        loop.add_reader(0, lambda: None if os.read(0, 4096) else asked.set())
    with tempfile.TemporaryDirectory(prefix="blaxel-emulator-") as place:
        async with emulator(Path(place), settings, faults, seed=seed, port=chosen.port) as served:
            print(
                json.dumps({"url": served.url, "workspace": settings.workspace, "key": settings.key}),
                flush=True,
            )
            await asked.wait()


if __name__ == "__main__":
    sys.exit(main())
