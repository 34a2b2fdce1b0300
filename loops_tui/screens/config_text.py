"""What the Config screen says, as lines and remarks: files, problems, a setting's meaning, reports, changes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loops_tui.lease_words import counted
from loops_tui.screens.config_files import ConfigFile, Found
from loops_tui.theme import Tone
from loops_tui.widgets.entry_list import Entry
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, plain
from loops_tui.widgets.virtual_table import Column
from loops_tui.widgets.wrapping import wrap

if TYPE_CHECKING:
    from engine.config.catalog import Setting, Table
    from engine.config.comparing import Change
    from engine.config.report import Finding
    from engine.store.rows import CheckRow, RunRow
    from loops_tui.screens.config_desk import Document

PROJECT, EXAMPLES = "project", "examples"
COLUMNS = (Column("name", "● unsaved  × problems", 12, flex=1),)
_SEVERITIES: dict[str, tuple[str, Tone]] = {
    "error": ("× ", Tone.BAD),
    "warning": ("! ", Tone.WARN),
    "ok": ("✓ ", Tone.GOOD),
}


# -- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the list of files: a heading, a directory or a file."""

    key: str
    label: str
    depth: int
    file: ConfigFile | None = None
    note: str = ""


NOT_NOW = {
    "check": "a config has to be open, and no check or start under way",
    "run_config": "a config has to be open, and no check or start under way",
    "save": "there is nothing to save: the text is as its file",
    "discard": "there is nothing to drop: the text is as its file",
    "next_problem": "no problem is known in this text",
    "copy_example": "only a bundled example is copied into the project",
    "report": "there is no further report of this config that way",
}
"""Why a key of the screen does nothing, by its action."""


def file_rows(found: Found, project: str, folded: frozenset[str]) -> list[Row]:
    """The project's files and the examples', each under its directory; ``folded`` directories show no files."""
    rows: list[Row] = []
    for heading, bundled in ((safe(project, 60), False), ("Bundled examples", True)):
        files = [file for file in found.files if file.bundled is bundled]
        top = EXAMPLES if bundled else PROJECT
        note = f"{len(files)}" if files else "none"
        rows.append(Row(f"/{top}", heading, 0, None, note))
        if f"/{top}" in folded:
            continue
        directory = "examples" if bundled else ""
        for file in files:
            nested = file.directory != ("examples" if bundled else "")
            if file.directory != directory:
                directory = file.directory
                rows.append(
                    Row(f"/{top}/{directory}", safe(directory.removeprefix("examples/"), 80) + "/", 1)
                )
            if f"/{top}/{file.directory}" not in folded:
                rows.append(Row(str(file.path), safe(file.name, 80), 2 if nested else 1, file))
    return rows


def file_cells(row: Row, folded: frozenset[str], open_path: Path | None, state: Span) -> tuple[Line]:
    """A row of the list of files. ``state`` is a glyph for what is known of an open one."""
    indent = " " * row.depth
    if row.file is None:
        sign = "▸ " if row.key in folded else "▾ "
        tone = Tone.TITLE if row.depth == 0 else Tone.DIM
        return (((f"{indent}{sign}", Tone.FAINT), (row.label, tone), (f"  {row.note}", Tone.FAINT)),)
    here = row.file.path == open_path
    name: list[Span] = [(indent, Tone.PLAIN), state, (" ", Tone.PLAIN)]
    name.append((row.label, Tone.STRONG if here else Tone.PLAIN))
    if row.file.link is not None:
        name.append((f" → {safe(row.file.link, 60)}", Tone.FAINT))
    return (tuple(name),)


def nothing_found(trouble: str | None) -> list[Line]:
    """What the list says where there is nothing to list."""
    return [plain(safe(trouble, 300) if trouble else "Looking for configs …", Tone.DIM)]


def welcome(width: int, *, acts: bool = True) -> list[Line]:
    """What stands where the editor would be, while no config is open."""
    said = [("Choose a config from the list and press enter.", Tone.PLAIN)]
    if acts:
        said += [
            ("", Tone.PLAIN),
            ("A bundled example can be looked at, checked and run as it is. To change one, press c: its whole "
             "directory is copied into the project, and the copy opens here.", Tone.DIM),
        ]  # fmt: skip
    return [plain(f" {piece}", tone) for text, tone in said for piece in wrap(text, max(10, width - 2))]


def notice(document: Document | None, elsewhere: Mapping[Path, int], *, acts: bool = True) -> str | None:
    """What must be known of the open config. ``elsewhere``: configs that other processes are editing; ``acts``: whether
    keys may change anything."""
    if document is None:
        return None
    name = document.file.name
    if document.outside == "changed":
        return f"{name} has changed on the disk: {'^s asks which text counts, ' if acts else ''}f9 shows both"
    if document.outside == "gone":
        return f"{name} is gone from the disk" + ("; ^s writes it again" if acts else "")
    if document.restored_at is not None and document.modified:
        at = time.strftime("%H:%M on %d %b", time.localtime(document.restored_at))
        return f"Restored what was typed and not saved until {at}: ^s saves it, f9 shows or drops it"
    if document.path in elsewhere:
        return f"{name} is being edited in another loops-tui (pid {elsewhere[document.path]})"
    if document.file.bundled:
        if not acts:
            return "A bundled example"
        return "A bundled example, to look at, check and run; c copies it into the project, where it can be changed"
    return None


