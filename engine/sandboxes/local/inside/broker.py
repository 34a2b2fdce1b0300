"""The broker: a small process that forks a keeper for every sandbox. It has one thread and an empty environment.

It is spoken to over a SOCK_SEQPACKET connection, one JSON object a message: ``{"op": "create", "id": 7, "config": …}``
with two descriptors attached: the keeper's end of a stream connection to the engine, and an open file into which the
keeper writes who it is before it makes anything, so that any process can find it later. There is an answer only
where no keeper could be forked. The broker ends when the connection or the engine's process does.
"""

from __future__ import annotations

import codecs
import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from . import bubblewrap, linux
from .keeper import run_keeper

MAX_MESSAGE = 128 * 1024
_NOBODY = 65534


def main(descriptor: int, engine_pid: int) -> None:
    """Serve until the engine is gone. ``descriptor``: the connection."""
    os.chdir("/")
    os.umask(0o022)
    engine = os.pidfd_open(engine_pid)
    if os.getppid() != engine_pid:
        return
    # The library may lie where only root can read it: what is loaded late is loaded now.
    for encoding in ("ascii", "utf-8"):
        codecs.lookup(encoding)
    if os.geteuid() == 0:
        # The limits on processes do not hold for root, and nothing here needs it.
        linux.become_user(_NOBODY, _NOBODY)
        linux.set_dumpable(True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave no zombies
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    bubblewrap.prepare()
    # What exists now is never freed: keepers then share its memory instead of copying it.
    gc.collect()
    gc.freeze()
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    poller.register(engine, select.POLLIN)
    connection.send(json.dumps({"op": "ready", "uid": os.geteuid()}).encode())
    while True:
        for fd, _ in poller.poll():
            if fd == engine:
                return
            data, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 2)
            if not data:
                return
            _create(json.loads(data), descriptors, connection, engine)


def _create(message: dict[str, Any], descriptors: list[int], connection: socket.socket, engine: int) -> None:
    me = os.getpid()
    pid = -1
    try:
        pid = os.fork()
    except OSError as error:
        said = f"the machine has no process left for a sandbox: {error.strerror}"
        connection.send(json.dumps({"id": message["id"], "error": said}).encode())
    if pid == 0:
        try:
            connection.close()
            os.close(engine)
            keeper_end = socket.socket(fileno=descriptors[0])
            keeper_end.set_inheritable(False)
            run_keeper(message["config"], keeper_end, descriptors[1], me)
        except BaseException as error:  # noqa: BLE001 - a forked child must never return into the broker's loop
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(1)
    for descriptor in descriptors:
        os.close(descriptor)
