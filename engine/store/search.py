"""Search over transcripts: words that a person typed, never the query language of the index."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass

HIT_START, HIT_END = "\x02", "\x03"
"""Marks around the words found in a snippet: a screen that knows them turns them into a style, any other one shows
them as visible control characters."""

_SNIPPET_TOKENS = 24
_SCANNED = 2000
"""Texts looked through for signs that the index does not know (``{{``, ``=>``)."""


@dataclass(slots=True)
class SearchHit:
    """One transcript that holds the words."""

    run_id: str
    group_id: int
    attempt: int
    task_id: str
    reward: float | None
    ending: str | None
    snippet: str


def search_transcripts(
    connection: sqlite3.Connection, run_id: str | None, text: str, limit: int
) -> list[SearchHit]:
    """Transcripts that hold all words of ``text``, the last one (of two letters or more) as a beginning."""
    query = match_query(text)
    if query is None:
        return _scan(connection, run_id, text, limit)
    first, last = _range(connection, run_id)
    # The index walks its own row ids backwards and stops at the limit; a plain join would sort all hits first.
    hits = connection.execute(
        f"""SELECT rowid, snippet(transcript_text, 0, '{HIT_START}', '{HIT_END}', '…', {_SNIPPET_TOKENS})
            FROM transcript_text WHERE transcript_text MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC""",
        (query, first, last),
    )
    found: list[SearchHit] = []
    for transcript_id, snippet in hits:
        about = connection.execute(
            "SELECT run_id, group_id, attempt, task_id, reward, ending FROM transcripts WHERE transcript_id = ?",
            (transcript_id,),
        ).fetchone()
        # Runs that trained side by side share a range of row ids.
        if about is not None and run_id in (None, about[0]):
            found.append(SearchHit(*about, snippet=snippet))
            if len(found) >= limit:
                break
    return found


def _range(connection: sqlite3.Connection, run_id: str | None) -> tuple[int, int]:
    """The row ids between which a run's transcripts lie."""
    if run_id is None:
        return 0, 2**62
    first, last = connection.execute(
        "SELECT min(transcript_id), max(transcript_id) FROM transcripts WHERE run_id = ?", (run_id,)
    ).fetchone()
    return (1, 0) if first is None else (first, last)


def match_query(text: str) -> str | None:
    """The index's query for typed words, each quoted; None where no word is left to look up."""
    words = [word for word in re.split(r"[\s\0]+", _clean(text)) if re.search(r"\w", word.replace("_", ""))]
    if not words:
        return None
    quoted = ['"' + word.replace('"', '""') + '"' for word in words]
    # A single letter (the "c" of "-c" as well) begins so many words that the index would read half of itself.
    beginning = re.findall(r"[^\W_]+", words[-1])[-1]
    return " AND ".join(quoted) + ("*" if len(beginning) > 1 else "")


def _scan(connection: sqlite3.Connection, run_id: str | None, text: str, limit: int) -> list[SearchHit]:
    """Look for signs that are no words, through the newest texts only."""
    wanted = _clean(text).replace("\0", "").strip()
    if not wanted:
        return []
    of_run, values = ("", []) if run_id is None else ("WHERE t.run_id = ?", [run_id])
    rows = connection.execute(
        f"""SELECT t.run_id, t.group_id, t.attempt, t.task_id, t.reward, t.ending, x.text
            FROM (SELECT * FROM transcripts t {of_run} ORDER BY transcript_id DESC LIMIT {_SCANNED}) t
            JOIN transcript_text x ON x.rowid = t.transcript_id
            WHERE instr(x.text, ?) > 0 ORDER BY t.transcript_id DESC LIMIT ?""",
        (*values, wanted, limit),
    )
    return [SearchHit(*row[:6], snippet=_around(row[6], wanted)) for row in rows]


def _around(text: str, wanted: str) -> str:
    at = text.find(wanted)
    start, end = max(0, at - 60), at + len(wanted)
    head, tail = "…" if start else "", "…" if end + 60 < len(text) else ""
    return f"{head}{text[start:at]}{HIT_START}{wanted}{HIT_END}{text[end : end + 60]}{tail}"


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
