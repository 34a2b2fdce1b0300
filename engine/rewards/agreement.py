"""How far a judge agrees with people: measured on labelled cases, before it is given a reward to decide."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.rewards.judge import Judge, JudgeError


@dataclass(frozen=True, slots=True)
class Case:
    """Material and the label that a person gave it."""

    material: Mapping[str, str]
    label: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """``judged`` cases, the share that got the person's label, and Cohen's kappa: agreement beyond chance.

    ``kappa`` is 1 for perfect agreement, 0 for chance, None where both gave all cases one and the same label
    (J. Cohen, "A Coefficient of Agreement for Nominal Scales", Educational and Psychological Measurement 20(1), 1960,
    pages 37-46). ``confusion``: the person's label → the judge's → cases. ``failed``: why there was no verdict; those
    cases count nowhere else.
    """

    judged: int
    accuracy: float | None
    kappa: float | None
    confusion: Mapping[str, Mapping[str, int]]
    failed: Sequence[str] = ()


async def agreement(judge: Judge, cases: Sequence[Case]) -> Agreement:
    """Have the judge label all cases. One that fails is reported, not counted.

    Raises:
        ValueError: a case has a label that the judge does not know.
    """
    unknown = {case.label for case in cases} - set(judge.labels)
    if unknown:
        raise ValueError(f"the judge has no label {', '.join(sorted(unknown))}")

    async def said(case: Case) -> str | JudgeError:
        try:
            return (await judge.judge(case.material)).label
        except JudgeError as error:
            return error

    answers = await asyncio.gather(*(said(case) for case in cases))
    pairs = [(case.label, said) for case, said in zip(cases, answers, strict=True) if isinstance(said, str)]
    confusion = {wanted: dict.fromkeys(judge.labels, 0) for wanted in judge.labels}
    for wanted, given in pairs:
        confusion[wanted][given] += 1
    accuracy = sum(wanted == given for wanted, given in pairs) / len(pairs) if pairs else None
    failed = [str(answer) for answer in answers if isinstance(answer, JudgeError)]
    return Agreement(len(pairs), accuracy, cohens_kappa(pairs), confusion, failed)


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """(p_o - p_e) / (1 - p_e), with p_e from both raters' own shares; None where p_e is 1 or there are no pairs."""
    count = len(pairs)
    if not count:
        return None
    observed = sum(one == other for one, other in pairs) / count
    ones, others = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    expected = sum(ones[label] * others[label] for label in ones) / count**2
    return None if expected == 1 else (observed - expected) / (1 - expected)
