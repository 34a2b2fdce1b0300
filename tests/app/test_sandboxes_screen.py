"""The Sandboxes screen: what is held, what was left behind, and letting go of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button

from engine.hosting.cleanup import CleanupEntry, CleanupReport
from engine.sandboxes import SandboxSettings, SandboxSpec
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.naming import new_name
from engine.store.leases import LeaseJournal
from engine.store.rows import AttemptRow, AttemptState, LeaseRow, LeaseState, RunState, TranscriptRow
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.cleaning import said
from loops_tui.link import make_hosting, open_store
from loops_tui.ports import CleanupFailed
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.screens.sandboxes import SandboxesScreen
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import (
    LIVE,
    SIZES,
    FakeHosting,
    make_app,
    screen_text,
    until,
    until_shown,
    until_told,
)
from tests.app.test_hostile import EVIL, assert_harmless
from tests.sandboxes.traces import traces

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = "left behind: nobody alive holds"


def lease(name: str, run_id: str | None, host_id: str | None, **changes: Any) -> LeaseRow:
    values: dict[str, Any] = {
        "provider": "local", "isolation": "bubblewrap", "group_id": 12, "attempt": 3, "state": LeaseState.ACTIVE,
        "created_at": time.time() - 200, "ttl_seconds": 1300.0, "memory_mb": 256, **changes,
    }  # fmt: skip
    return LeaseRow(name, run_id=run_id, host_id=host_id, **values)


async def put(store: Store, *rows: LeaseRow) -> None:
    journal = LeaseJournal(store)
    for row in rows:
        await journal.add(row)


@pytest.fixture
def host_id(store: Store) -> str:
    """The living host of the live run."""
    found = store.reader().run(LIVE).host_id
    assert found is not None
    return found


@pytest.fixture
async def leases(store: Store, host_id: str) -> None:
    await put(
        store,
        lease("ltui-k3f9-held-one", LIVE, host_id),
        lease("ltui-k3f9-held-two", LIVE, host_id, state=LeaseState.RELEASING),
        lease("ltui-k3f9-left-one", LIVE, "host-of-yesterday"),
        lease(
            "ltui-k3f9-left-two",
            None,
            None,
            state=LeaseState.LOST,
            last_error="503 Service Unavailable",
            tries=6,
        ),
        lease("ltui-k3f9-released", LIVE, host_id, state=LeaseState.RELEASED, released_at=time.time()),
    )


async def go(pilot: Pilot[int], app: LoopsApp) -> SandboxesScreen:
    await until_shown(pilot, app, "7 runs")
    await pilot.press("4")
    await until_shown(pilot, app, "› Sandboxes")
    screen = app.screen
    assert isinstance(screen, SandboxesScreen)
    await until(pilot, lambda: "in use" in screen_text(app), "the leases are read")
    return screen


def state_of(store: Store, name: str) -> LeaseState:
    row = store.reader().lease(name)
    assert row is not None
    return row.state


@pytest.mark.parametrize("size", SIZES)
async def test_nothing_is_held(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        screen = await go(pilot, app)
        await until_shown(pilot, app, "Nothing is held.", "0 in use")
        for action in ("open", "mark", "release", "clean_up"):
            assert not screen.check_action(action, ())
        await pilot.press("d", "c", "space", "enter")
        assert app.screen is screen
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "1 goes back to the runs")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.usefixtures("leases")
async def test_what_was_left_stands_apart_and_first(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        screen = await go(pilot, app)
        await until_shown(
            pilot, app, SENTENCE, "Left behind (2)", "ltui-k3f9-left-one", "ltui-k3f9-left-two", "× lost", "dead",
            "In use", "ltui-k3f9-held-one", "◒ releasing", "2 left behind", "2 in use", "ttl left", "18m",
        )  # fmt: skip
        assert screen.left_table.has_focus
        assert "its process is gone" in screen_text(app)
        await pilot.press("down")
        await until_shown(pilot, app, "last error: 503 Service Unavailable (try 6)", "has given it up")
        await pilot.press("tab")
        await until_shown(pilot, app, "group 12, attempt 3", "local bubblewrap, 256 MiB")
        assert "held by" in screen_text(app)
        assert "ltui-k3f9-released" not in screen_text(app)
        await pilot.press("a")
        await until_shown(pilot, app, "ltui-k3f9-released", "✓ released")
        await pilot.press("a")
        await until(pilot, lambda: "ltui-k3f9-released" not in screen_text(app), "the released ones go again")


@pytest.mark.parametrize("size", SIZES)
async def test_a_sandbox_that_nothing_isolates_is_seen(
    project: Path, store: Store, host_id: str, size: tuple[int, int]
) -> None:
    await put(
        store,
        lease("ltui-k3f9-held", LIVE, host_id, isolation="none"),
        lease("ltui-k3f9-kept", LIVE, host_id),
        lease("ltui-k3f9-left", LIVE, "host-of-yesterday", isolation="none"),
    )
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await go(pilot, app)
        await until_shown(pilot, app, "!  ltui-k3f9-held", "!  ltui-k3f9-left", "! isolated by nothing (1)")
        assert "!  ltui-k3f9-kept" not in screen_text(app)


@pytest.mark.usefixtures("leases")
async def test_releasing_asks_first_with_cancel_in_focus(project: Path) -> None:
    here = FakeHosting()
    app = make_app(project, here)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await go(pilot, app)
        await until_shown(pilot, app, "ltui-k3f9-left-one")
        await pilot.press("d")
        await until_shown(pilot, app, "Release this sandbox?", "ltui-k3f9-left-one")
        focused = app.focused
        assert isinstance(focused, Button)
        assert focused.id == "choice-cancel"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is screen, "the dialog closes")
        assert here.released == []
        await pilot.press("space", "space", "d")
        await until_shown(pilot, app, "Release 2 sandboxes?", "ltui-k3f9-left-one", "ltui-k3f9-left-two")
        await pilot.press("y")
        await until_told(pilot, app, "2 sandboxes released")
        assert here.released == [(("ltui-k3f9-left-one", "ltui-k3f9-left-two"), False)]
        assert not app.cleaning
        assert app.notice is None


@pytest.mark.usefixtures("leases")
async def test_cleaning_up_takes_what_nobody_holds(project: Path) -> None:
    here = FakeHosting()
    app = make_app(project, here)
    async with app.run_test(size=(80, 24)) as pilot:
        await go(pilot, app)
        await until_shown(pilot, app, SENTENCE)
        for key in ("c", "D"):
            await pilot.press(key)
            await until_shown(pilot, app, "Release 2 sandboxes?", "ltui-k3f9-left-two")
            await pilot.press("escape")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the dialog opens")
        await pilot.press("y")
        await until_told(pilot, app, "2 sandboxes released")
        assert here.released == [(("ltui-k3f9-left-one", "ltui-k3f9-left-two"), False)]


@pytest.mark.usefixtures("leases")
async def test_one_in_use_goes_by_its_own_name_only(project: Path) -> None:
    here = FakeHosting()
    app = make_app(project, here)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await go(pilot, app)
        await until_shown(pilot, app, "ltui-k3f9-held-one")
        await pilot.press("tab", "space", "space", "d")
        await until_told(pilot, app, "living processes hold them")
        assert app.screen is screen
        await pilot.press("up", "space")  # the first one is not marked any more
        await until_shown(pilot, app, "1 marked")
        await pilot.press("d")
        await until_shown(pilot, app, "This sandbox is in use", "ltui-k3f9-held-two", "Leave it")
        assert app.focused is not None
        assert app.focused.id == "choice-cancel"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is screen, "the dialog closes")
        assert here.released == []
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the dialog opens")
        await pilot.press("y")
        await until_told(pilot, app, "1 sandbox released")
        assert here.released == [(("ltui-k3f9-held-two",), True)]


@pytest.mark.usefixtures("leases")
async def test_a_cleanup_that_cannot_be_done_says_why(project: Path) -> None:
    here = FakeHosting()
    here.fail = CleanupFailed("store: the disk is full")
    app = make_app(project, here)
    async with app.run_test(size=(80, 24)) as pilot:
        await go(pilot, app)
        await until_shown(pilot, app, SENTENCE)
        await pilot.press("c", "y")
        await until_told(pilot, app, "the disk is full")
        assert not app.cleaning


def test_what_a_cleanup_says() -> None:
    entries = [CleanupEntry(f"ltui-{number}", "local", None, "503") for number in range(5)]
    report = CleanupReport(False, entries[:2], entries[2:3], entries, entries[4:])
    assert said(report).splitlines() == [
        "2 sandboxes released, 1 gone already, 1 left alone: a living process holds them, 5 failed",
        "ltui-0: 503",
        "ltui-1: 503",
        "ltui-2: 503",
        "and 2 more; the list says why",
    ]
    assert said(CleanupReport(False)).startswith("Nothing was left to release")


@pytest.mark.usefixtures("leases")
async def test_a_run_that_ends_leaves_its_sandboxes_in_view(
    project: Path, store: Store, host_id: str
) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await go(pilot, app)
        await until_shown(pilot, app, "2 left behind", "2 in use")
        store.end_run(LIVE, host_id, RunState.FAILED, "the trainer went away")
        await until_shown(pilot, app, "4 left behind", "0 in use")
        await pilot.press("1")
        await until_shown(pilot, app, "3 sandboxes left behind (4)", "left 3 sandboxes")
        await pilot.press("4", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "enter opens the run")
        await until_shown(pilot, app, "it left 3 sandboxes behind: 4 shows them")
        await pilot.press("4")
        await until(pilot, lambda: isinstance(app.screen, SandboxesScreen), "4 works from a run")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "esc goes back to it")


@pytest.mark.parametrize("size", SIZES)
async def test_hostile_rows(project: Path, store: Store, size: tuple[int, int]) -> None:
    await put(
        store,
        lease(EVIL, EVIL, EVIL, provider=EVIL, isolation=EVIL, last_error=EVIL * 20, state=LeaseState.LOST),
        lease("[b]x", LIVE, EVIL, isolation=""),
    )
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await go(pilot, app)
        await until_shown(pilot, app, "[b]x")
        for key in ("down", "up", "space", "space", "d", "escape", "c"):
            await pilot.press(key)
            await pilot.pause()
            assert_harmless(app)
        assert isinstance(app.screen, Ask)


async def test_a_process_is_killed_and_the_app_cleans_up(project: Path, store: Store) -> None:
    """With real sandboxes, released by the app's own engine."""
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap here")
    victim = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-m", "tests.sandboxes.victim", str(project), "using"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None
    name = (await asyncio.to_thread(victim.stdout.readline)).strip()
    app = LoopsApp(project, lambda: open_store(project), lambda: make_hosting(project))
    async with app.run_test(size=(80, 24)) as pilot:
        await go(pilot, app)
        await until_shown(pilot, app, name, f"pid {victim.pid}", "1 in use")
        victim.kill()
        await asyncio.to_thread(victim.communicate)
        app.poke()
        await until_shown(pilot, app, SENTENCE, "1 left behind")
        await pilot.press("c", "y")
        await until_told(pilot, app, "1 sandbox released")
        await until_shown(pilot, app, "Nothing is held.")
        assert state_of(store, name) is LeaseState.RELEASED
        assert await asyncio.to_thread(traces, project) == []
        await asyncio.to_thread(app.close_hosting)


