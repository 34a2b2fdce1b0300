"""A run's process may have as many files open as the system lets it."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

RAISING = """
import resource, sys
from engine.open_files import allowed, raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
told = allowed()
raise_limit()
print(told, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
_, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.mark.skipif(HARD != resource.RLIM_INFINITY and HARD < 4096, reason="the system allows too few")
@pytest.mark.parametrize(("soft", "hard"), [(256, 4096), (4096, 4096)])
def test_the_limit_is_raised_to_what_was_told(soft: int, hard: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RAISING, str(soft), str(hard)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ended.stdout.split() == ["4096", "4096", "4096"], ended.stderr


def test_where_there_is_no_end_an_end_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.open_files import MOST, allowed, raise_limit

    limits, endless, asked = (1024, resource.RLIM_INFINITY), resource.RLIM_INFINITY, []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    assert allowed() == MOST
    raise_limit()
    assert asked == [(MOST, endless)]
    limits = (endless, endless)
    assert allowed() == MOST
    raise_limit()
    assert len(asked) == 1


def test_a_refusal_leaves_the_limit_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from engine.open_files import raise_limit

    def refuse(_: int, wanted: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_limit()
    assert "stays at 256" in caplog.text
