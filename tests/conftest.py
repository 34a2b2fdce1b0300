"""What every process of the tests begins with: ctrl+c can be pressed, no client reads certificates,
and the collector leaves the imports alone."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Objects made between two looks at the youngest. With Python's 700 and the widgets of an application, whose screens are
#: thousands of objects, the collector takes a quarter of a test's time.
YOUNG = 50_000


def pytest_configure() -> None:
    """A shell without job control has what it starts in the background ignore ctrl+c, and so would every child here."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Every HTTP client reads all the authorities that there are, a third of what a run of a test computes; no test
    # reaches a server that shows a certificate. Here are none.
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Half a million objects come with the imports, and stay: none of them need be looked at again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG, 10, 10)
        gc.enable()
