"""A process that holds a sandbox as a run does, and stops itself at a named step, to be killed there.

``python -m tests.sandboxes.victim PROJECT STEP``. The step "using" prints the sandbox's name and waits for a line on
standard input, after which the process goes on to its end and prints "done".
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from engine.sandboxes import SandboxSettings
from engine.sandboxes.leases import LeaseKeeper
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.naming import project_label
from engine.store import Store
from engine.store.codec import encode_row, upsert_sql
from engine.store.processes import hostname, process_started
from engine.store.redact import Redactor
from engine.store.rows import HostRow

CREATING = (
    "intent committed",
    "state written",
    "keeper asked for",
    "sandbox ready",
    "created",
    "active committed",
)
RELEASING = (
    "releasing committed",
    "keeper ended",
    "directory removed",
    "released by the provider",
    "release committed",
)


def become_host(store: Store, host_id: str) -> None:
    """Claim to be a living host."""
    started = process_started(os.getpid())
    assert started is not None
    row = HostRow(host_id, os.getpid(), started, hostname(), "headless", time.time(), time.time() + 3600)
    columns = encode_row(row, Redactor([]))
    store.submit(lambda connection: connection.execute(upsert_sql(HostRow), columns)).result(120)


async def hold(project: Path, step: str, isolation: str) -> None:
    def hook(name: str) -> None:
        if name == step and holding:
            os.kill(os.getpid(), signal.SIGSTOP)

    holding = False
    host = f"host-{os.getpid()}"
    settings = SandboxSettings(isolation=isolation)
    with Store.open(project) as store:
        become_host(store, host)
        provider = LocalProvider(project, settings, hook=hook)
        await provider.probe()
        holding = True
        keeper = LeaseKeeper(
            store, provider, settings, project=project_label(project), run_id="run-1", host_id=host, hook=hook
        )
        leased = await keeper.acquire(group_id=1, attempt=2)
        await leased.sandbox.write_tree({"locked/file": "x"})
        await leased.sandbox.exec(
            "setsid sleep 1001 & (trap '' TERM; setsid sleep 1002) & chmod 000 locked", timeout=60
        )
        if step == "using":
            print(leased.name, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            await leased.sandbox.ensure_alive()
        hook("used")
        await keeper.release(leased)
        await provider.aclose()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(hold(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "auto"))
