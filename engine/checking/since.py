"""How a check's report differs from the one before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.store.rows import CheckRow


def since(before: CheckRow, findings: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> list[str]:
    """What a report of these findings and lines, as they are stored, says no longer, behind a minus, and what it says
    anew, behind a plus, beside what it says instead of; nothing where both say the same.

    The last line of a report only counts what stands above it, and where a finding stands may have moved. Of a config
    that could not be loaded nothing but the errors is known, so nothing else is compared with it.
    """
    whole = len(before.lines) > 1 and len(lines) > 1
    was, now = _said(before.findings, before.lines, whole), _said(findings, lines, whole)
    new = [said for said in now if said not in was]
    told: list[str] = []
    for gone in (said for said in was if said not in now):
        told.append(f"- {gone}")
        instead = next((said for said in new if _name(said) == _name(gone)), None)
        if instead is not None:
            new.remove(instead)
            told.append(f"+ {instead}")
    return [*told, *(f"+ {said}" for said in new)]


def _name(said: str) -> str:
    """What a line is about: ``Estimate`` of ``Estimate, from the config alone: …``."""
    return re.split("[,:]", said, maxsplit=1)[0]


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
