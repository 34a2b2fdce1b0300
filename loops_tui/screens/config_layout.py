"""How the Config screen is laid out and what its panes show; its keys stand in ``config``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical

from loops_tui.lease_words import counted
from loops_tui.readonly import may_act
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.config_acts import ConfigActs
from loops_tui.screens.config_cursor import MOST_SCANNED, setting_at
from loops_tui.screens.config_desk import Desk, Document
from loops_tui.screens.config_editor import ConfigEditor
from loops_tui.screens.config_files import Found
from loops_tui.screens.config_panes import SettingPane, Welcome
from loops_tui.screens.config_read import ConfigView
from loops_tui.screens.config_text import (
    COLUMNS,
    Row,
    change_entries,
    file_cells,
    file_rows,
    nothing_found,
    problem_entries,
    report_entries,
    report_title,
)
from loops_tui.theme import Tone
from loops_tui.widgets.entry_list import EntryList
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Span, entitle
from loops_tui.widgets.tab_line import SWITCH, TabLine
from loops_tui.widgets.virtual_table import Cells, VirtualTable

if TYPE_CHECKING:
    from engine.config.comparing import Change

TABS = {"files": "Files", "editor": "Editor", "report": "Check", "changes": "Changes"}


class ConfigLayout(FedScreen):
    """Files on the left, the editor in the middle, what is known about its text on the right."""

    desk: Desk
    acts: ConfigActs

    def __init__(self) -> None:
        super().__init__()
        self.root = self.app.project_dir.resolve()
        self.document: Document | None = None
        self._editors: dict[Path, ConfigEditor] = {}
        self._found: Found | None = None
        self._everything = False
        self._folded: frozenset[str] = frozenset()
        self._view = ConfigView()
        self._report = 0  # which of the stored reports is in view, the newest first
        self._tab = "files"

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        yield TabLine(TABS)
        with Horizontal(id="body"):
            yield VirtualTable[Row](COLUMNS, lambda row: row.key, self._cells, id="files", classes="pane")
            with Vertical(id="middle", classes="pane"):
                with Container(id="editors"):
                    yield Welcome()
                yield EntryList(id="problems")
                yield SettingPane(id="hint", brief=True)
            with Vertical(id="side"):
                yield SettingPane(id="setting", classes="pane")
                yield EntryList(id="report", classes="pane")
                yield EntryList(id="changes", classes="pane")
        yield KeyBar()

    @property
    def is_laid_out(self) -> bool:
        """Whether the panes are there: not before the first paint, and not while the app ends."""
        return self.is_mounted and bool(self.query(KeyBar))

    @property
    def files(self) -> VirtualTable[Row]:
        return cast("VirtualTable[Row]", self.query_one("#files", VirtualTable))

    @property
    def editor(self) -> ConfigEditor | None:
        """The editor in view."""
        return None if self.document is None else self._editors.get(self.document.path)

    def show_tab(self, tab: str) -> None:
        """Put a pane in front, where panes share the space."""
        self._tab = tab
        for name in TABS:
            self.set_class(name == tab, f"-tab-{name}")
        typing = tab == "editor" and self.editor is not None and not self.editor.read_only
        self.query_one(TabLine).write(tab, "f2 files  f4 check" if typing else SWITCH)

    def _show_files(self) -> None:
        found = self._found
        self.files.set_empty(nothing_found(found.trouble if found is not None else None))
        if found is None:
            return
        self.files.show(file_rows(found, self.root.name or "/", self._folded))
        entitle(
            self.files, "All files" if self._everything else "Configs", "more than shown" if found.cut else ""
        )

    def _cells(self, row: Row) -> Cells:
        document = None if row.file is None else self.desk.documents.get(row.file.path)
        state: Span = (" ", Tone.PLAIN)
        if document is not None:
            if document.modified and not document.file.bundled:
                state = ("●", Tone.ACCENT)
            elif document.linted is not None:
                state = ("×", Tone.BAD) if document.linted.errors else ("✓", Tone.DIM)
        return file_cells(row, self._folded, self.document.path if self.document else None, state)

    def _show_all(self) -> None:
        if not self.is_laid_out:
            return
        self._show_problems()
        self._show_setting()
        self._show_report()
        self._show_changes()
        self._show_state()

    def _show_state(self) -> None:
        """Everything that says what is saved and what is wrong: the top line, the list, the banner, the keys."""
        document = self.document
        path = [self.root.name or "/", "Config"]
        right: list[Span] = []
        if document is not None:
            path.append(document.file.shown)
            errors = document.linted.errors if document.linted is not None else 0
            if document.file.bundled:
                right.append(("read-only", Tone.DIM))
            elif document.modified:
                right.append(("● not saved", Tone.ACCENT))
            if errors:
                right.extend(((" · " if right else "", Tone.FAINT), (counted(errors, "problem"), Tone.BAD)))
        self.query_one(TopLine).write(path, tuple(right))
        entitle(
            self.query_one("#middle"),
            safe(document.file.name, 60).replace("[", "(") if document else "Editor",
        )
        self._show_files()
        self.files.refresh()
        self.update_banner()
        self.refresh_bindings()

    def _show_problems(self) -> None:
        findings = self.document.linted.findings if self.document and self.document.linted else []
        problems = self.query_one("#problems", EntryList)
        problems.write(problem_entries(findings))
        problems.set_class(bool(findings), "-some")
        if self.editor is not None:
            marks = {
                finding.line - 1: Tone.BAD if finding.severity == "error" else Tone.WARN
                for finding in reversed(findings)
                if finding.line
            }
            self.editor.mark(marks)

    def _show_setting(self) -> None:
        editor, document = self.editor, self.document
        found, here = None, None
        if editor is not None and document is not None:
            found, here = setting_at(editor.lines_of_text(), editor.cursor_location[0], document.path)
        for name in ("setting", "hint"):
            self.query_one(f"#{name}", SettingPane).write(found, here)

    def show_report(self) -> None:
        """The newest report is in view; where panes share the space, they make way for it."""
        self._report = 0
        if self.is_laid_out:
            if self.is_compact:
                self.show_tab("report")
                self.query_one("#report").focus()
            self._show_report()
            self.refresh_bindings()

    def _show_report(self) -> None:
        report = self.query_one("#report", EntryList)
        checks = self._view.checks
        check, before = (*checks[self._report : self._report + 2], None, None)[:2]
        path = self.document.path if self.document else self.root
        checking = self.document is not None and self.acts.checking is self.document
        report.write(report_entries(check, path, checking, before, acts=may_act(self)))
        entitle(report, *report_title(checks, self._report, time.time()))

    def _show_changes(self) -> None:
        document, run = self.document, self._view.run
        changes: list[Change] | None = None
        unsaved = None
        if document is not None:
            if document.modified and not document.file.bundled:
                unsaved = document.unsaved
            small = len(document.text) <= MOST_SCANNED
            if (
                small
                and run is not None
                and document.linted is not None
                and document.linted.table is not None
            ):
                from engine.config.comparing import changes_since_run

                changes = changes_since_run(run.config_toml, document.linted.table)
        self.query_one("#changes", EntryList).write(change_entries(run, changes, unsaved, time.time()))
