"""The project's configs: choosing one, editing it with its problems in view, checking it, running it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, cast

from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from loops_tui.feed import ReadPlan
from loops_tui.readonly import may_act
from loops_tui.screens.config_acts import ConfigActs
from loops_tui.screens.config_buffers import Unopened
from loops_tui.screens.config_desk import Desk, Document
from loops_tui.screens.config_editor import ConfigEditor
from loops_tui.screens.config_files import ConfigFile, Found, find_configs
from loops_tui.screens.config_layout import TABS, ConfigLayout
from loops_tui.screens.config_panes import Welcome
from loops_tui.screens.config_read import ConfigView, read_config_view
from loops_tui.screens.config_text import NOT_NOW, estimate_lines, notice
from loops_tui.widgets.entry_list import EntryList
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.tab_line import TabLine
from loops_tui.widgets.virtual_table import VirtualTable

LOOK_SECONDS = 2.0  # how often to look whether open files have changed


class ConfigScreen(ConfigLayout):
    """The keys of the Config screen, and what happens on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", id="config.save", tooltip="Save the text to its file"),
        Binding("f5", "check", "Check", id="config.check", tooltip="Check what is in the editor; starts nothing"),
        Binding("ctrl+r", "run_config", "Run", id="config.run", tooltip="Run this config; asks before anything bills"),
        Binding(
            "ctrl+@,ctrl+space,f3", "complete", "Settings", key_display="^space", id="config.complete",
            tooltip="Settings and values that can stand at the cursor, with their meaning",
        ),
        Binding("f8", "next_problem", "Next problem", id="config.next", tooltip="Go to the next problem"),
        Binding(
            "shift+f8,f20", "next_problem(-1)", "Problem before", show=False, id="config.previous",
            tooltip="Go to the problem before",
        ),
        Binding(
            "c", "copy_example", "Copy into project", id="config.copy",
            tooltip="Copy this example's directory into the project, and open the copy",
        ),
        Binding("f9", "discard", "Drop changes", show=False, id="config.discard", tooltip="Drop what is not saved; asks first"),
        Binding(
            "a", "everything", "All files", id="config.all", tooltip="List every TOML and JSON file, or only configs"
        ),
        Binding("f2", "pane('files')", "Files", show=False, id="config.files", tooltip="To the list of files"),
        Binding("f4", "pane('report')", "Report", show=False, id="config.report", tooltip="To the check's report"),
        Binding(
            "less_than_sign", "report(1)", "Older report", show=False, id="config.older", tooltip="The report before"
        ),
        Binding(
            "greater_than_sign", "report(-1)", "Newer report", show=False, id="config.newer", tooltip="The report after"
        ),
        Binding(
            "right_square_bracket", "tab(1)", "Tabs", key_display="[ ]", id="config.tab", tooltip="The next tab"
        ),
        Binding(
            "left_square_bracket", "tab(-1)", "Tab before", show=False, id="config.tab_back", tooltip="The tab before"
        ),
        Binding("f1", "editor_help", "Help", id="config.help", tooltip="All keys of this screen, while typing"),
        Binding("escape", "back", "Back", id="config.back", tooltip="From the text to the files; from there, back"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(
            self.root, self.app.spawn, self._linted, self._trouble, keeps_drafts=self.app.may("save")
        )
        self.acts = ConfigActs(self)
        # Configs that another app on this project is editing, with its pid.
        self._elsewhere: dict[Path, int] = {}

    def on_mount(self) -> None:
        for name, title in (("files", "Configs"), ("setting", "Setting"), ("changes", "Changes")):
            self.query_one(f"#{name}").border_title = title
        self._show_files()
        self.files.focus()
        self.show_tab("files")
        self.set_interval(LOOK_SECONDS, self._look)
        self._show_all()
        self.app.spawn(self._begin())

    def on_unmount(self) -> None:
        self.desk.keep_now()

    async def _begin(self) -> None:
        await self.scan()
        restored = await self.desk.restore()
        for document in restored:
            await self._show_document(document, focus=False)
        first = next((file for file in (self._found or Found()).files if not file.bundled), None)
        if not restored and first is not None:
            await self.open_file(first, focus=False)
        self._show_all()

    # -- files -------------------------------------------------------------------------------------------------

    def on_screen_resume(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self._found is not None:
            self.app.spawn(self.scan())

    async def scan(self) -> None:
        """Look for configs again."""
        everything = self._everything
        found = await asyncio.to_thread(find_configs, self.root, everything=everything)
        self._elsewhere = await self.desk.edited_elsewhere()
        if self._found is None:
            own = any(not file.bundled for file in found.files)
            self._folded = frozenset({"/examples"} if own else ())
        first, self._found = self._found is None, found
        if self.is_laid_out:
            self._show_files()
            self.update_banner()
            if first and found.files:
                self.files.move_to(str(found.files[0].path))

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        row = self.files.cursor_item
        if row is None:
            return
        if row.file is None:
            self._folded ^= {row.key}
            self._show_files()
            return
        self.app.spawn(self.open_file(row.file))

    def on_virtual_table_moved(self) -> None:
        self.refresh_bindings()

    async def open_file(self, file: ConfigFile, *, focus: bool = True) -> None:
        """Open a config in the editor; where that cannot be, say why."""
        try:
            document = await self.desk.open(file)
        except Unopened as error:
            self._trouble(str(error))
            return
        await self._show_document(document, focus=focus)

    async def _show_document(self, document: Document, *, focus: bool) -> None:
        self.document = document
        self._view, self._report = ConfigView(), 0
        if document.path not in self._editors:
            editor = ConfigEditor(
                document.text,
                toml=document.path.suffix.lower() == ".toml",
                read_only=document.file.bundled or not self.app.may("save"),
            )
            self._editors[document.path] = editor
            await self.query_one("#editors").mount(editor)
        for path, editor in self._editors.items():
            editor.display = path == document.path
        self.query_one(Welcome).display = False
        self.files.move_to(str(document.path))
        if focus:
            self.show_tab("editor")
            self._editors[document.path].focus()
        self.app.poke()
        self._show_all()

    # -- text --------------------------------------------------------------------------------------------------

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        document, editor = self.document, self.editor
        if document is not None and editor is not None and event.text_area is editor:
            was = document.modified
            self.desk.typed(document, editor.text)
            if document.modified != was:
                self._show_state()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        self._show_setting()

    def text_changed(self, document: Document) -> None:
        """The document has another text than its editor: show it."""
        editor = self._editors.get(document.path)
        if editor is not None and editor.text != document.text:
            place = editor.cursor_location
            editor.replace(document.text, (0, 0), editor.document.end)
            editor.go_to(place[0] + 1, place[1])
        self._show_all()

    def _linted(self, document: Document) -> None:
        if self.is_laid_out:
            if document is self.document:
                self._show_problems()
                self._show_setting()
                self._show_changes()
            self._show_state()

    def _look(self) -> None:
        if self.in_view and self.desk.documents:
            self.app.spawn(self._look_at_files())

    async def _look_at_files(self) -> None:
        for document in await self.desk.look():
            self.text_changed(document)
            if document.outside is None:
                self.app.notify(
                    f"{safe(document.file.shown, 80)} changed on the disk and was read again", markup=False
                )

    def _trouble(self, sentence: str) -> None:
        self.app.notify(safe(sentence, 600), severity="error", markup=False)

    # -- what is shown -----------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan | None:
        document = self.document
        if document is None:
            return None
        path = str(document.path)
        return lambda reader: read_config_view(reader, path)

    def take(self, data: object) -> None:
        view = cast("ConfigView", data)
        if self.document is None or view.path != str(self.document.path):
            return
        newest = view.checks[0].check_id if view.checks else None
        if newest != (self._view.checks[0].check_id if self._view.checks else None):
            self._report = 0
        self._view = view
        self._show_report()
        self._show_changes()

    def own_notice(self) -> str | None:
        trouble = self._found.trouble if self._found is not None else None
        return trouble or notice(self.document, self._elsewhere, acts=may_act(self))

    def estimate(self) -> list[str]:
        """What the newest report says that a run takes."""
        lines = self._view.checks[0].lines if self._view.checks else []
        begin, end = estimate_lines(lines)
        return ["", *lines[begin:end]] if end > begin else []

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        document = self.document
        if action in ("check", "run_config"):
            marked = self.files.cursor_item if self.files.has_focus else None
            return (
                (document is not None or (marked is not None and marked.file is not None))
                and self.acts.checking is None
                and not self.acts.starting
            )
        if action in ("save", "discard"):
            return document is not None and (document.modified or document.outside is not None)
        if action == "complete":
            return self.editor is not None and self.editor.has_focus and not self.editor.read_only
        if action == "next_problem":
            return document is not None and document.linted is not None and bool(document.linted.findings)
        if action == "copy_example":
            return self._example() is not None
        if action == "report":
            by = parameters[0] if parameters else 1
            return isinstance(by, int) and 0 <= self._report + by < len(self._view.checks)
        if action == "tab":
            return self.is_compact
        if action == "editor_help":
            return self.editor is not None and self.editor.has_focus and not self.editor.read_only
        if action == "everything":
            return self.files.has_focus
        return super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        return NOT_NOW.get(action)

    def on_descendant_focus(self) -> None:
        """The pane in focus is the one that stays in front when the window becomes small."""
        focused = self.focused
        tab = next((name for name in TABS if focused is not None and focused.id == name), "editor")
        if focused is not None and tab != self._tab:
            self.show_tab(tab)
        self.refresh_bindings()

    def action_save(self) -> None:
        if self.document is not None:
            self.acts.save(self.document)

    def action_check(self) -> None:
        self.app.spawn(self._act_on_marked(self.acts.check))

    def action_run_config(self) -> None:
        self.app.spawn(self._act_on_marked(self.acts.run))

    async def _act_on_marked(self, act: Callable[[Document], None]) -> None:
        """Act on the open config; from the list, on the one that is marked there, which is opened first."""
        row = self.files.cursor_item if self.files.has_focus else None
        if row is not None and row.file is not None:
            await self.open_file(row.file, focus=False)
            if self.document is None or self.document.path != row.file.path:
                return
        if self.document is not None:
            act(self.document)

    def action_discard(self) -> None:
        if self.document is not None:
            self.acts.discard(self.document)

    def _example(self) -> ConfigFile | None:
        """The bundled example that is marked in the list, or open."""
        row = self.files.cursor_item if self.files.has_focus else None
        file = row.file if row is not None else (self.document.file if self.document is not None else None)
        return file if file is not None and file.bundled else None

    def action_copy_example(self) -> None:
        file = self._example()
        if file is not None:
            self.acts.copy_example(file)

    def action_editor_help(self) -> None:
        self.app.action_help()

    def action_everything(self) -> None:
        self._everything = not self._everything
        self.app.spawn(self.scan())

    def action_next_problem(self, by: int = 1) -> None:
        document, editor = self.document, self.editor
        if document is None or editor is None or document.linted is None:
            return
        lines = sorted({finding.line or 1 for finding in document.linted.findings})
        here = editor.line_number
        ahead = [line for line in lines if line > here] if by > 0 else [line for line in lines if line < here]
        if lines:
            wrapped = lines[0] if by > 0 else lines[-1]
            self._go_to_line((ahead[0] if by > 0 else ahead[-1]) if ahead else wrapped)

    def _go_to_line(self, line: int) -> None:
        if self.editor is not None:
            self.show_tab("editor")
            self.editor.focus()
            self.editor.go_to(line)

    def on_entry_list_chosen(self, event: EntryList.Chosen) -> None:
        if isinstance(event.target, int):
            self._go_to_line(event.target)
        elif event.target == "unsaved" and self.document is not None:
            self.acts.show_unsaved(self.document)
        elif isinstance(event.target, str) and self.document is not None and self.document.linted is not None:
            self._go_to_line(self.document.linted.lines.line(event.target) or 1)

    def on_config_editor_copying(self, event: ConfigEditor.Copying) -> None:
        self.acts.copy_text(event.text)

    def action_report(self, by: int) -> None:
        self._report = max(0, min(len(self._view.checks) - 1, self._report + by))
        self._show_report()
        self.refresh_bindings()

    def action_pane(self, name: str) -> None:
        self.show_tab(name)
        self.query_one(f"#{name}").focus()

    def action_tab(self, by: int) -> None:
        names = list(TABS)
        self._to_tab(names[(names.index(self._tab) + by) % len(names)])

    def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        self._to_tab(event.tab)

    def _to_tab(self, tab: str) -> None:
        self.show_tab(tab)
        if tab != "editor":
            self.query_one(f"#{tab}").focus()
        elif self.editor is not None:
            self.editor.focus()

    def action_back(self) -> None:
        if self.files.has_focus or self.focused is None:
            self.dismiss(None)
            return
        self.action_pane("files")

    def action_complete(self) -> None:
        if self.document is not None and self.editor is not None:
            self.acts.complete(self.document, self.editor)
