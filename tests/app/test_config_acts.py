"""What is begun from the Config screen: checks, runs, copies of examples, and what differs from the last run."""

# ruff: noqa: ASYNC240  # a test may wait for the disk

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.store.rows import RunRow, RunState
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.link import make_hosting, open_store
from loops_tui.screens.config_editor import ConfigEditor
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import (
    SIZES,
    WAIT_SECONDS,
    FakeHosting,
    make_app,
    screen_text,
    until,
    until_shown,
    until_told,
)
from tests.app.editing import edit, go, keys, said


@pytest.mark.parametrize("size", SIZES)
async def test_an_example_is_copied_whole_and_never_over_something(
    empty_project: Path, size: tuple[int, int]
) -> None:
    (empty_project / "tool_agent").mkdir()
    (empty_project / "tool_agent" / "tasks.jsonl").write_text("mine")
    app = make_app(empty_project)
    async with app.run_test(size=size) as pilot:
        screen = await go(pilot, app)
        await until_shown(pilot, app, "Bundled examples", "train_local.toml")
        while (
            (row := screen.files.cursor_item) is None
            or row.file is None
            or row.file.path.parts[-2:] != ("tool_agent", "train_local.toml")
        ):
            await pilot.press("down")
        await pilot.press("enter")
        await until_shown(pilot, app, "read-only")
        assert "bundled example" in said(screen, "banner")
        await pilot.press("x")
        assert screen.document is not None
        assert not screen.document.modified
        for _ in range(2):  # a key pressed twice copies once
            screen.acts.copy_example(screen.document.file)
        await until_told(pilot, app, "tool_agent_2/ has")
        await until(pilot, lambda: len(app._tasks) == 1, "nothing is copied any more")
        assert not (empty_project / "tool_agent_3").exists()
        await until(
            pilot, lambda: screen.document is not None and not screen.document.file.bundled, "the copy opens"
        )
        copied = {path.name for path in (empty_project / "tool_agent_2").iterdir()}
        assert {"train_local.toml", "tool_episode.py", "tasks.jsonl", "README.md"} <= copied
        assert (empty_project / "tool_agent" / "tasks.jsonl").read_text() == "mine"
        await pilot.press(*keys("# x\n"), "ctrl+s")
        await until_told(pilot, app, "tool_agent_2/train_local.toml is saved")


@pytest.mark.parametrize("size", SIZES)
async def test_the_text_in_the_editor_is_checked_and_the_report_kept(
    agents: Path, config: Path, size: tuple[int, int]
) -> None:
    app = LoopsApp(agents, lambda: open_store(agents), lambda: make_hosting(agents))
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        editor.go_to(editor.text.splitlines().index("max_turns = 5") + 1)
        await pilot.press("home", *keys("no_such = 1\n"), "f5")
        with Store.open(agents) as store:
            await until(
                pilot, lambda: len(store.reader().checks(str(config))) == 1, "the first report is stored"
            )
            check = store.reader().checks(str(config))[0]
            assert not check.ok
            assert check.lines[0] == "Checked: the text in the editor, which is not saved."
            assert "no_such" not in config.read_text()
            await until(
                pilot,
                lambda: "1 error: a run would not start" in said(screen, "report"),
                "the report is in view",
            )
            await pilot.press("f4", "enter")
            await until(pilot, lambda: isinstance(app.focused, ConfigEditor), "a finding leads to its line")
            assert editor.document.get_line(editor.line_number - 1) == "no_such = 1"
            await pilot.press("ctrl+z", *(["ctrl+z"] * 3))
            editor.load_text(config.read_text())
            await until(
                pilot, lambda: screen.document is not None and not screen.document.modified, "all undone"
            )
            await until(pilot, lambda: screen.acts.checking is None, "the first check is over")
            await pilot.press("f5")
            await until(
                pilot, lambda: len(store.reader().checks(str(config))) == 2, "the second report is stored"
            )
        await until(pilot, lambda: "✓ Ready to run" in screen_text(app), "the second report is in view")
        assert "Estimate" in screen_text(app)
        await pilot.press("f4", "less_than_sign")
        await until(
            pilot, lambda: "1 error" in screen_text(app) and "2 of 2" in screen_text(app), "the older one"
        )
        await pilot.press("greater_than_sign")
        await until_shown(pilot, app, "1 of 2", "✓ Ready to run")


