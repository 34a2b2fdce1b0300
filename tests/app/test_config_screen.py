"""The Config screen: files, editing with problems in view, saving, checking, running."""

# ruff: noqa: ASYNC240  # a test may wait for the disk

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.config.linting import lint
from engine.store.rows import RunRow, RunState
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.link import make_hosting, open_store
from loops_tui.screens.config_diff import DiffScreen
from loops_tui.screens.config_editor import ConfigEditor
from loops_tui.screens.config_picker import Picker
from loops_tui.screens.runs import RunsScreen
from loops_tui.theme import Tone
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import SIZES, FakeHosting, make_app, screen_text, until, until_shown, until_told
from tests.app.editing import edit, go, keys, said
from tests.app.test_hostile import EVIL, assert_harmless


@pytest.mark.parametrize("size", [*SIZES, (200, 60)])
async def test_typing_marks_the_line_of_the_problem(
    config: Path, agents: Path, size: tuple[int, int]
) -> None:
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        line = config.read_text().splitlines().index("[training]") + 2
        editor.go_to(line)
        await pilot.press("home", *keys("grup_size = 4\n"))
        await until_shown(
            pilot, app, f"{line}: unknown key 'grup_size' in [training]", "● not saved", "1 problem"
        )
        assert editor._marks == {line - 1: Tone.BAD}
        assert f"{line}×" in screen_text(app)
        editor.go_to(1)
        await pilot.press("f8")
        assert editor.line_number == line
        await pilot.press("ctrl+z", "ctrl+z")
        await until(pilot, lambda: "unknown key" not in screen_text(app), "undone, the problem is gone")
        assert screen.document is not None
        assert editor._marks == {}


