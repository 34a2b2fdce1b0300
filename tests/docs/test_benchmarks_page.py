"""The table of benchmarks: what is measured is listed, and a figure that is missing or out of bounds cannot look right."""

from __future__ import annotations

import re
from pathlib import Path

from tests.bench.__main__ import Ran, page, run, table
from tests.bench.registry import BENCHES, SEPARATE, Bench, Figure, key

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
#: Modules that measure nothing by themselves.
PARTS = {
    "__init__",
    "__main__",
    "registry",
    "busy_app",
    "canned_sampler",
    "long_history",
    "on_a_pty",
    "schedule_reference",
    "simulated_loops",
}
CASE = Bench(
    "case", "a case", 1, (Figure("ratio", key("ratio"), "x", 1.3), Figure("rate", key("rate"), "/s"))
)


def test_the_page_names_every_benchmark() -> None:
    text = PAGE.read_text()
    told = "run `uv run python -m tests.bench --write docs/benchmarks.md`"
    for bench in BENCHES:
        assert f"| `{bench.name}` |" in text, told
        measured = f"| `{bench.name}` | | | " not in text  # which is of one that failed or was not run
        for figure in bench.figures:
            assert not measured or f"| {figure.what} |" in text, told
    for command, _ in SEPARATE:
        assert f"`uv run {command}`" in text, told


def test_every_module_that_measures_is_in_the_registry() -> None:
    modules = {f"{path.parent.name}.{path.stem}" for path in (ROOT / "tests").glob("*/*.py")}
    modules = {name for name in modules if re.match(r"bench\.|faults\.kill_", name)}
    modules -= {f"bench.{part}" for part in PARTS}
    alone = {match[1] for command, _ in SEPARATE if (match := re.search(r"tests\.(\S+)", command))}
    assert {bench.module.removeprefix("tests.") for bench in BENCHES} | alone == modules


def test_verdicts() -> None:
    good = Ran(CASE, {"ratio": 1.3, "rate": 7}, 1.0, 0.0)
    assert good.ok
    assert "| `case` | ratio | ≤ 1.3 x | 1.3 x | yes |" in table([good])
    assert "| `case` | rate |  | 7 /s |  |" in table([good])
    bad = Ran(CASE, {"ratio": 1.31, "rate": 7}, 1.0, 0.0)
    assert not bad.ok
    assert "| 1.31 x | **no** |" in table([bad])
    missing = Ran(CASE, {"rate": 7}, 1.0, 0.0)
    assert not missing.ok
    assert "| none |" in table([missing])


def test_a_busy_machine_is_said() -> None:
    text = page([Ran(CASE, {"ratio": 1.0, "rate": 7}, 1.0, 100.0)], quick=False)
    assert "`case` ¹" in text
    assert "¹ Measured while the machine was busy" in text


def test_a_benchmark_that_fails_is_told() -> None:
    nowhere = Bench("no_such_benchmark", "nothing", 1, CASE.figures)
    ran = run(nowhere, quick=False)
    assert ran.found is None
    assert not ran.ok
    assert "no_such_benchmark" in ran.problem
    assert "failed: " in table([ran])