@pytest.mark.parametrize("size", SIZES)
async def test_a_report_says_what_differs_from_the_one_before(
    agents: Path, config: Path, size: tuple[int, int]
) -> None:
    finding = {"severity": "warning", "text": "doubt \x1b[31m[red]", "key": None, "line": 1, "remedy": None}
    said_last = "Configuration and runtime checked"
    with Store.open(agents) as store:
        for findings, lines in (
            ([], ["Loss: cispo", "Estimate of a run:", "  Attempts: 4"]),
            ([finding], ["Loss: ppo", "Estimate of a run:", "  Attempts: 8"]),
            ([finding], ["Loss: ppo", "Estimate of a run:", "  Attempts: 8"]),
        ):
            store.add_check(str(config), ok=True, findings=findings, lines=[*lines, said_last])
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, _ = await edit(pilot, app)
        await pilot.press("f4")
        await until(
            pilot, lambda: "The report before says the same." in said(screen, "report"), "the newest report"
        )
        await pilot.press("less_than_sign")
        changes = "- Loss: cispo + Loss: ppo - Attempts: 4 + Attempts: 8 + warning: doubt ␛[m[red]"
        await until(
            pilot, lambda: f"Since the report before: {changes}" in said(screen, "report"), "the one before"
        )
        await until_shown(pilot, app, "< 2 of 3 >", "- Loss: cispo", "+ Attempts: 8")
        await pilot.press("less_than_sign")
        await until_shown(pilot, app, "3 of 3", "Loss: cispo")
        assert "report before" not in said(screen, "report")


@pytest.mark.parametrize("size", SIZES)
async def test_a_run_starts_from_what_is_saved(agents: Path, config: Path, size: tuple[int, int]) -> None:
    here = FakeHosting()
    app = make_app(agents, here)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        await pilot.press(*keys("bad\n"))
        await until_shown(pilot, app, "1 problem")
        await pilot.press("ctrl+r")
        await until_told(pilot, app, "1 problem to put right first")
        editor.load_text("# x\n" + config.read_text())
        await until(pilot, lambda: "1 problem" not in screen_text(app), "put right")
        await pilot.press("ctrl+r")
        await until_shown(pilot, app, "A run uses the file, not the editor.")
        await pilot.press("escape")
        assert here.started == []
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, Ask), "it asks again")
        await pilot.press("y")
        await until(pilot, lambda: here.started == [(config, ())], "the run is started")
        assert config.read_text().startswith("# x\n")
        assert screen.document is not None