@pytest.mark.parametrize("size", SIZES)
async def test_what_a_tool_printed_is_shown_and_does_nothing(
    project: Path, store: Store, size: tuple[int, int]
) -> None:
    """Escape sequences from a real sandbox, through a tool's result into the transcript."""
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap here")
    provider = LocalProvider(project, SandboxSettings(disk_mb=8))
    try:
        sandbox = await provider.create(SandboxSpec(new_name("test")))
        command = r"printf 'one\ntwo \033]52;c;QUJD\007\033[2J\033]0;owned\007\302\233 31m [bold]\n'; exit 3"
        done = await sandbox.exec(command, timeout=20)
    finally:
        await provider.aclose()
    result = json.dumps({"exit_code": done.exit_code, "output": done.output})
    turns = [
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "1", "name": "shell", "arguments": json.dumps({"command": "cat \x1b[2J"})}]},
        {"role": "tool", "tool_call_id": "1", "name": "shell", "content": result},
        {"role": "tool", "name": "shell", "content": '{"deep": ' + "[" * 20_000},
        {"role": "tool", "name": "shell", "content": '{"half": "\\ud800"}'},
    ]  # fmt: skip
    recorder = store.recorder(LIVE, host_id="host-1", files=False)
    recorder.attempt(
        AttemptRow(LIVE, 131, 0, AttemptState.DONE, reward=0.0, ending="max_turns", ended_at=1.0)
    )
    recorder.transcript(TranscriptRow(LIVE, 131, 0, "task", 0.0, "max_turns", turns))
    await recorder.flush()
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "7 runs")
        app.push_screen(TranscriptScreen(LIVE, "tool_agent", 131, 0))
        await until_shown(
            pilot, app, "→ shell", "command: cat ␛[J", "result of shell", "exit_code: 3", "output: one",
            "two ␛]52…␛[J␛]0…", "[bold]",
        )  # fmt: skip
        for key in ("pagedown", "end", "t", "home", "t", "end"):
            await pilot.press(key)
            await pilot.pause()
            assert_harmless(app)
