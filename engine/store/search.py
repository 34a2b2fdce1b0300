"""Search over transcripts: words that a person typed, never the query language of the index."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass

from engine.store.snippets import SnippetMaker, sign_pattern, word_pattern

_SCANNED = 2000
"""Texts looked through, at most, for signs that the index does not know (``{{``, ``=>``)."""
_SCANNED_BYTES = 24_000_000
"""… and so much of them."""
_SNIPPET_BYTES = 8_000_000
"""Read, at most, to find where in the hits the words stand."""


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
        "SELECT rowid FROM transcript_text WHERE transcript_text MATCH ? AND rowid BETWEEN ? AND ? "
        "ORDER BY rowid DESC",
        (query, first, last),
    )
    snippets = SnippetMaker(connection, word_pattern(_words(text)), budget=_SNIPPET_BYTES)
    found: list[SearchHit] = []
    for (transcript_id,) in hits:
        about = _about(connection, transcript_id)
        # Runs that trained side by side share a range of row ids.
        if about is not None and run_id in (None, about[0]):
            snippet = snippets.of(transcript_id)
            found.append(
                SearchHit(*about, snippet=snippets.beginning(transcript_id) if snippet is None else snippet)
            )
            if len(found) >= limit:
                break
    return found


def _about(connection: sqlite3.Connection, transcript_id: int) -> sqlite3.Row | None:
    return connection.execute(
        "SELECT run_id, group_id, attempt, task_id, reward, ending FROM transcripts WHERE transcript_id = ?",
        (transcript_id,),
    ).fetchone()


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
    words = _words(text)
    if not words:
        return None
    quoted = ['"' + word.replace('"', '""') + '"' for word in words]
    # A single letter (the "c" of "-c" as well) begins so many words that the index would read half of itself.
    beginning = re.findall(r"[^\W_]+", words[-1])[-1]
    return " AND ".join(quoted) + ("*" if len(beginning) > 1 else "")


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s\0]+", _clean(text)) if re.search(r"[^\W_]", word)]


def _scan(connection: sqlite3.Connection, run_id: str | None, text: str, limit: int) -> list[SearchHit]:
    """Look for signs that are no words, through the newest texts only."""
    wanted = _clean(text).replace("\0", "").strip()
    if not wanted:
        return []
    of_run, values = ("", []) if run_id is None else ("WHERE run_id = ?", [run_id])
    rows = connection.execute(
        f"SELECT transcript_id FROM transcripts {of_run} ORDER BY transcript_id DESC LIMIT {_SCANNED}", values
    ).fetchall()
    snippets = SnippetMaker(connection, sign_pattern(wanted), budget=_SCANNED_BYTES)
    found: list[SearchHit] = []
    for (transcript_id,) in rows:
        snippet = snippets.of(transcript_id)
        about = None if snippet is None else _about(connection, transcript_id)
        if snippet is not None and about is not None:
            found.append(SearchHit(*about, snippet=snippet))
        if len(found) >= limit or snippets.left <= 0:
            break
    return found


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
