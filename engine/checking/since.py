"""How a check's report differs from the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.config.report import CheckReport
from engine.store.rows import CheckRow


def since(before: CheckRow, report: CheckReport) -> list[str]:
    """What is said no longer, behind a minus, and what is said anew, behind a plus; nothing where both say the same.

    The last line of a report only counts what stands above it, and where a finding stands may have moved.
    """
    stored = report.to_json()
    was, now = _said(before.findings, before.lines), _said(stored["findings"], stored["lines"])
    return [
        *(f"- {said}" for said in was if said not in now),
        *(f"+ {said}" for said in now if said not in was),
    ]


def _said(findings: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> list[str]:
    told = [f"{finding['severity']}: {finding['text']}" for finding in findings]
    return [*told, *(line.strip() for line in lines[:-1])]
