"""Check of a config with Blaxel sandboxes: before anything runs, and without making one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checking.sandboxes import check_sandboxes
from engine.config import CheckReport, ConfigError, Severity
from engine.project import Project, load
from tests.blaxel_emulator.serving import Emulator
from tests.project.conftest import CONFIG, EPISODE

type Write = Callable[..., Project]
TABLE = '[runtime.config.sandbox]\nprovider = "blaxel"\n'
on_the_modules_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.delenv("BASETEN_LOOPS_SCOPE", raising=False)

    def written(more: str, *overrides: str) -> Project:
        (tmp_path / "my_episode.py").write_text(EPISODE)
        (tmp_path / "tasks.jsonl").write_text('{"question": "?"}\n')
        (tmp_path / "train.toml").write_text(CONFIG + more)
        return load(tmp_path / "train.toml", list(overrides), working_dir=tmp_path, dotenv=True)

    return written


async def checked(project: Project) -> CheckReport:
    report = CheckReport()
    await check_sandboxes(project, report)
    return report


@on_the_modules_loop
async def test_a_sound_config(write: Write, service: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    before = len(service.world.all())
    report = await checked(write(f'{TABLE}ttl = "1h"\nimage = "my/image:1"\n'))
    assert report.findings == []
    assert report.lines == [
        "Sandboxes: blaxel, isolation remote; memory 2048 MiB; ttl 1h; at most 64 at once, 10 made a second"
    ]
    assert len(service.world.all()) == before


@on_the_modules_loop
async def test_credentials_that_are_missing(write: Write, service: Emulator) -> None:
    report = await checked(write(TABLE))
    (finding,) = report.findings
    assert (finding.severity, finding.key, finding.line) == (
        Severity.ERROR,
        "runtime.config.sandbox.provider",
        CONFIG.count("\n") + 2,
    )
    assert finding.text == (
        "Blaxel needs BL_WORKSPACE and BL_API_KEY in the environment or in a .env beside the training config"
    )
    assert str(finding).count("BL_API_KEY") == 1


@on_the_modules_loop
async def test_credentials_and_address_of_env_file_and_config(
    write: Write, service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = service.environment()
    monkeypatch.setenv("BL_WORKSPACE", environ["BL_WORKSPACE"])
    (tmp_path / ".env").write_text(f"BL_API_KEY={environ['BL_API_KEY']}\n")
    more = f'[providers.blaxel]\nbase_url = "{service.url}"\nmax_live = 3\ncreates_per_second = 0.5\n'
    try:
        report = await checked(write(TABLE + more))
    finally:
        monkeypatch.delenv("BL_API_KEY", raising=False)  # loading has set it
    (finding,) = report.findings
    assert (finding.severity, finding.key) == (Severity.WARNING, "providers.blaxel.max_live")
    assert "4 attempts may run at once" in finding.text
    assert report.lines[0].endswith("at most 3 at once, 0.5 made a second")


@on_the_modules_loop
async def test_room_for_a_second_sandbox_to_grade_in(
    write: Write, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    found: list[tuple[Severity, str]] = []
    for max_live in (1, 7, 8):
        report = CheckReport()
        project = write(f"{TABLE}[providers.blaxel]\nmax_live = {max_live}\n")
        await check_sandboxes(project, report, apart=True)
        found += [(finding.severity, finding.text) for finding in report.findings]
    assert [severity for severity, _ in found] == [Severity.ERROR, Severity.WARNING]
    assert found[0][1].endswith("this project may have one Blaxel sandbox")
    assert "4 attempts may run at once, each with two sandboxes" in found[1][1]


@pytest.mark.parametrize(("ahead", "times"), [(0, 1), (4, 2)])
def test_a_sandbox_outlives_the_line_before_a_slow_grader(write: Write, ahead: int, times: int) -> None:
    """Four sample at once, so eight may wait for one grader: the last one as long as seven are graded, one in its ttl."""

    def seconds(*overrides: str) -> float:
        return write(TABLE, f"training.setups_ahead={ahead}", *overrides).rl.sandbox_seconds

    of_four, of_one = (seconds(f"training.max_concurrent_grading={number}") for number in (4, 1))
    assert of_four == seconds()
    assert of_one - of_four == times * 6 * write(TABLE).rl.runtime.config.grading_timeout_seconds


@pytest.mark.parametrize(
    ("configured", "max_live", "ahead"),
    [(None, 64, 4), (None, 9, 1), (None, 8, 0), (3, 64, 3), (20, 64, 20), (20, 9, 7), (1, 2, 0)],
)
def test_attempts_that_are_set_up_ahead_leave_room_for_those_that_are_waited_for(
    write: Write, configured: int | None, max_live: int, ahead: int
) -> None:
    overrides = [] if configured is None else [f"training.setups_ahead={configured}"]
    assert write(f"{TABLE}[providers.blaxel]\nmax_live = {max_live}\n", *overrides).rl.setups_ahead == ahead


@on_the_modules_loop
async def test_more_set_up_ahead_than_there_is_room_for(
    write: Write, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    more = f"{TABLE}[providers.blaxel]\nmax_live = 9\n"
    assert (await checked(write(more, "training.setups_ahead=5"))).findings == []
    (finding,) = (await checked(write(more, "training.setups_ahead=6"))).findings
    assert (finding.severity, finding.key) == (Severity.WARNING, "training.setups_ahead")
    assert "4 attempts and 6 set up ahead may want a sandbox" in finding.text
    assert finding.remedy == "Set it to 5 or less, or leave it out"


@on_the_modules_loop
async def test_a_ttl_must_outlast_an_attempt(
    write: Write, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    report = await checked(write(f'{TABLE}ttl = "10m"\n'))
    assert [finding.key for finding in report.findings] == ["runtime.config.sandbox.ttl"]


@pytest.mark.parametrize(
    ("table", "key", "remedy"),
    [
        (
            'provider = "blaxel"\nisolation = "auto"\n',
            "isolation",
            "Remove isolation, or set provider = 'local'",
        ),
        ('provider = "blaxel"\ndisk_mb = 512\n', "disk_mb", "Remove disk_mb, or set provider = 'local'"),
        ('provider = "blaxel"\nmax_processes = 10\n', "max_processes", "Remove max_processes"),
        ('provider = "blaxel"\ncpu_seconds = 10\n', "cpu_seconds", "Remove cpu_seconds"),
        ('provider = "local"\nimage = "x"\n', "image", "Remove image, or set provider = 'blaxel'"),
        ('region = "eu-lon-1"\n', "region", "Remove region, or set provider = 'blaxel'"),
    ],
)
def test_keys_of_the_other_provider_are_not_ignored(write: Write, table: str, key: str, remedy: str) -> None:
    """Set to its default or not: who writes it expects it to do something."""
    with pytest.raises(ConfigError) as raised:
        write(f"[runtime.config.sandbox]\n{table}")
    (problem,) = raised.value.problems
    assert problem.key == f"runtime.config.sandbox.{key}"
    assert problem.line is not None
    assert str(problem.remedy).startswith(remedy)
