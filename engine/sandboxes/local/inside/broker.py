"""The broker: a small process that forks a keeper for every sandbox. It has one thread and an empty environment.

It is spoken to over a SOCK_SEQPACKET connection, one JSON object a message: ``{"op": "create", "id": 7, "config": …}``
with two descriptors attached: the keeper's end of a stream connection to the engine, and an open file into which the
keeper writes who it is before it makes anything, so that any process can find it later. There is an answer only
where no keeper could be forked. The broker ends when the connection or the engine's process does.

One keeper is always forked ahead and takes the next message itself, so that no sandbox waits for a fork.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys

from . import bubblewrap, linux, seccomp
from .keeper import MAX_MESSAGE, run_keeper

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
    # On a machine that runs out of memory a sandbox goes before anything else does.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(b"500")
    bubblewrap.prepare()
    seccomp.build(own_network=True)
    # What exists now is never freed: keepers then share its memory instead of copying it.
    gc.collect()
    gc.freeze()
    connection.send(json.dumps({"op": "ready", "uid": os.geteuid()}).encode())
    _serve(connection, engine)


def _serve(connection: socket.socket, engine: int) -> None:
    """Keep one idle keeper in stock until the engine is gone."""
    taken, taken_write = os.pipe2(os.O_CLOEXEC)
    while True:
        try:
            idle = _fork_keeper(connection, (engine, taken), taken_write)
        except OSError as error:
            _refuse(connection, f"the machine has no process left for a sandbox: {error.strerror}")
            continue
        try:
            watch = os.pidfd_open(idle)
        except ProcessLookupError:
            continue
        try:
            poller = select.poll()
            poller.register(connection, 0)  # its end alone: the messages are the idle keeper's
            for fd in (engine, taken, watch):
                poller.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poller.poll()}
        finally:
            os.close(watch)
        if ready & {engine, connection.fileno()}:
            return
        if taken in ready:
            os.read(taken, 1)


def _fork_keeper(connection: socket.socket, unneeded: tuple[int, ...], taken: int) -> int:
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            for fd in unneeded:
                os.close(fd)
            run_keeper(connection, taken, me)
        except BaseException as error:  # noqa: BLE001 - a forked child must never return into the broker's loop
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(1)
    return pid


def _refuse(connection: socket.socket, why: str) -> None:
    """Answer an order that nobody can take, if there is one."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    if not poller.poll(100):
        return
    data, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 2)
    for descriptor in descriptors:
        os.close(descriptor)
    if not data:
        raise SystemExit
    connection.send(json.dumps({"id": json.loads(data)["id"], "error": why}).encode())
