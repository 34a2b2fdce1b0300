"""What is done with a config from its screen: saving, checking, running, copying; each with its questions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loops_tui.clipboard import copy_text
from loops_tui.lease_words import counted
from loops_tui.ports import NotChecked
from loops_tui.screens.config_buffers import NotSaved, Unopened
from loops_tui.screens.config_cursor import key_at, keys_in, recipe_of
from loops_tui.screens.config_desk import ChangedOutside, Document
from loops_tui.screens.config_diff import DiffScreen, diff_lines
from loops_tui.screens.config_files import ConfigFile, NotCopied, copy_example
from loops_tui.screens.config_insert import insert_setting, insert_value, table_at, value_of, word_at
from loops_tui.widgets.confirm import Ask, Choice
from loops_tui.widgets.safe_text import safe, safe_block

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.notifications import SeverityLevel

    from loops_tui.screens.config import ConfigScreen
    from loops_tui.screens.config_editor import ConfigEditor

FILES_NAMED = 6
TOLD_SECONDS = 10.0


class ConfigActs:
    """The acts of one Config screen."""

    def __init__(self, screen: ConfigScreen) -> None:
        self._screen = screen
        self.checking: Document | None = None
        self._starting: str | None = None  # the app's notice while a run is started from here
        self._copying = False

    # -- saving ------------------------------------------------------------------------------------------------

    def save(self, document: Document, then: Callable[[], None] | None = None) -> None:
        """Save, asking where the file has changed meanwhile; ``then`` follows once it is saved."""
        self._screen.app.spawn(self._save(document, then))

    async def _save(self, document: Document, then: Callable[[], None] | None, *, over: bool = False) -> None:
        try:
            await self._screen.desk.save(document, over=over)
        except ChangedOutside:
            self._ask_which(document, then)
        except NotSaved as error:
            self._tell(f"{error}. What you typed is kept as a draft.", "Not saved", "error")
        else:
            self._tell(f"{document.file.shown} is saved")
            self._screen.app.poke()
            if then is not None:
                then()

    def _ask_which(self, document: Document, then: Callable[[], None] | None = None) -> None:
        """The file has changed while it was edited: whose text counts?"""

        def answered(answer: str | None) -> None:
            if answer == "mine":
                self._screen.app.spawn(self._save(document, then, over=True))
            elif answer == "theirs":
                self._screen.app.spawn(self._discard(document))
            elif answer == "diff":
                self.show_unsaved(document, lambda: self._ask_which(document, then))

        self._screen.app.push_screen(
            Ask(
                f"{document.file.name} has changed on the disk",
                ["Somebody else wrote it while it was being edited here. Which text counts?"],
                [
                    Choice("keep", "Go on editing, decide later", "escape"),
                    Choice("diff", "Show the difference", "v"),
                    Choice("mine", "Keep mine: save it over the other", "m", grave=True),
                    Choice("theirs", "Take theirs: drop what I typed", "t", grave=True),
                ],
            ),
            answered,
        )

    def discard(self, document: Document) -> None:
        """Drop what was typed, after asking; where the file has changed, ask which text counts."""
        if document.outside == "changed":
            self._ask_which(document)
            return

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self._screen.app.spawn(self._discard(document))
            elif answer == "diff":
                self.show_unsaved(document, lambda: self.discard(document))

        self._screen.app.push_screen(
            Ask(
                f"Drop the changes to {document.file.name}?",
                ["The editor goes back to what the file holds."],
                [
                    Choice("keep", "Keep them", "escape"),
                    Choice("diff", "Show them", "v"),
                    Choice("yes", "Drop them", "y", grave=True),
                ],
            ),
            answered,
        )

    async def _discard(self, document: Document) -> None:
        try:
            await self._screen.desk.discard(document)
        except Unopened as error:
            self._tell(str(error), "Nothing was dropped", "error")
            return
        self._screen.text_changed(document)

    def show_unsaved(self, document: Document, then: Callable[[], None] | None = None) -> None:
        """The difference between the file and the editor; ``then`` follows when it is closed."""

        async def show() -> None:
            lines = await asyncio.to_thread(diff_lines, document.disk.text, document.text)
            self._screen.app.push_screen(
                DiffScreen("The file on the disk (-) against the editor (+)", lines),
                lambda _: then() if then is not None else None,
            )

        self._screen.app.spawn(show())

    # -- checking and running ----------------------------------------------------------------------------------

    def check(self, document: Document) -> None:
        """Check what is in the editor, saved or not; the report goes to the store."""
        if self.checking is None:
            self.checking = document
            self._screen.show_report()
            self._screen.app.spawn(self._check(document))

    async def _check(self, document: Document) -> None:
        app = self._screen.app
        text = document.text if document.modified else None
        try:
            await asyncio.to_thread(lambda: app.hosting.check(document.path, text))
        except NotChecked as error:
            self._tell(str(error), "Not checked", "error")
        finally:
            self.checking = None
        app.poke()
        self._screen.show_report()

    @property
    def starting(self) -> bool:
        """Whether a run is being started: a second press must not start a second one."""
        return self._starting is not None and self._screen.app.notice == self._starting

    def run(self, document: Document) -> None:
        """Run the config as it is saved; asks before unsaved changes are saved, and before anything bills."""
        self._screen.app.spawn(self._run(document))

    async def _run(self, document: Document) -> None:
        await self._screen.desk.look_now(document)  # what it costs is asked by what it says now
        linted = document.linted
        if linted is not None and linted.errors:
            self._screen.action_next_problem()
            self._tell(
                f"{counted(linted.errors, 'problem')} to put right first; f8 goes through them",
                "Not started",
                "warning",
            )
            return
        if document.modified and not document.file.bundled:
            self._screen.app.push_screen(
                Ask(
                    f"{document.file.name} is not saved",
                    ["A run uses the file, not the editor."],
                    [Choice("cancel", "Cancel", "escape"), Choice("yes", "Save and run", "y")],
                ),
                lambda answer: (
                    self.save(document, lambda: self._start(document)) if answer == "yes" else None
                ),
            )
            return
        self._start(document)

    def _start(self, document: Document) -> None:
        if self.starting:  # the key was pressed again while the first press still looked at the file
            return
        bills = billing(document)
        app = self._screen.app

        def start() -> None:
            app.start_run(document.path)
            self._starting = app.notice
            self._screen.refresh_bindings()

        if not bills:
            start()
            return
        app.push_screen(
            Ask(
                f"Run {document.file.name}? It bills",
                [*bills, *self._screen.estimate()],
                [Choice("cancel", "Cancel", "escape"), Choice("yes", "Run it", "y", grave=True)],
            ),
            lambda answer: start() if answer == "yes" else None,
        )

    # -- files -------------------------------------------------------------------------------------------------

    def copy_example(self, file: ConfigFile) -> None:
        """Copy a bundled example's directory into the project and open the copy."""
        if not self._copying:  # else the key was pressed twice
            self._copying = True
            self._screen.app.spawn(self._copy_example(file))

    async def _copy_example(self, file: ConfigFile) -> None:
        root = self._screen.root
        try:
            config, copied = await asyncio.to_thread(copy_example, file.path, root)
        except NotCopied as error:
            self._tell(str(error), "Not copied", "error")
            return
        finally:
            self._copying = False
        named = ", ".join(copied[:FILES_NAMED])
        more = f" and {len(copied) - FILES_NAMED} more" if len(copied) > FILES_NAMED else ""
        self._tell(
            f"{config.parent.name}/ has {counted(len(copied), 'file')}: {named}{more}",
            "Copied into the project",
        )
        await self._screen.scan()
        await self._screen.open_file(ConfigFile(config, config.relative_to(root).as_posix(), False))

    def complete(self, document: Document, editor: ConfigEditor) -> None:
        """Offer what can stand at the cursor, and insert what is chosen."""
        from engine.config import catalog
        from loops_tui.screens.config_picker import Offer, Picker, offers

        lines, row = editor.lines_of_text(), editor.cursor_location[0]
        word, recipe = word_at(lines, row), recipe_of(lines)
        key = None if word else catalog.setting(key_at(lines, row, document.path) or "", recipe)
        here = key if key is not None and value_of(lines[row]) is not None else None
        present = [
            name for name in keys_in(editor.text, document.path, recipe) if name.rpartition(".")[2] != word
        ]

        def taken(offer: Offer | None) -> None:
            if offer is None:
                return
            if offer.value is not None:
                editor.insert_at(insert_value(lines, row, offer.value))
            elif document.path.suffix.lower() == ".json":
                editor.insert(f'"{offer.setting.name}": {offer.setting.example}')
            else:
                editor.insert_at(insert_setting(lines, row, offer.setting))

        self._screen.app.push_screen(Picker(offers(table_at(lines, row), present, here, recipe), word), taken)

    def copy_text(self, text: str) -> None:
        """Put a text of the editor where the terminal or tmux pastes it from, and into the editor's own clipboard."""
        app = self._screen.app
        file = app.copies_dir / "copied.txt"

        async def copy() -> None:
            result = await copy_text(safe_block(text), file, app.copy_to_clipboard)
            self._tell(
                result.said, "Copied" if result.ok else "Not copied", "information" if result.ok else "error"
            )

        app.spawn(copy())

    def _tell(self, text: str, title: str = "", severity: SeverityLevel = "information") -> None:
        self._screen.app.notify(
            safe(text, 600), title=title, severity=severity, timeout=TOLD_SECONDS, markup=False
        )


def billing(document: Document) -> list[str]:
    """What of a run of this config costs money, in sentences; nothing for a run on this machine."""
    from engine.config.billing import billed

    linted = document.linted
    if linted is None or linted.settings is None or linted.scope is None:
        return ["The config could not be read, so nobody knows."]
    return billed(linted.settings, linted.scope)