class SlowHosting(FakeHosting):
    """A run that starts when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.goes = threading.Event()

    def start(self, config: Path, overrides: Sequence[str]) -> str:
        self.goes.wait(WAIT_SECONDS)
        return super().start(config, overrides)


async def test_a_key_pressed_twice_asks_once_and_starts_once(agents: Path, config: Path) -> None:
    here = SlowHosting()
    app = make_app(agents, here)
    async with app.run_test(size=(120, 40)) as pilot:
        screen, editor = await edit(pilot, app)
        editor.load_text("# x\n" + config.read_text())
        await until(pilot, lambda: "not saved" in screen_text(app), "it is not saved")
        for _ in range(2):
            screen.action_run_config()
        await until(pilot, lambda: len(app._tasks) == 1, "both have looked at the file")
        assert [type(shown) for shown in app.screen_stack].count(Ask) == 1
        await pilot.press("y")
        await until(pilot, lambda: app.notice is not None, "the run is being started")
        assert screen.document is not None
        screen.acts.run(screen.document)
        await until(pilot, lambda: len(app._tasks) == 2, "only the feed and the start are left")
        here.goes.set()
        await until(pilot, lambda: len(app._tasks) == 1, "the run has started")
        assert here.started == [(config, ())]


async def test_from_the_list_the_marked_one_is_meant(agents: Path, config: Path) -> None:
    other = config.with_name("zz_other.toml")
    shutil.copy(config, other)
    here = FakeHosting()
    app = make_app(agents, here)
    async with app.run_test(size=(120, 40)) as pilot:
        screen, _ = await edit(pilot, app)
        await pilot.press("escape", "down", "ctrl+r")
        await until(pilot, lambda: here.started == [(other, ())], "the marked one is started")
        assert screen.document is not None
        assert screen.document.path == other


async def test_what_bills_is_asked_first_with_cancel_in_focus(agents: Path, config: Path) -> None:
    config.write_text(
        config.read_text()
        .replace('scope = "local"', 'scope = "dedicated"')
        .replace("loops-demo-1m", "Qwen/Qwen3.5-4B")
    )
    here = FakeHosting()
    app = make_app(agents, here)
    async with app.run_test(size=(80, 24)) as pilot:
        screen, _ = await edit(pilot, app)
        await pilot.press("ctrl+r")
        await until_shown(pilot, app, "It bills", "Qwen/Qwen3.5-4B on a dedicated deployment")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is screen, "enter cancels")
        assert here.started == []
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, Ask), "it asks again")
        await pilot.press("y")
        await until(pilot, lambda: here.started == [(config, ())], "the run is started")


@pytest.mark.parametrize("size", SIZES)
async def test_what_differs_from_the_last_run(agents: Path, config: Path, size: tuple[int, int]) -> None:
    from engine.config.loading import load_config

    loaded = load_config(config, ["training.max_steps=7"], working_dir=agents)
    with Store.open(agents) as store:
        for number, toml in (("1", "x = 1"), ("2", loaded.as_run())):
            row = RunRow(
                f"2026112{number}-120000-aaaa", "agents", "rl", RunState.DONE, 100.0 + int(number), str(config), toml,
                str(agents / "runs"), "loops-demo-1m", 7,
            )  # fmt: skip
            store.create_run(row)
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        await pilot.press("escape")
        if size == (80, 24):
            await pilot.press("left_square_bracket")
        await until(
            pilot,
            lambda: "20261122-120000-aaaa" in said(screen, "changes"),
            "the newest run is compared with",
        )
        await until(
            pilot, lambda: "training.max_steps 7 → 25" in said(screen, "changes"), "with its value and ours"
        )
        screen.query_one("#changes").focus()
        await pilot.press("enter")
        assert editor.document.get_line(editor.line_number - 1) == "max_steps = 25"


async def test_nothing_is_changed_from_an_app_that_only_looks_on(agents: Path, config: Path) -> None:
    from loops_tui.options import Options

    Store.open(agents).close()
    app = LoopsApp(agents, lambda: open_store(agents), FakeHosting, options=Options(readonly=True))
    async with app.run_test(size=(120, 40)) as pilot:
        screen, editor = await edit(pilot, app)
        assert editor.read_only
        await pilot.press("x", "ctrl+s", "f5", "ctrl+r")
        await pilot.pause()
        assert screen.document is not None
        assert not screen.document.modified
        assert not (agents / ".loops" / "drafts").exists()


async def test_leaving_during_a_check_is_no_defect(agents: Path) -> None:
    import threading

    begun, gate = threading.Event(), threading.Event()

    class Slow(FakeHosting):
        def check(self, config: Path, text: str | None) -> None:
            begun.set()
            gate.wait(120)

    app = make_app(agents, Slow())
    async with app.run_test(size=(80, 24)) as pilot:
        await edit(pilot, app)
        await pilot.press("f5")
        await until(pilot, begun.is_set, "the check is under way")
        app.exit(0)
        gate.set()
    assert app.crash is None
    assert app.return_code == 0
