"""A project with runs in it, an app on it, and ways to look at the screen."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.config.bundled import examples_dir
from engine.hosting.cleanup import CleanupEntry, CleanupReport
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.link import open_store
from loops_tui.ports import CleanupFailed, HandOverFailed, StartRefused
from tests.app.fake_loops import FakeLoops
from tools.sample_store import Sample, fill

SIZES = [(80, 24), (120, 40)]
WAIT_SECONDS = 60.0  # a bound, not a measure: the machine may be busy
LIVE = "20261129-143501-k3f9"


class FakeHosting:
    """Runs that live here only by name; ``stop`` takes effect when the test says so."""

    def __init__(self, *, can_hand_over: bool = False) -> None:
        self.can_hand_over = can_hand_over
        self.running: list[str] = []
        self.asked: list[str] = []
        self.refuse: StartRefused | None = None
        self.started: list[tuple[Path, tuple[str, ...]]] = []
        self.resumed: list[tuple[str, tuple[str, ...]]] = []
        self.stays: HandOverFailed | None = None
        self.goes_on = False  # here, after a hand-over that failed
        self.moves = threading.Event()
        self.moves.set()
        self.released: list[tuple[tuple[str, ...], bool]] = []
        self.fail: CleanupFailed | None = None
        self.checked: list[tuple[Path, str | None]] = []
        self._ended = threading.Event()
        self.loops = FakeLoops()

    def start(self, config: Path, overrides: Sequence[str]) -> str:
        if self.refuse is not None:
            raise self.refuse
        self.started.append((config, tuple(overrides)))
        self.running.append(LIVE)
        return LIVE

    def resume(self, run_id: str, overrides: Sequence[str] = ()) -> str:
        if self.refuse is not None:
            raise self.refuse
        self.resumed.append((run_id, tuple(overrides)))
        self.running.append(run_id)
        return run_id

    def hand_over(self, run_id: str, seconds: float) -> None:
        self.asked.append(f"hand over {run_id}")
        self.moves.wait(WAIT_SECONDS)
        if not self.goes_on and run_id in self.running:
            self.running.remove(run_id)
        if self.stays is not None:
            raise self.stays

    def check(self, config: Path, text: str | None) -> None:
        self.checked.append((config, text))

    def clean_up(self, names: Sequence[str], *, force: bool) -> CleanupReport:
        self.released.append((tuple(names), force))
        if self.fail is not None:
            raise self.fail
        return CleanupReport(False, released=[CleanupEntry(name, "local", None) for name in names])

    def live(self) -> Sequence[str]:
        return tuple(self.running)

    def stop(self) -> None:
        self.asked.append("stop")

    def abort(self) -> None:
        self.asked.append("abort")
        self.end()

    def end(self) -> None:
        self.running.clear()
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        self._ended.wait(min(seconds, 0.02))
        return not self.running

    def close(self) -> None:
        self.asked.append("close")


async def until_idle(min_sleep: float = 0.02, max_sleep: float = 1.0) -> None:
    """As Textual's ``wait_for_idle``: until the process computes no more, but looking at it four times as often."""
    began = time.monotonic()
    while True:
        computed = time.process_time()
        await asyncio.sleep(0.005)
        waited = time.monotonic() - began
        if waited >= max_sleep or (waited >= min_sleep and time.process_time() - computed < 0.0005):
            return


@pytest.fixture(autouse=True)
def _keys_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key pressed by Pilot waits three times for the process to be idle: most of what these tests took."""
    for module in ("textual.app", "textual.pilot"):
        monkeypatch.setattr(f"{module}.wait_for_idle", until_idle)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sample]:
    """One filled project; tests work on copies of it."""
    root = tmp_path_factory.mktemp("filled") / "agents"
    root.mkdir()
    return root, fill(root)


@pytest.fixture
def project(filled: tuple[Path, Sample], tmp_path: Path) -> Path:
    """A copy of the filled project for one test."""
    target = tmp_path / "agents"
    shutil.copytree(filled[0], target)
    return target


@pytest.fixture
def empty_project(tmp_path: Path) -> Path:
    target = tmp_path / "fresh"
    target.mkdir()
    return target


@pytest.fixture
def agents(empty_project: Path) -> Path:
    """A project with one config of its own, as copied from the examples."""
    examples = examples_dir()
    assert examples is not None
    target = empty_project / "agents"
    shutil.copytree(examples / "tool_agent", target, ignore=shutil.ignore_patterns("__pycache__"))
    for config in target.glob("*.toml"):
        if config.name != "train_local.toml":
            config.unlink()
    return empty_project


@pytest.fixture
def config(agents: Path) -> Path:
    return agents / "agents" / "train_local.toml"


@pytest.fixture
def store(project: Path) -> Iterator[Store]:
    """What an engine would write through, beside the app's own reader."""
    with Store.open(project) as opened:
        yield opened


def make_app(
    project_dir: Path,
    hosting: FakeHosting | None = None,
    *,
    start: Path | None = None,
    overrides: Sequence[str] = (),
) -> LoopsApp:
    here = hosting or FakeHosting()
    return LoopsApp(
        project_dir, lambda: open_store(project_dir), lambda: here, start=start, overrides=overrides
    )


def screen_text(app: LoopsApp) -> str:
    """Everything on the screen, as text."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def until(pilot: Pilot[int], true: Callable[[], bool], what: str) -> None:
    """Wait, bounded, for something to become true."""
    for _ in range(int(WAIT_SECONDS / 0.02)):
        if true():
            return
        await pilot.pause(0.02)
    app = pilot.app
    shown = screen_text(app) if isinstance(app, LoopsApp) else ""
    raise AssertionError(f"never came true: {what}\n{shown}")


async def until_shown(pilot: Pilot[int], app: LoopsApp, *texts: str) -> None:
    """Wait until all of these are on the screen."""
    await until(pilot, lambda: all(text in screen_text(app) for text in texts), f"{texts} on the screen")


async def until_told(pilot: Pilot[int], app: LoopsApp, text: str) -> None:
    """Wait until a toast says so (on the screen it may be broken into lines)."""
    await until(
        pilot, lambda: any(text in toast.message for toast in app._notifications), f"a toast says {text!r}"
    )


async def open_run(pilot: Pilot[int], app: LoopsApp) -> None:
    """From the start to the live run's screen."""
    await until_shown(pilot, app, "tool_agent")
    await pilot.press("enter")
    await until_shown(pilot, app, "policy v15")
