"""What every file of the repository keeps to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 400
MACHINE = re.compile(r"/root/|/home/(?!me\b|you\b)\w+|/Users/(?!me\b|you\b)\w+|/work/main|/work/shared")


def _files(*suffixes: str) -> list[Path]:
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        names = done.stdout.split("\0") if done.returncode == 0 else []
    except FileNotFoundError:
        names = []
    if not any(names):
        pytest.skip("this is no git checkout")
    return [ROOT / name for name in names if name.endswith(suffixes) and (ROOT / name).is_file()]


def test_modules_have_one_subject() -> None:
    counts = {path.relative_to(ROOT): path.read_text().count("\n") for path in _files(".py")}
    assert {str(path): count for path, count in counts.items() if count > LONGEST} == {}


def test_no_module_is_a_drawer() -> None:
    assert [path for path in _files(".py") if path.stem in {"utils", "helpers", "common", "misc"}] == []


def test_no_machine_paths() -> None:
    told = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in _files(".py", ".toml", ".md", "run", ".jsonl", ".tcss")
        if path != Path(__file__).resolve() and (found := MACHINE.search(path.read_text(errors="replace")))
    ]
    assert told == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in _files(".py")
        if (text := path.read_text().lstrip()) and not re.match(r'(#!.*\n)?[ru]?"""', text)
    ]
    assert silent == []
