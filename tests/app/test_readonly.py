"""An app that only looks on: no key of any screen changes anything, and there is nothing to change it with."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from textual.actions import parse
from textual.pilot import Pilot

from engine.store.errors import StoreError
from engine.store.rows import RunState
from engine.store.schema import store_path
from engine.store.store import Store
from loops_tui import readonly
from loops_tui.app import LoopsApp
from loops_tui.keymap import all_bindings
from loops_tui.options import Options
from loops_tui.ports import Hosting
from loops_tui.readonly import CHANGES, REFUSAL, open_to_read
from loops_tui.screens.checkpoints import CheckpointsScreen
from loops_tui.screens.compare import CompareScreen
from loops_tui.screens.config import ConfigScreen
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.screens.sandboxes import SandboxesScreen
from loops_tui.screens.search import SearchScreen
from loops_tui.screens.transcript import TranscriptScreen
from tests.app.conftest import LIVE, make_app, screen_text, until, until_shown, until_told
from tools.sample_store import Sample, fill_leases
from tools.screenshots import EXAMPLE

LEAVING = {"q", "ctrl+q", "ctrl+c"}
WAYS = {
    "runs": ("7 runs", RunsScreen),
    "run": ("policy v15", RunScreen),
    "sandboxes": ("in use", SandboxesScreen),
    "transcript": ("attempt", TranscriptScreen),
    "config": ("train_local.toml", ConfigScreen),
    "checkpoints": ("step-000005", CheckpointsScreen),
    "compare": ("Figures and configs", CompareScreen),
    "search": ("Search", SearchScreen),
}


def no_hosting() -> Hosting:
    raise AssertionError("a read-only app has made a place for runs")


def written(project: Path) -> dict[str, str]:
    """Every file of the project with what is in it; sqlite's shared memory is no content."""
    return {
        str(path.relative_to(project)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(project.rglob("*"))
        if path.is_file()
        and not path.name.endswith("-shm")
        and (path.stat().st_size or "-wal" not in path.name)
    }


def look_on(project: Path) -> LoopsApp:
    def no_store() -> Store:
        raise AssertionError("a read-only app has opened the store to write")

    return LoopsApp(project, no_store, no_hosting, options=Options(readonly=True))


@pytest.fixture
def leased(project: Path, filled: tuple[Path, Sample]) -> Path:
    """The project with sandboxes, some of them left behind."""
    fill_leases(project, filled[1])
    shutil.copytree(EXAMPLE, project / EXAMPLE.name, ignore=shutil.ignore_patterns("__pycache__"))
    return project


@pytest.fixture
def backstop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What got past the gate and met the store that cannot be written."""
    met: list[str] = []
    monkeypatch.setattr(readonly.ReadOnly, "__init__", lambda self: met.append("a change"))
    return met


async def go(pilot: Pilot[int], app: LoopsApp, where: str) -> None:
    text, kind = WAYS[where]
    while len(app.screen_stack) > 1:
        app.pop_screen()
    match where:
        case "run":
            app.open_run(LIVE)
        case "sandboxes":
            app.action_go_sandboxes()
        case "config":
            app.action_go_config()
        case "checkpoints":
            app.action_go_checkpoints()
        case "compare":
            await pilot.press("escape", "escape", "home", "down", "space", "down", "space", "v")
        case "search":
            app.action_go_search()
        case "transcript":
            app.push_screen(TranscriptScreen(LIVE, "tool_agent", 123, 1))
    await until(pilot, lambda: isinstance(app.screen, kind), f"{where} opens")
    await until_shown(pilot, app, text)


@pytest.mark.parametrize("where", WAYS)
async def test_no_key_changes_anything(
    leased: Path, where: str, backstop: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # what is copied to a file goes there
    monkeypatch.delenv("TMUX", raising=False)
    before = written(leased)
    keys = sorted({key for bound in all_bindings() for key in bound.keys} - LEAVING - {"ctrl+p"})
    app = look_on(leased)
    async with app.run_test(size=(120, 40)) as pilot:
        await go(pilot, app, where)
        home, focused = app.screen, app.focused
        for key in keys:
            await pilot.press(key)
            if app.screen is not home:
                await pilot.press("y")  # yes to whatever is asked
            while home in app.screen_stack and app.screen is not home:
                app.pop_screen()
            if app.screen is home and app.focused is not focused:
                await pilot.press("escape")  # out of a line or a text that would take the next keys
            if app.screen is not home or app.focused is not focused:
                await go(pilot, app, where)
                home, focused = app.screen, app.focused
        assert app.is_running
    assert written(leased) == before
    assert backstop == []


def offered(app: LoopsApp) -> set[str]:
    """The actions whose keys do something now."""
    return {parse(active.binding.action)[1] for active in app.screen.active_bindings.values()}


@pytest.mark.parametrize("where", WAYS)
async def test_what_changes_something_is_not_offered(leased: Path, where: str) -> None:
    names: dict[bool, set[str]] = {}
    for options in (Options(readonly=True), Options()):
        app = look_on(leased) if options.readonly else make_app(leased)
        async with app.run_test(size=(120, 40)) as pilot:
            await go(pilot, app, where)
            # Once a run has been read there is one to go to.
            await until(pilot, lambda app=app: bool(app.check_action("go_run", ())), "a run is known")
            await until(pilot, lambda app=app: bool(offered(app)), "its keys are known")
            names[options.readonly] = offered(app)
    assert names[True] == names[False] - CHANGES
    if where in ("run", "runs"):
        assert names[False] & CHANGES, "there is something to refuse here"


def test_every_name_of_a_change_is_an_action() -> None:
    owners = {bound.owner for bound in all_bindings()}
    assert {
        name for name in CHANGES if not any(hasattr(owner, f"action_{name}") for owner in owners)
    } == set()


HINTS = (
    "cleans up",
    "tries again",
    "resumes",
    "r trains",
    "deactivates",
    "for P",
    "^s ",
    "F5",
    "copies it",
    "press c:",
)
"""Words that go with keys which a read-only app refuses."""


@pytest.mark.parametrize("where", ["runs", "run", "sandboxes", "config", "checkpoints"])
async def test_no_text_names_a_key_that_is_refused(leased: Path, store: Store, where: str) -> None:
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    recorder.run(state=RunState.PAUSED)
    recorder.flush_blocking()
    seen: dict[bool, str] = {}
    for options in (Options(readonly=True), Options()):
        app = look_on(leased) if options.readonly else make_app(leased)
        async with app.run_test(size=(120, 40)) as pilot:
            await go(pilot, app, where)
            for key in [""] + ["down"] * 9:
                await pilot.press(*key.split())
                seen[options.readonly] = seen.get(options.readonly, "") + screen_text(app)
    assert not [hint for hint in HINTS if hint in seen[True]]
    if where in ("runs", "run", "sandboxes"):
        assert [hint for hint in HINTS if hint in seen[False]], "there is something to leave out here"


async def test_the_palette_offers_no_change(leased: Path) -> None:
    app = look_on(leased)
    async with app.run_test(size=(120, 40)) as pilot:
        await go(pilot, app, "run")
        offered = {command.title for command in app.get_system_commands(app.screen)}
        assert "Hold view" in offered
        assert not offered & {"Stop", "Abort", "Pause"}


async def test_a_refused_action_says_why(project: Path) -> None:
    app = look_on(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await go(pilot, app, "run")
        assert not app.may("stop")
        assert app.may("hold")
        await app.run_action("stop", app.screen)
        assert isinstance(app.screen, RunScreen), "no question is asked"
        await until_told(pilot, app, REFUSAL)


async def test_a_host_that_died_is_seen_though_nobody_writes_it_down(project: Path, store: Store) -> None:
    app = look_on(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "running")
        _kill_host(store)
        await until(pilot, lambda: "interrupted" in screen_text(app), "the dead host is seen")
    assert store.reader().run(LIVE).state is RunState.RUNNING, "the store was written"


def _kill_host(store: Store) -> None:
    """As if the process of the live run's host were gone: another process has its number now."""
    run = store.reader().run(LIVE)
    store.submit(
        lambda connection: connection.execute(
            "UPDATE hosts SET pid_started = 1 WHERE host_id = ?", (run.host_id,)
        )
    ).result(120)


def test_a_store_to_read_refuses_whatever_changes_it(project: Path, tmp_path: Path) -> None:
    store = open_to_read(project)
    with pytest.raises(StoreError, match="only looks on"):
        store.request(LIVE, "stop")
    with pytest.raises(StoreError, match="only looks on"):
        store.delete_run(LIVE)
    assert store.reader().run(LIVE).run_id == LIVE
    store.close()
    with pytest.raises(StoreError, match="has no runs yet"):
        open_to_read(tmp_path / "nowhere")


def test_a_store_of_an_older_format_is_refused_in_a_sentence(project: Path) -> None:
    with sqlite3.connect(store_path(project)) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(StoreError, match=r"has format 1, .* opened for writing once"):
        open_to_read(project)
