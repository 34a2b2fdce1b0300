"""The local Loops server as a process: ``python -m engine.local_loops --dir STATE``.

Prints one line of JSON on stdout once it serves, ``{"url", "key", "model"}``, and logs to stderr and to
``server.log`` in the state directory. Exit status: 0 after a requested end, 1 when it cannot serve (port taken,
directory in use), 2 for arguments that cannot be right.
"""

from __future__ import annotations

import argparse
import os
import sys

if __name__ == "__main__":
    # Before anything imports numpy: more BLAS threads are faster alone, but collapse beside another busy process.
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

import asyncio
import json
import logging
import logging.handlers
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from engine.local_loops.settings import SHIPPED_MODEL, SHIPPED_MODEL_DIR, ServerSettings

HOST = "127.0.0.1"
CANNOT_SERVE = 1
BAD_INPUT = 2
LOG_BYTES = 2_000_000

log = logging.getLogger("engine.local_loops")


class StartError(Exception):
    """Why the server cannot start: a sentence and an exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m engine.local_loops", description="A Loops-compatible server on this machine."
    )
    parser.add_argument(
        "--dir", required=True, type=Path, metavar="STATE", help="state directory, made if missing"
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--key-env", metavar="NAME", help="environment variable with the key (default: a random key)"
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help=f"offer a model directory under a name (repeatable; {SHIPPED_MODEL} is always offered)",
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when standard input is closed")
    parser.add_argument(
        "--version-wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long a sample waits for a policy version that is not published yet (default 60)",
    )
    return parser.parse_args(arguments)


def settings_from(arguments: argparse.Namespace) -> ServerSettings:
    models: dict[str, Path] = {}
    if (SHIPPED_MODEL_DIR / "config.json").is_file():
        models[SHIPPED_MODEL] = SHIPPED_MODEL_DIR
    for given in arguments.model:
        name, mark, directory = given.partition("=")
        if not mark or not name or not directory:
            raise StartError(f"--model takes NAME=DIR, not {given!r}", BAD_INPUT)
        models[name] = Path(directory)
    if not models:
        raise StartError(
            f"no model to serve: {SHIPPED_MODEL_DIR} is missing, and no --model is given", BAD_INPUT
        )
    if not 0 <= arguments.port < 65536:
        raise StartError(f"--port must be from 0 to 65535, not {arguments.port}", BAD_INPUT)
    if arguments.key_env is not None:
        key = os.environ.pop(arguments.key_env, "")  # the process that computes passes has no use for it
        if not key:
            raise StartError(f"environment variable {arguments.key_env} (--key-env) is not set", BAD_INPUT)
    else:
        key = secrets.token_urlsafe(24)
    return ServerSettings(
        state_dir=Path(os.path.expanduser(arguments.dir)).absolute(),
        key=key,
        models=models,
        default_model=SHIPPED_MODEL if SHIPPED_MODEL in models else next(iter(models)),
        version_wait_seconds=arguments.version_wait,
    )


def bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except OSError as error:
        bound.close()
        raise StartError(f"cannot listen on {HOST}:{port}: {error.strerror}", CANNOT_SERVE) from error
    return bound


def set_up_logging(log_path: Path) -> None:
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handlers: list[logging.Handler] = [
        logging.StreamHandler(sys.stderr),
        logging.handlers.RotatingFileHandler(log_path, maxBytes=LOG_BYTES, backupCount=2, encoding="utf-8"),
    ]
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in handlers:
        handler.setFormatter(plain)
        root.addHandler(handler)


def watch_stdin(loop: asyncio.AbstractEventLoop, end: asyncio.Event, say_ending: Callable[[], None]) -> None:
    """Set ``end`` when standard input is closed: the host that holds its other end is gone, however it went."""

    def read_to_the_end() -> None:
        while os.read(0, 4096):
            pass
        say_ending()  # at once: whoever opens the other end from here on has come too late
        try:
            loop.call_soon_threadsafe(end.set)
        except RuntimeError:
            return  # the loop is closed: the process is ending already

    threading.Thread(target=read_to_the_end, name="stdin", daemon=True).start()


async def serve(settings: ServerSettings, bound: socket.socket, *, exit_with_stdin: bool) -> None:
    """Serve on ``bound`` until a signal, or the end of stdin, asks for the end."""
    from engine.local_loops.registry import ModelDirectoryError, ModelRegistry
    from engine.local_loops.server import LoopsServer
    from engine.local_loops.service import LoopsService
    from engine.local_loops.state import StateError, StateStore

    try:
        registry = ModelRegistry(settings.models)
    except ModelDirectoryError as error:
        raise StartError(str(error), BAD_INPUT) from error
    store = StateStore(settings.state_dir)
    try:
        store.open()
    except StateError as error:
        raise StartError(str(error), CANNOT_SERVE) from error
    set_up_logging(store.log_path)
    url = f"http://{HOST}:{bound.getsockname()[1]}"
    service = LoopsService(settings, store, registry, url)
    server = LoopsServer(service)
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    if exit_with_stdin:
        watch_stdin(loop, end, store.say_ending)
    serving = asyncio.create_task(server.serve_on(bound))
    ready = asyncio.create_task(server.ready.wait())
    ended = asyncio.create_task(end.wait())
    try:
        # The socket listens already; the line is printed once requests are answered.
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            print(json.dumps({"url": url, "key": settings.key, "model": settings.default_model}), flush=True)
            log.info("serving on %s, state in %s", url, settings.state_dir)
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        store.say_ending()
        server.end()
        await serving
    finally:
        ready.cancel()
        ended.cancel()
        store.close()
    log.info("ended")


def fail(error: StartError) -> NoReturn:
    print(f"local Loops server: {error}", file=sys.stderr)
    sys.exit(error.status)


def main(arguments: Sequence[str] | None = None) -> None:
    parsed = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        settings = settings_from(parsed)
        bound = bind(parsed.port)
        with bound:
            asyncio.run(serve(settings, bound, exit_with_stdin=parsed.exit_with_stdin))
    except StartError as error:
        fail(error)


if __name__ == "__main__":
    main()
