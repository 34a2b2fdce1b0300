"""Check of a config with sandboxes: what isolation holds, how long they live, whether there is room for all."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checking import sandboxes
from engine.checking.check import CHECKED
from engine.checking.open_files import FILES_PER_SANDBOX, check_open_files
from engine.config import CheckReport, Severity
from engine.config.local_models import shipped_models
from engine.project import Project
from engine.sandboxes import SandboxSettings, SandboxSpec
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.local.inside import landlock
from engine.sandboxes.naming import new_name
from tests.sandboxes.traces import open_files, traces

Make = Callable[..., Project]
TABLE = "[runtime.config.sandbox]\nmemory_mb = 256\ndisk_mb = 16\n"
needs_model = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")


async def checked(project: Project) -> CheckReport:
    report = CheckReport()
    await sandboxes.check_sandboxes(project, report)
    return report


@needs_model
@needs_bubblewrap
async def test_a_sound_config(make: Make, tmp_path: Path) -> None:
    project = make(more=TABLE)
    report = await project.check()
    assert report.findings == []
    line = next(line for line in report.lines if line.startswith("Sandboxes: "))
    assert line == (
        "Sandboxes: local, isolation bubblewrap; memory 256 MiB a process, disk 16 MiB; "
        "ttl 5520s (derived from the attempt's deadlines)"
    )
    assert any("runtime-acquired phases setup, sampling, grading;" in line for line in report.lines)
    assert report.lines[-1] == CHECKED
    assert traces(tmp_path) == []


@needs_model
async def test_an_episode_that_asks_for_a_sandbox_gets_one_from_the_config_alone(make: Make) -> None:
    [finding] = (
        await make(("        return None", "        sample.sandbox.require_sandbox()")).check()
    ).findings
    assert (finding.severity, finding.key) == ("warning", "runtime.config.episode")
    assert finding.text.startswith("MyEpisode.run() asks for a sandbox")
    assert finding.remedy == "Add [runtime.config.sandbox]"


async def test_without_sandboxes_nothing_is_said(make: Make, tmp_path: Path) -> None:
    report = await checked(make())
    assert (report.findings, report.lines) == ([], [])
    assert not (tmp_path / ".loops").exists()


@needs_bubblewrap
@pytest.mark.parametrize(("ttl", "ok"), [("5m", False), ("1139s", False), ("1140s", True), ("1h", True)])
async def test_a_ttl_must_outlast_an_attempt(make: Make, ttl: str, ok: bool) -> None:
    """Provisioning 300 + setup 120 + agent 600 + grading 120."""
    report = await checked(make(more=f'{TABLE}ttl = "{ttl}"\n'))
    assert report.ok is ok
    if not ok:
        (finding,) = report.findings
        assert (finding.key, finding.line) == ("runtime.config.sandbox.ttl", 18)
        assert "shorter than one attempt may take (1140 s" in finding.text
        assert 'ttl = "19m"' in str(finding.remedy)
    assert any(line.endswith(f"ttl {ttl}") for line in report.lines)


async def test_no_isolation_is_told_loudly(make: Make) -> None:
    report = await checked(make(more=f'{TABLE}isolation = "none"\n'))
    assert report.ok
    (finding,) = [found for found in report.findings if "NOTHING ISOLATES" in found.text]
    assert (finding.severity, finding.key) == (Severity.WARNING, "runtime.config.sandbox.isolation")
    assert "isolation none" in report.lines[0]


async def test_landlock_is_told_to_be_weaker(make: Make) -> None:
    if landlock.abi_version() == 0:
        pytest.skip("this kernel has no Landlock")
    report = await checked(make(more=f'{TABLE}isolation = "landlock"\n'))
    assert report.ok
    assert "isolation landlock" in report.lines[0]
    assert "Install bubblewrap" in str(report.findings[0].remedy)


async def test_nothing_works(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = await checked(make(more=f'{TABLE}isolation = "bubblewrap"\n'))
    (finding,) = report.findings
    assert (finding.severity, finding.key) == (Severity.ERROR, "runtime.config.sandbox.isolation")
    assert "install bubblewrap" in finding.text
    assert report.lines == []
    assert traces(tmp_path) == []


async def test_where_sandboxes_cannot_be_tried_it_is_said(make: Make) -> None:
    project = make(more=TABLE)
    (project.working_dir / ".loops").touch()
    [finding] = (await checked(project)).findings
    assert (finding.severity, finding.key) == (Severity.ERROR, "runtime.config.sandbox")
    assert finding.line is not None
    assert finding.remedy


@pytest.mark.parametrize(
    ("limits", "severity", "remedy"),
    [
        ((1024, 4096), None, ""),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, ""),
        ((300, 4096), None, ""),  # a run raises it
        ((300, resource.RLIM_INFINITY), None, ""),
        ((300, 300), Severity.WARNING, "Lower training.max_concurrent_rollouts"),
        ((200, 200), Severity.ERROR, "Lower training.max_concurrent_rollouts"),
    ],
)
def test_room_for_open_files(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    severity: Severity | None,
    remedy: str,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    report = CheckReport()
    check_open_files(make(more=TABLE, overrides=("training.max_concurrent_rollouts=200",)), report)
    assert [finding.severity for finding in report.findings] == ([] if severity is None else [severity])
    if severity is not None:
        assert report.findings[0].key == "training.max_concurrent_rollouts"
        assert str(report.findings[0].remedy).startswith(remedy)


@pytest.mark.parametrize(
    "more", ["", '[runtime.config.sandbox]\nprovider = "blaxel"\n'], ids=["none", "blaxel"]
)
def test_attempts_without_a_local_sandbox_hold_connections_too(
    make: Make, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    report = CheckReport()
    check_open_files(make(more=more, overrides=("training.max_concurrent_rollouts=2000",)), report)
    [finding] = report.findings
    assert finding.severity is Severity.ERROR
    assert "2000 attempts at once need about " in finding.text


@needs_model
async def test_a_check_looks_at_them_without_sandboxes_too(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    report = await make(overrides=("training.max_concurrent_rollouts=2000",)).check()
    assert [finding.key for finding in report.findings] == ["training.max_concurrent_rollouts"]


@needs_bubblewrap
async def test_what_a_sandbox_takes_of_the_open_files(tmp_path: Path) -> None:
    """The figure that the check reckons with is what this process really opens."""
    provider = LocalProvider(tmp_path, SandboxSettings(disk_mb=8))
    try:
        await provider.create(SandboxSpec(new_name("first")))
        before = len(open_files())
        for _ in range(4):
            await provider.create(SandboxSpec(new_name("more")))
        assert len(open_files()) - before == 4 * FILES_PER_SANDBOX
    finally:
        await provider.aclose()