# -- problems --------------------------------------------------------------------------------------------------------


def problem_entries(findings: Sequence[Finding]) -> list[Entry]:
    """The problems of the text, as remarks that lead to their lines."""
    return [
        Entry(
            safe(_sentence(finding.text, finding.remedy), 600),
            mark=_SEVERITIES.get(finding.severity, ("· ", Tone.DIM)),
            head=(f"{finding.line}: " if finding.line else "", Tone.ACCENT),
            target=finding.line or 1,
        )
        for finding in findings
    ]


def _sentence(text: str, remedy: str | None) -> str:
    from engine.config.problems import Problem

    return str(Problem(text, remedy=remedy))


# -- a setting -------------------------------------------------------------------------------------------------------


def setting_lines(found: Setting | Table | None, here: str | None, width: int) -> list[Line]:
    """The setting or table under the cursor: type, default, what the text says, meaning."""
    from engine.config.catalog import Setting

    if found is None:
        text = "Put the cursor on a setting to read what it means; ^space lists what can stand there."
        return [plain(piece, Tone.DIM) for piece in wrap(text, width)]
    if isinstance(found, Setting):
        return list(_setting(found, here, width))
    return list(_table(found, width))


def hint_lines(found: Setting | Table | None, width: int) -> list[Line]:
    """The same in three lines: what it is in one, what it means in two."""
    from engine.config.catalog import Setting

    if not isinstance(found, Setting):
        return setting_lines(found, None, width)
    head: Line = (
        (found.name, Tone.TITLE),
        (f"  {found.type}", Tone.INFO),
        (" · required", Tone.WARN) if found.required else (f" · default {found.default_words}", Tone.DIM),
    )
    return [head, *(plain(piece) for piece in wrap(found.meaning, width))]


def _setting(found: Setting, here: str | None, width: int) -> Iterator[Line]:
    yield ((found.name, Tone.TITLE), (f"  [{found.table}]" if found.table else "", Tone.FAINT))
    for piece in wrap(found.type, width):
        yield plain(piece, Tone.INFO)
    differs = here is not None and here != found.default
    standing = "required" if found.required else f"default {found.default_words}"
    for place, piece in enumerate(wrap(standing, width)):
        yield plain(piece if place == 0 else f"  {piece}", Tone.WARN if found.required else Tone.DIM)
    if differs:
        yield (("here    ", Tone.DIM), (safe(here or "", 200), Tone.ACCENT))
    yield ()
    for piece in wrap(found.meaning, width):
        yield plain(piece)


def _table(found: Table, width: int) -> Iterator[Line]:
    yield plain(f"[{found.name}]" if found.name else "Top level", Tone.TITLE)
    for piece in wrap(found.meaning, width):
        yield plain(piece)
    yield ()
    for piece in wrap("Settings: " + ", ".join(setting.name for setting in found.settings), width):
        yield plain(piece, Tone.DIM)


# -- reports ---------------------------------------------------------------------------------------------------------


def report_title(checks: Sequence[CheckRow], chosen: int, now: float) -> tuple[str, str]:
    """Title and subtitle of the report in view."""
    if not checks:
        return "Check", ""
    check = checks[chosen]
    which = (
        "" if len(checks) == 1 else f"< {chosen + 1} of {len(checks)} >  "
    )  # the keys that page through them
    return "Check", f"{which}{_when(check.created_at, now)}"


def report_entries(
    check: CheckRow | None, path: Path, checking: bool, before: CheckRow | None = None, *, acts: bool = True
) -> list[Entry]:
    """A stored report: what is wrong first, each leading to its line, then what a run takes, what differs from the
    report ``before``, and the other lines."""
    if check is None:
        how = " F5 checks what is in the editor and starts nothing." if acts else ""
        return [Entry("Checking …" if checking else f"Not checked yet.{how}", Tone.DIM)]
    entries: list[Entry] = []
    if checking:
        entries.append(Entry("Checking …", Tone.INFO))
    findings = [finding for finding in check.findings if finding.get("severity") != "ok"]
    errors = sum(finding.get("severity") == "error" for finding in findings)
    warnings = len(findings) - errors
    entries.append(_verdict(errors, warnings))
    entries += [_finding(finding, path) for finding in findings]
    if findings:
        entries.append(Entry(""))
    begin, end = estimate_lines(check.lines)
    if end > begin:  # what it will take comes before the rest
        entries += [*map(_report_line, check.lines[begin:end]), Entry("")]
    if before is not None:
        entries += [*_since(before, check), Entry("")]
    entries += [_report_line(line) for line in (*check.lines[:begin], *check.lines[end:])]
    return entries


