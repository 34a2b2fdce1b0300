"""The CI script's own behaviour, with a stand-in for uv: what it runs, and its exit status."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """\
#!/bin/bash
[ "$1" = "--version" ] && exit 0
echo "uv $*"
if [ -n "$FAIL_ON" ] && [[ "$*" == *"$FAIL_ON"* ]]; then exit 1; fi
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def ci_run(tmp_path: Path, fail_on: str = "", path: str | None = None) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "checkout" / ".ci" / "run"
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", script)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uv").write_text(STAND_IN)
    (programs / "uv").chmod(0o755)
    environment = {
        "PATH": path or f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "FAIL_ON": fail_on,
    }
    return subprocess.run(
        [str(shutil.which("bash")), str(script)],
        cwd=tmp_path,
        env={**environment, "CI": "true", "PYENV_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_step_runs(tmp_path: Path) -> None:
    done = ci_run(tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("uv ")]
    assert [line.split()[-1] for line in said] == ["--quiet", ".", ".", "lint-imports", "pytest", "pyright"]
    assert done.stdout.endswith("all steps passed\n")


@pytest.mark.parametrize(
    ("fail_on", "named"), [("ruff check", "style"), ("pyright", "types"), ("pytest", "tests")]
)
def test_a_failing_step_fails_the_script_and_the_others_still_run(
    tmp_path: Path, fail_on: str, named: str
) -> None:
    done = ci_run(tmp_path, fail_on)
    assert done.returncode == 1
    assert done.stdout.endswith(f"failed: {named}\n")
    assert "uv run pytest" in done.stdout
    assert "uv run --no-sync pyright" in done.stdout


def test_nothing_to_work_with_is_told_in_one_line(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("dirname", "env"):
        (bare / name).symlink_to(str(shutil.which(name)))
    done = ci_run(tmp_path, path=str(bare))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "neither uv nor a Python 3.12 or 3.13" in done.stderr


def test_every_directory_of_tests_is_run() -> None:
    chosen = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"][
        "testpaths"
    ]
    files = (file.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py"))
    with_tests = {Path(*file.parts[:2]).as_posix() for file in files}
    assert set(chosen) == with_tests
    assert len(chosen) == len(set(chosen))
