"""What a check found: findings with a cause and a remedy, and the lines that describe the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.config.printable import one_line
from engine.config.problems import Problem

_LONGEST_LINE = 4096  # a path fits into it


class Severity(StrEnum):
    """An error keeps a run from starting; a warning does not."""

    ERROR = "error"
    WARNING = "warning"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check looked at."""

    severity: Severity
    key: str | None
    line: int | None
    text: str
    remedy: str | None = None
    file: str | None = None  # of the line; the config unless it says otherwise

    @classmethod
    def of(cls, severity: Severity, problem: Problem) -> Finding:
        """A problem as a finding."""
        file = str(problem.file) if problem.file is not None else None
        return cls(severity, problem.key, problem.line, problem.text, problem.remedy, file)

    def __str__(self) -> str:
        file = Path(self.file) if self.file is not None else None
        sentence = str(Problem(self.text, file, self.line, self.key, self.remedy))
        return sentence if self.severity is Severity.OK else f"{self.severity}: {sentence}"


@dataclass(slots=True)
class CheckReport:
    """The outcome of a check. ``ok`` is false as soon as one finding is an error."""

    findings: list[Finding] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    estimate: dict[str, Any] | None = None

    @classmethod
    def of_refused(cls, problems: Iterable[Problem]) -> CheckReport:
        """The report on a config that cannot even be loaded."""
        report = cls(lines=["Not ready: the config cannot be loaded; nothing else was looked at."])
        for problem in problems:
            report.add(Severity.ERROR, problem)
        return report

    @property
    def ok(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def warnings(self) -> int:
        """How many findings are warnings."""
        return sum(finding.severity is Severity.WARNING for finding in self.findings)

    def add(self, severity: Severity, problem: Problem) -> None:
        """Note a finding."""
        self.findings.append(Finding.of(severity, problem))

    def describe(self) -> list[str]:
        """The report as lines of text: what is wrong or doubtful first, then what would run."""
        told = [str(finding) for finding in self.findings if finding.severity is not Severity.OK]
        return [*told, *(one_line(line, _LONGEST_LINE) for line in self.lines)]

    def to_json(self) -> dict[str, Any]:
        """For the store and for ``--json``."""
        return {
            "ok": self.ok,
            "findings": [
                {**asdict(finding), "severity": finding.severity.value} for finding in self.findings
            ],
            "lines": list(self.lines),
            "estimate": self.estimate,
        }
