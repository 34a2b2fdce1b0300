"""What is up on the account and unknown here, from the Checkpoints screen."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from engine.hosting.account import Account, AccountRun, AccountSampler
from engine.hosting.local_server import LocalServer
from engine.loops.management import LoopsRunInfo, LoopsSampler
from engine.loops.session import LoopsSession, SessionSettings
from engine.store.rows import RunState
from engine.store.store import Store
from loops_tui.link import make_hosting
from loops_tui.loops_ports import ActFailed
from loops_tui.screens.account import AccountScreen
from loops_tui.screens.checkpoints import CheckpointsScreen
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import SIZES, FakeHosting, make_app, screen_text, until, until_shown, until_told
from tests.app.test_checkpoints_screen import open_checkpoints, saved
from tests.loops_admin.conftest import DEMO
from tools.sample_checkpoints import BILLING
from tools.sample_store import run_row

__all__ = ["saved"]


def held() -> Account:
    """Two runs of this project, one of them left up beside its own row's; a stranger, one that ended, a sampler."""
    hours = time.time() - 7 * 3600

    def run(loops_id: str, name: str, state: str = "ACTIVE") -> LoopsRunInfo:
        return LoopsRunInfo(loops_id, name, "Qwen/Qwen3-8B", state, hours)

    sampler = LoopsSampler("smp-4", "Qwen/Qwen3-8B", "ACTIVE", hours, "m", "d")
    return Account(
        [
            AccountRun(run("run-7f3c21", f"tool_agent-{BILLING}"), "Baseten", BILLING, current=True),
            AccountRun(run("run-left", f"tool_agent-{BILLING}"), "Baseten", BILLING),
            AccountRun(run("run-strange", "some\x1b[31mbody's"), "Baseten", None),
            AccountRun(run("run-over", "ended", "INACTIVE"), "Baseten", None),
        ],
        [AccountSampler(sampler, "Baseten")],
        [],
    )


@pytest.mark.parametrize("size", SIZES)
async def test_what_bills_and_no_run_here_tells_of(saved: Path, size: tuple[int, int]) -> None:
    hosting = FakeHosting()
    hosting.loops.holds = held()
    app = make_app(saved, hosting)
    async with app.run_test(size=size) as pilot:
        await open_checkpoints(pilot, app)
        await pilot.press("A")
        await until_shown(pilot, app, "On the account, unknown here", "3 up that no run here tells of")
        await until_shown(pilot, app, "run-left", "run-strange", "some␛", "smp-4", "7h 00m")
        assert isinstance(app.screen, AccountScreen)
        shown = [one.loops.id for one in app.screen.table.items]
        assert shown == ["run-left", "run-strange", "smp-4"]
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, CheckpointsScreen), "back")


async def test_one_of_them_is_ended_after_a_question(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.loops.holds = held()
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_checkpoints(pilot, app)
        await pilot.press("A")
        await until_shown(pilot, app, "run-strange")
        await pilot.press("down", "D")
        await until_shown(pilot, app, "Deactivate this?", "somebody else may be", "and with it the")
        assert app.focused is not None
        assert app.focused.id == "choice-cancel"
        await pilot.press("escape")
        assert hosting.loops.asked == [("account",)]
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        hosting.loops.holds = Account([], [], [])
        await pilot.press("y")
        await until_told(pilot, app, "run-strange is INACTIVE")
        await until_shown(pilot, app, "Nothing else is up on the account")
        assert hosting.loops.asked == [("account",), ("deactivate", "run-strange"), ("account",)]


async def test_what_could_not_be_asked_is_said(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.loops.fail = ActFailed("Loops at Baseten refused the API key while listing its runs")
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_checkpoints(pilot, app)
        await pilot.press("A")
        await until_shown(pilot, app, "refused the API key while listing")
        hosting.loops.fail, hosting.loops.holds = None, held()
        hosting.loops.holds.problems.append("nothing answers at http://127.0.0.1:9 while listing its runs")
        await pilot.press("r")
        await until_shown(pilot, app, "nothing answers at", "run-strange")


def test_a_stranger_on_the_project_s_own_server(tmp_path: Path) -> None:
    """The real engine, the real server: found, told apart from this project's, and ended."""
    server = LocalServer(tmp_path)
    address = server.start()

    async def begin(name: str) -> str:
        settings = SessionSettings(base_model=str(DEMO), lora_rank=4, name=name)
        session = await LoopsSession.start(settings, url=address.url, api_key=address.key)
        await session.close()
        return session.loops_run_id

    mine, left, stranger = (asyncio.run(begin(name)) for name in ("agent-r1", "agent-r1", "somebody's"))
    with Store.open(tmp_path) as store:
        store.create_run(run_row("r1", "agent", RunState.DONE, tmp_path))
        recorder = store.recorder("r1", files=False)
        recorder.run(loops_run_id=mine, scope="local", loops_state="ACTIVE")
        recorder.close()
    hosting = make_hosting(tmp_path)
    try:
        found = hosting.loops.account()
        assert {(one.loops.id, getattr(one, "run_id", None)) for one in found.unseen} == {
            (left, "r1"),
            (stranger, None),
        }
        for loops_run_id in (left, stranger):
            assert hosting.loops.deactivate(loops_run_id, lambda _: None) == [loops_run_id]
        assert hosting.loops.account().unseen == []
        assert [run.loops.active for run in found.runs if run.current] == [True]
    finally:
        hosting.close()
        server.close()


async def test_which_checkpoints_are_left_is_asked(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_checkpoints(pilot, app, f"{BILLING}/step-000028")
        await pilot.press("R")
        await until_told(pilot, app, "Loops has 0 checkpoints of tool_agent")
        assert hosting.loops.asked == [("refresh", BILLING)]
        assert "On the account" not in screen_text(app)
