"""Keys of one's own: what a keymap file may say, what is told about one that is wrong, and that the app obeys it."""

from __future__ import annotations

from pathlib import Path

import pytest

from loops_tui.app import LoopsApp
from loops_tui.keymap import all_bindings, load_keymap
from loops_tui.link import open_store
from loops_tui.screens.help import help_lines
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.spans import text_of
from tests.app.conftest import FakeHosting, open_run, until, until_shown, until_told


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keymap.toml"


def test_ids_keys_and_tables(file: Path) -> None:
    file.write_text(
        'run.stop = "S"\n"run.hold" = "?, z"\n[app]\nquit = ["ctrl+q", "Q"]\n[sandboxes]\nmark = ","\n'
    )
    keymap = load_keymap(file)
    # ? is the key of the app's help, and what shadows it is told below; comma alone is a key.
    assert keymap.changes == {"run.stop": ("S",), "app.quit": ("ctrl+q", "Q"), "sandboxes.mark": ("comma",)}
    assert keymap.problems == [
        "keymap.toml: run.hold cannot be 'question_mark', the key of app.help; it stays space"
    ]


def test_no_file_changes_nothing(file: Path) -> None:
    assert (load_keymap(file).changes, load_keymap(file).problems) == ({}, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('run.abrt = "x"', "there is no binding 'run.abrt', did you mean run.abort?"),
        ('zzz = "x"', "there is no binding 'zzz'; `loops-tui keys` lists them"),
        ('run.stop = "hyper-key"', "run.stop: 'hyper-key' names no key; it stays s"),
        ('run.stop = "shft+x"', "run.stop: 'shft+x' names no key; it stays s"),
        ("run.stop = 7", "run.stop: 7 names no key; it stays s"),
        ('run.stop = ""', "run.stop: '' names no key; it stays s"),
        ('run.stop = ["x", 1]', "names no key; it stays s"),
        ('run.stop = "A"', "run.stop cannot be 'A', the key of run.abort; it stays s"),
        ('run.stop = "q"', "run.stop cannot be 'q', the key of app.quit; it stays s"),
        ('run.stop = "j"', "run.stop cannot be 'j', the key of table.down; it stays s"),
        ('app.quit = "v"', "app.quit cannot be 'v', the key of"),
        ('run.stop = "Z"\nrun.abort = "Z"', "run.stop cannot be 'Z', the key of run.abort; it stays s"),
        ("run.stop = ", "is no TOML"),
        ("\xff\xfe", "it is no UTF-8 text"),
    ],
)
def test_an_entry_that_cannot_be_used_is_told_in_one_sentence(file: Path, text: str, said: str) -> None:
    file.write_bytes(text.encode("latin-1"))
    keymap = load_keymap(file)
    assert len(keymap.problems) == 1
    assert said in keymap.problems[0]
    assert "\n" not in keymap.problems[0]
    assert "run.stop" not in keymap.changes


def test_two_keys_may_be_exchanged(file: Path) -> None:
    file.write_text('run.stop = "A"\nrun.abort = "s"\n')
    assert load_keymap(file).problems == []


def test_as_they_come_the_keys_are_no_problem(file: Path) -> None:
    """Each binding given the keys that it has anyway: nothing clashes, every key is known."""
    lines = [f'"{bound.id}" = [{", ".join(repr(key) for key in bound.keys)}]' for bound in all_bindings()]
    file.write_text("\n".join(lines).replace("'", '"'))
    keymap = load_keymap(file)
    assert keymap.problems == []
    assert len(keymap.changes) == len(lines)


@pytest.fixture
def pause_moved(file: Path) -> Path:
    file.write_text('run.pause = "X"')
    return file


async def test_what_shares_a_key_with_a_moved_binding_stays(project: Path, pause_moved: Path) -> None:
    """Pause and go on are one key on the run's screen, for a run that goes on and one that is paused."""
    app = LoopsApp(project, lambda: open_store(project), FakeHosting, keymap=load_keymap(pause_moved))
    async with app.run_test(size=(120, 40)) as pilot:
        await open_run(pilot, app)
        keys = {active.binding.id: key for key, active in app.screen.active_bindings.items()}
        assert keys["run.pause"] == "X"
        await pilot.press("P")
        assert isinstance(app.screen, RunScreen), "P asks nothing of a run that is not paused"
        chain = [bindings for node, bindings in app.screen._binding_chain if node is app.screen]
        assert [binding.id for binding in chain[0].key_to_bindings["P"]] == ["run.resume"]


@pytest.fixture
def mine(file: Path) -> Path:
    file.write_text('runs.filter = "Z"\nruns.nothing = "x"\napp.quit = "Q"\n')
    return file


async def test_the_app_obeys(project: Path, mine: Path) -> None:
    app = LoopsApp(project, lambda: open_store(project), FakeHosting, keymap=load_keymap(mine))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await until_told(pilot, app, "there is no binding 'runs.nothing'")
        assert "Z Filter" in text_of(app.screen.query_one(KeyBar).lines[0])
        await pilot.press("slash")
        assert not app.screen.query("FilterLine Input:focus")
        shown = {
            " ".join(text_of(line).split())
            for line in help_lines(app.screen, app.keymap and app.keymap.changes)
        }
        assert "Z Show only matching runs (your keymap)" in shown
        await pilot.press("Z", *"tool")
        await until_shown(pilot, app, "filter “tool”")
        await pilot.press("escape", "q")
        assert isinstance(app.screen, RunsScreen)
        await pilot.press("Q")
        await until(pilot, lambda: not app.is_running, "the app ends")