async def test_no_key_waits_for_the_look_at_the_text(agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    gate, begun = threading.Event(), threading.Event()

    def slow(*args, **kwargs):
        begun.set()
        assert gate.wait(30)
        return lint(*args, **kwargs)

    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        screen, editor = await edit(pilot, app)
        monkeypatch.setattr("engine.config.linting.lint", slow)
        await pilot.press(*keys("ab"))
        await until(pilot, begun.is_set, "the look begins")
        await pilot.press(*keys("cd = "))
        assert editor.document.get_line(0).startswith("abcd = ")
        gate.set()
        await until_shown(pilot, app, "1: this is not TOML")
        assert screen.document is not None


@pytest.mark.parametrize("size", SIZES)
async def test_what_a_setting_means_stands_beside_it(
    agents: Path, config: Path, size: tuple[int, int]
) -> None:
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        editor.go_to(config.read_text().splitlines().index("group_size = 16") + 1)
        pane = "hint" if size == (80, 24) else "setting"
        await until(pilot, lambda: "whole number, at least 2, at most" in said(screen, pane), "its type")
        assert "default 16" in said(screen, pane)
        assert "advantage is its reward minus the group's mean" in said(screen, pane)
        editor.go_to(config.read_text().splitlines().index("max_turns = 5") + 1)
        await until(pilot, lambda: said(screen, pane).startswith("options"), "a key of a free table")


async def test_a_setting_is_chosen_and_inserted(agents: Path, config: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        screen, editor = await edit(pilot, app)
        editor.go_to(config.read_text().splitlines().index("group_size = 16") + 1)
        await pilot.press("end", "enter", *keys("lear"), "ctrl+@")
        await until(pilot, lambda: isinstance(app.screen, Picker), "the list opens")
        await until_shown(pilot, app, "No such setting.")  # the config has it already
        await pilot.press("backspace", "backspace", "backspace", "backspace", *keys("retries"))
        await until_shown(pilot, app, "max_rollout_retries", "Times an attempt is run again")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is screen, "the list closes")
        await pilot.press("5")  # the value is selected: typing replaces it
        assert "group_size = 16\nmax_rollout_retries = 5\n" in editor.text
        editor.go_to(editor.text.splitlines().index('scope = "local"') + 1)
        await pilot.press("f3")
        await until_shown(pilot, app, 'scope = "serverless"')
        await pilot.press(*keys("serverless"), "enter")
        await until(pilot, lambda: 'scope = "serverless"' in editor.text, "the value is replaced")


@pytest.mark.parametrize("size", SIZES)
async def test_saving_writes_the_text_as_it_is(agents: Path, config: Path, size: tuple[int, int]) -> None:
    config.chmod(0o640)
    before = config.read_text()
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        assert not screen.check_action("save", ())
        await pilot.press(*keys("# mine\n"))
        await until_shown(pilot, app, "● not saved")
        assert screen.check_action("save", ())
        await pilot.press("ctrl+s")
        await until_told(pilot, app, "agents/train_local.toml is saved")
        assert config.read_text() == "# mine\n" + before
        assert config.stat().st_mode & 0o777 == 0o640
        assert "not saved" not in screen_text(app)
        assert sorted(path.name for path in config.parent.iterdir() if path.name.startswith(".")) == []
        assert editor.text == "# mine\n" + before


async def test_a_link_s_target_is_saved_and_stays_linked(agents: Path, config: Path) -> None:
    link = agents / "a_link.toml"
    link.symlink_to("agents/train_local.toml")
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        await edit(pilot, app)
        await until_shown(pilot, app, "a_link.toml → agents")
        await pilot.press(*keys("# x\n"), "ctrl+s")
        await until_told(pilot, app, "a_link.toml is saved")
        assert link.is_symlink()
        assert config.read_text().startswith("# x\n")


async def test_what_cannot_be_saved_is_said_and_kept(agents: Path, config: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        screen, _ = await edit(pilot, app)
        await pilot.press(*keys("# x\n"))
        shutil.rmtree(config.parent)
        await pilot.press("ctrl+s")
        await until_told(pilot, app, "was not saved: the directory")
        assert screen.document is not None
        assert screen.document.modified
        await until(pilot, lambda: any((agents / ".loops" / "drafts").glob("*.json")), "the draft is kept")


@pytest.mark.parametrize("size", SIZES)
async def test_leaving_the_screen_keeps_the_text(agents: Path, config: Path, size: tuple[int, int]) -> None:
    before = config.read_text()
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        await pilot.press(*keys("# x\n"), "escape")
        assert screen.files.has_focus
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "1 goes to the runs")
        await pilot.press("2")
        await until(pilot, lambda: app.screen is screen, "2 comes back to the same screen")
        await until_shown(pilot, app, "● not saved")
        assert editor.text == "# x\n" + before
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "esc in the list goes back")


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
        await pilot.press("c")
        await until_told(pilot, app, "tool_agent_2/ has")
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


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_that_changes_is_noticed(agents: Path, config: Path, size: tuple[int, int]) -> None:
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        config.write_text("# theirs\n" + config.read_text())
        await until_told(pilot, app, "changed on the disk and was read again")
        assert editor.text.startswith("# theirs\n")
        await pilot.press(*keys("# mine\n"))
        await until_shown(pilot, app, "● not saved")
        config.write_text("# theirs again\n" + config.read_text())
        await until(pilot, lambda: "has changed on the disk" in said(screen, "banner"), "the banner says so")
        assert "# mine" in editor.text
        await pilot.press("ctrl+s")
        await until_shown(pilot, app, "Which text counts?")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, DiffScreen), "the difference")
        await until_shown(pilot, app, "- # theirs again", "+ # mine")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Ask), "and the question again")
        await pilot.press("escape", "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, Ask), "nothing was decided")
        assert config.read_text().startswith("# theirs again\n")
        await pilot.press("m")
        await until_told(pilot, app, "is saved")
        assert "# mine" in config.read_text()
        assert "theirs again" not in config.read_text()
        assert screen.document is not None
        assert screen.document.outside is None


async def test_theirs_can_be_taken(agents: Path, config: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        screen, editor = await edit(pilot, app)
        await pilot.press(*keys("# mine\n"))
        config.write_text("# theirs\n")
        await pilot.press("ctrl+s")
        await until_shown(pilot, app, "Which text counts?")
        await pilot.press("t")
        await until(pilot, lambda: editor.text == "# theirs\n", "theirs is in the editor")
        assert screen.document is not None
        assert not screen.document.modified
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "# mine" in editor.text, "what was typed can still be had back")


async def test_a_file_that_is_gone_can_be_written_again(agents: Path, config: Path) -> None:
    text = config.read_text()
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        screen, _ = await edit(pilot, app)
        config.unlink()
        await until(pilot, lambda: "is gone from the disk" in said(screen, "banner"), "the banner says so")
        await pilot.press("ctrl+s")
        await until_told(pilot, app, "is saved")
        assert config.read_text() == text


@pytest.mark.parametrize(
    ("data", "said_of_it"),
    [
        (b'recipe = "\xff"\n', "is not UTF-8 text (line 1)"),
        (b"recipe = 1\n" + b"#" * 1_200_000, "1.2 MB: too much for a config"),
        (b"recipe = 1\r\na = 1\n", "mixes line endings"),
        (b'recipe = "a\xe2\x80\xa8b"\n', "separators that this editor would change"),
        (b'recipe = "' + b"x" * 20_000 + b'"\n', "a line of 20,011 characters"),
    ],
)
async def test_a_file_that_cannot_be_edited_says_why(
    empty_project: Path, data: bytes, said_of_it: str
) -> None:
    (empty_project / "odd.toml").write_bytes(data)
    app = make_app(empty_project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until_told(pilot, app, said_of_it)
        assert screen.document is None
        assert (empty_project / "odd.toml").read_bytes() == data


async def test_a_link_that_leads_nowhere_and_a_directory_gone(empty_project: Path) -> None:
    (empty_project / "lost.toml").symlink_to("nowhere.toml")
    app = make_app(empty_project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until_told(pilot, app, "lost.toml is a link to nowhere.toml, which is not there")
        shutil.rmtree(empty_project)
        await screen.scan()
        await until_shown(pilot, app, "cannot be read")


async def test_hostile_text_is_shown_and_kept(empty_project: Path) -> None:
    text = f'recipe = "rl"\n# {EVIL}\nname = "{EVIL}"\n'
    (empty_project / "evil.toml").write_text(text)
    app = make_app(empty_project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until(pilot, lambda: screen.editor is not None, "it opens")
        await until(
            pilot, lambda: screen.document is not None and screen.document.linted is not None, "and is read"
        )
        await pilot.pause()
        assert_harmless(app)
        assert screen.editor is not None
        assert screen.editor.text == text


async def test_what_is_pasted_is_cleaned(agents: Path) -> None:
    from textual import events

    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        _, editor = await edit(pilot, app)
        editor.post_message(events.Paste("a\x1b]52;c;x\x07b\r\nc\td\u2028e"))
        await until(pilot, lambda: editor.document.get_line(1) == "c\tde# A tool-using agent on this machine: local sandboxes, the shipped demonstration model, no account, no cost.", "pasted")  # fmt: skip
        assert editor.document.get_line(0) == "a]52;c;xb"


async def test_copying_in_the_editor_leaves_the_app_open(
    agents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    sent: list[str] = []
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        monkeypatch.setattr(app, "copy_to_clipboard", sent.append)
        _, editor = await edit(pilot, app)
        await pilot.press("shift+end", "ctrl+c")
        await until(pilot, lambda: bool(sent), "the selection is copied")
        assert sent == [editor.document.get_line(0)]
        assert app.is_running


async def test_a_json_config_is_edited_as_well(empty_project: Path) -> None:
    (empty_project / "train.json").write_text('{\n  "recipe": "rl",\n  "training": {"group_size": 1}\n}\n')
    app = make_app(empty_project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until_shown(pilot, app, "3: [training] group_size must be at least 2")
        assert screen.editor is not None
        screen.editor.go_to(3, 20)
        await until(
            pilot, lambda: "group_size [training] whole number" in said(screen, "setting"), "its meaning"
        )


async def test_sizes_change_without_loss(agents: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(200, 60)) as pilot:
        _, editor = await edit(pilot, app)
        await pilot.press(*keys("# x"))
        for size in ((80, 24), (120, 40), (40, 10), (200, 60), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await until_shown(pilot, app, "[Editor]", "# x#")
        assert app.focused is editor
        await pilot.press("y")
        assert editor.document.get_line(0).startswith("# xy#")


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


def test_the_first_paint_imports_no_grammar() -> None:
    import subprocess
    import sys

    code = "import sys, loops_tui.app, loops_tui.screens.runs; print(*[m for m in sys.modules if 'tree_sitter' in m or m.startswith('pydantic')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ},
    )
    assert done.stdout.split() == []


async def test_a_config_of_the_other_recipe_has_its_own_settings(empty_project: Path) -> None:
    (empty_project / "sft.toml").write_text('recipe = "sft"\n\n[training]\nepochs = 2\n')
    app = make_app(empty_project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen, editor = await edit(pilot, app)
        editor.go_to(4)
        await until(pilot, lambda: "epochs [training] whole number" in said(screen, "setting"), "its meaning")
        await pilot.press("end", "enter", "f3")
        await until_shown(pilot, app, "batch_size", "warmup_steps")
        assert "group_size" not in screen_text(app)


async def test_leaving_during_a_check_is_no_defect(agents: Path) -> None:
    import threading

    begun, gate = threading.Event(), threading.Event()

    class Slow(FakeHosting):
        def check(self, config: Path, text: str | None) -> None:
            begun.set()
            gate.wait(30)

    app = make_app(agents, Slow())
    async with app.run_test(size=(80, 24)) as pilot:
        await edit(pilot, app)
        await pilot.press("f5")
        await until(pilot, begun.is_set, "the check is under way")
        app.exit(0)
        gate.set()
    assert app.crash is None
    assert app.return_code == 0
