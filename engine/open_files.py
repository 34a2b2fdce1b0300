"""How many files this process may have open: each attempt that waits for a reply holds a connection of its own.

Systems let a process begin with a low limit (1,024 often) that it may raise itself. It is low for the sake of programs
that wait with ``select``, which knows no higher numbers; the engine does not. Commands in local sandboxes get a limit of
their own (``max_open_files``); other programs that this process starts inherit its.
"""

from __future__ import annotations

import logging
import resource

#: More are not asked for: some programs go through all numbers up to the limit when they start.
MOST = 65_536

log = logging.getLogger(__name__)


def allowed() -> int:
    """How many this process may have open once it has raised its limit."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now == resource.RLIM_INFINITY:
        return MOST
    return max(now, MOST if most == resource.RLIM_INFINITY else min(most, MOST))


def raise_limit() -> None:
    """Raise the limit to what is ``allowed``; where the system does not let us, it stays as it is."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = allowed()
    if now == resource.RLIM_INFINITY or now >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays at %d: %s", now, error)
