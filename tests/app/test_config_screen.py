"""The Config screen: editing with problems and the meaning of each setting in view."""

# ruff: noqa: ASYNC240  # a test may wait for the disk

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config.linting import lint
from loops_tui.screens.config_picker import Picker
from loops_tui.theme import Tone
from tests.app.conftest import SIZES, make_app, screen_text, until, until_shown
from tests.app.editing import edit, go, keys, said
from tests.app.test_hostile import EVIL, assert_harmless


@pytest.mark.parametrize("size", [*SIZES, (200, 60)])
async def test_typing_marks_the_line_of_the_problem(
    config: Path, agents: Path, size: tuple[int, int]
) -> None:
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        _, editor = await edit(pilot, app)
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
        # Half undone the text has another problem for a moment.
        await until(
            pilot,
            lambda: editor._marks == {} and "unknown key" not in screen_text(app),
            "undone, the problem is gone",
        )


async def test_no_key_waits_for_the_look_at_the_text(agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    gate, begun = threading.Event(), threading.Event()

    def slow(*args, **kwargs):
        begun.set()
        assert gate.wait(120)
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


async def test_the_tabs_name_the_keys_that_switch_them_while_text_is_typed(
    agents: Path, config: Path
) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        await edit(pilot, app)
        await until_shown(pilot, app, "[Editor] Check  Changes    f2 files  f4 check")  # a [ is text here
        await pilot.press("f4")
        await until_shown(pilot, app, "Editor [Check] Changes    [ ] switch")


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
