"""The same isolation when the engine runs as an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandboxes.conftest import needs_bubblewrap, needs_root

# The interpreter may lie below a home that nobody else may enter: in a mount namespace of its own, that home is
# replaced by an empty one that shows the interpreter alone.
_SCRIPT = """
set -e
home=$1 python=$2; shift 2
mount --make-rprivate /
if [ -n "$python" ]; then
    mkdir -p /tmp/loops-tui-python.$$
    mount --bind "$python" /tmp/loops-tui-python.$$
    mount -t tmpfs -o mode=755 none "$home"
    mkdir -p "$python"
    mount --move /tmp/loops-tui-python.$$ "$python"
    rmdir /tmp/loops-tui-python.$$
fi
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


@needs_root
@needs_bubblewrap
def test_isolation_as_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    repository = Path(__file__).parents[2]
    base = Path(sys.base_prefix)
    hidden = next((p for p in reversed(base.parents) if not os.stat(p).st_mode & 0o001), None)
    place = Path(f"/tmp/loops-tui-nobody-{os.getpid()}")
    words = ["unshare", "-m", "sh", "-c", _SCRIPT, "x", str(hidden or ""), str(base if hidden else "")]
    pytest_words = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-x",
        "--timeout=250",
    ]
    done = subprocess.run(
        [*words, *pytest_words, f"--basetemp={place}", "tests/sandboxes/test_isolation.py"],
        cwd=repository,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    subprocess.run(["rm", "-rf", str(place)], check=True, timeout=60)
    if "Permission denied" in done.stderr and not done.stdout:
        pytest.skip(f"this machine does not let another user run the tests: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout or "....." in done.stdout
