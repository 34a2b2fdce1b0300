"""``export``: a run's directory, written anew from the store."""

from __future__ import annotations

import os
from pathlib import Path

from loops_tui.commands.output import DONE, Output, UsageError, open_project_store


def export(ref: str, directory: Path | None, out: Output) -> int:
    """Rebuild a run's directory where it belongs, or in another, empty one."""
    with open_project_store() as store:
        row = store.reader().run(ref)
        own = Path(row.run_dir)
        target = own if directory is None else Path.cwd() / os.path.expanduser(directory)
        if target != own and target.exists():
            if not target.is_dir():
                raise UsageError(f"{directory} is no directory")
            if any(target.iterdir()) and not _is_of(target, row.run_id):
                raise UsageError(f"{directory} holds other files; name an empty or a new directory")
        if directory is None and not row.state.final:
            raise UsageError(
                f"run {row.run_id} is {row.state} and its host writes {own}; name another directory for a copy"
            )
        built = store.rebuild_directory(row.run_id, target)
    out.value({"run": row.run_id, "run_dir": str(built.path)})
    out.line(str(built.path))
    return DONE


def _is_of(directory: Path, run_id: str) -> bool:
    """Whether an earlier export of this run wrote the directory."""
    record = directory / "run.json"
    try:
        return f'"{run_id}"' in record.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
