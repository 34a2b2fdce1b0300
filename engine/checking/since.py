"""How a check's report differs from the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.store.rows import CheckRow


def since(before: CheckRow, findings: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> list[str]:
    """What a report of these findings and lines, as they are stored, says no longer, behind a minus, and what it says
    anew, behind a plus; nothing where both say the same.

    The last line of a report only counts what stands above it, and where a finding stands may have moved. Of a config
    that could not be loaded nothing but the errors is known, so nothing else is compared with it.
    """
    whole = len(before.lines) > 1 and len(lines) > 1
    was, now = _said(before.findings, before.lines, whole), _said(findings, lines, whole)
    return [
        *(f"- {said}" for said in was if said not in now),
        *(f"+ {said}" for said in now if said not in was),
    ]


def _said(findings: Iterable[Mapping[str, Any]], lines: Sequence[str], whole: bool) -> dict[str, None]:
    """The sentences of a report in their order; as keys, for a file of many bad lines has hundreds of them."""
    told = [
        f"{found.get('severity')}: {found.get('text')}"
        for found in findings
        if whole or found.get("severity") == "error"
    ]
    return dict.fromkeys([*told, *(_statements(lines[:-1]) if whole else ())])


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the texts of samples, which belong to the data."""
    in_sample = False
    for line in lines:
        in_sample = line.startswith("Sample ") or (in_sample and line.startswith("  "))
        if not in_sample:
            yield line.strip()