def _since(before: CheckRow, check: CheckRow) -> list[Entry]:
    from engine.checking.since import since

    changes = since(before, check.findings, check.lines)
    if not changes:
        return [Entry("The report before says the same.", Tone.DIM)]
    marks = {"-": ("- ", Tone.BAD), "+": ("+ ", Tone.GOOD)}
    tones = {"-": Tone.DIM, "+": Tone.PLAIN}
    return [
        Entry("Since the report before:", Tone.DIM),
        *(Entry(safe(said[2:], 800), tones[said[0]], marks[said[0]]) for said in changes),
    ]


def estimate_lines(lines: Sequence[str]) -> tuple[int, int]:
    """Where in a report the estimate begins and ends."""
    begin = next((place for place, line in enumerate(lines) if line.startswith("Estimate")), len(lines))
    end = begin + 1
    while end < len(lines) and lines[end].startswith("  "):
        end += 1
    return begin, min(end, len(lines))


def _verdict(errors: int, warnings: int) -> Entry:
    if errors:
        return Entry(f"{counted(errors, 'error')}: a run would not start", Tone.BAD, mark=("× ", Tone.BAD))
    if warnings:
        return Entry(f"Ready, with {counted(warnings, 'warning')}", Tone.WARN, mark=("! ", Tone.WARN))
    return Entry("Ready to run", Tone.GOOD, mark=("✓ ", Tone.GOOD))


def _finding(finding: Mapping[str, object], path: Path) -> Entry:
    line, file = finding.get("line"), finding.get("file")
    text, remedy = str(finding.get("text") or ""), finding.get("remedy")
    own = not file or _same_file(str(file), path)
    number = line if isinstance(line, int) else None
    where = "" if own else f"{Path(str(file)).name}:"
    head = f"{where}{number}: " if number is not None else (f"{where} " if where else "")
    return Entry(
        safe(_sentence(text, str(remedy) if remedy else None), 800),
        mark=_SEVERITIES.get(str(finding.get("severity")), ("· ", Tone.DIM)),
        head=(safe(head, 120), Tone.ACCENT),
        target=number if own else None,
    )


def _same_file(file: str, path: Path) -> bool:
    return Path(file) == path or Path(file) == path.resolve()


def _report_line(line: str) -> Entry:
    """``Name: value`` with its name dimmed; the estimate stands out and its lines belong to it."""
    text = safe(line, 800)
    if line.startswith("Estimate"):
        return Entry(text, Tone.STRONG, mark=("≈ ", Tone.ACCENT))
    if line.startswith("  "):
        return Entry(text.strip(), mark=("  ", Tone.PLAIN))
    name, colon, _ = text.partition(": ")
    if colon and len(name) <= 24:
        return Entry(text[len(name) + 2 :], head=(f"{name}: ", Tone.DIM))
    return Entry(text, Tone.DIM)


# -- changes ---------------------------------------------------------------------------------------------------------


def change_entries(
    run: RunRow | None, changes: Sequence[Change] | None, unsaved: tuple[int, int] | None, now: float
) -> list[Entry]:
    """What differs from the saved file, and by key from what the last run of this config used."""
    entries: list[Entry] = []
    if unsaved is not None:
        more, fewer = unsaved
        parts = [
            f"{counted(lines, 'line')} {what}" for lines, what in ((more, "new"), (fewer, "gone")) if lines
        ]
        said = f"Not saved: {', '.join(parts) or 'how its lines end'}."
        entries.append(Entry(f"{said} Enter shows it.", mark=("● ", Tone.ACCENT), target="unsaved"))
        entries.append(Entry(""))
    if run is None:
        entries.append(Entry("No run has used this config yet.", Tone.DIM))
        return entries
    entries.append(
        Entry(f"Against run {safe(run.run_id, 40)}, {run.state}, {_when(run.created_at, now)}:", Tone.DIM)
    )
    if changes is None:
        entries.append(Entry("The text cannot be read as a config right now.", Tone.DIM))
    elif not changes:
        entries.append(Entry("Nothing differs.", Tone.GOOD, mark=("✓ ", Tone.GOOD)))
    else:
        entries += [_change(change) for change in changes]
    return entries


def _change(change: Change) -> Entry:
    key = safe(change.key, 120)
    old, new = safe(change.old or "", 200), safe(change.new or "", 200)
    if change.kind == "added":
        return Entry(new, Tone.GOOD, ("+ ", Tone.GOOD), (f"{key} = ", Tone.PLAIN), target=change.key)
    if change.kind == "removed":
        return Entry(old, Tone.DIM, ("- ", Tone.BAD), (f"{key} was ", Tone.PLAIN), target=change.key)
    return Entry(
        f"{old} → {new}", Tone.ACCENT, ("~ ", Tone.ACCENT), (f"{key} ", Tone.PLAIN), target=change.key
    )


def _when(at: float, now: float) -> str:
    same_day = time.localtime(at)[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M", time.localtime(at))
