"""What /proc tells of a process while it changes."""

from __future__ import annotations

import os
import signal

from engine.sandboxes.local.inside import procs

_LOOKS = 3000


def test_a_process_keeps_its_variables_while_it_becomes_another_program() -> None:
    again = 'exec /bin/sh -c "$0" "$0"'
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", again, again], {"GIVEN": "7"}, setsid=True)
    try:
        seen = [procs.variable_of(pid, "GIVEN") for _ in range(_LOOKS)]
        assert seen.count("7") == _LOOKS
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_process_without_variables_has_none() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}, setsid=True)
    try:
        assert procs.variable_of(pid, "GIVEN") is None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert procs.variable_of(pid, "GIVEN") is None
