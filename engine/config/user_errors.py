"""What a user's own code raises when it is imported, or asked to validate something: it may raise anything."""

from __future__ import annotations

import threading


def at_the_keyboard(error: BaseException) -> bool:
    """Whether somebody pressed ctrl+c, rather than a user's code raising the same: signals reach one thread alone."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def message_of(error: BaseException) -> str:
    """What an exception says, on one line; empty where it says nothing, or where its own ``__str__`` raises."""
    try:
        return " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - it is a user's class
        return ""


def raised(error: BaseException) -> str:
    """``Type: message`` of an exception, without the message where it has none."""
    message, name = message_of(error), type(error).__name__
    return f"{name}: {message}" if message else name
