"""Small versions of the fault tests (tests/faults) on the emulator, with real processes on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.store.rows import AttemptRow, AttemptState, LeaseRow, LeaseState
from tests.blaxel_emulator.faults import every_kind
from tests.faults.blaxel_training import Size, Verdict, judge_grade, trained
from tests.faults.kill_blaxel import kill_again_and_again
from tests.sandboxes.conftest import needs_bubblewrap

pytestmark = [needs_bubblewrap, pytest.mark.timeout(400)]  # the processes may have to share their cores
RUN_SECONDS = 300.0
SMALL = Size(steps=1, groups=1, group_size=4)
#: Without those that last for a minute.
QUICK = [fault for fault in every_kind(0.05, scale=0.3) if fault.kind not in ("hang", "hung_command")]


def test_the_tool_agent_trains(tmp_path: Path) -> None:
    verdict, counts, said = trained(tmp_path, SMALL, [], seconds=RUN_SECONDS)
    assert (verdict.wrong, verdict.state) == ([], "done"), said
    assert verdict.attempts == {"done": verdict.graded}
    assert (counts["live"], counts["created"]) == (0, verdict.graded)


def test_the_tool_agent_trains_among_faults(tmp_path: Path) -> None:
    verdict, counts, said = trained(tmp_path, SMALL, QUICK, seconds=RUN_SECONDS)
    assert (verdict.wrong, verdict.state) == ([], "done"), said
    assert verdict.graded >= 3
    assert counts["live"] == 0
    assert sum(counts["faults"].values()) > 0


def test_killed_while_it_creates(tmp_path: Path) -> None:
    outcome = kill_again_and_again(tmp_path, kills=2, sandboxes=32, lanes=2)
    assert outcome.left == []
    assert min(outcome.in_flight) > 0
    assert outcome.released + outcome.already_gone >= 64


_CHECK = "grep -q '9090' app.conf"
_RAN: dict[str, Any] = {"event": "process", "n": 5, "command": f"cd /work; {_CHECK}", "alive": True}
_GOOD = {**_RAN, "status": "completed", "exit_code": 0}
_BAD = {**_RAN, "status": "failed", "exit_code": 1}
_KILLED = {**_RAN, "status": "killed", "exit_code": -1}


@pytest.mark.parametrize(
    ("reward", "story", "found"),
    [
        (1.0, [_GOOD], ""),
        (0.0, [_BAD], ""),
        (0.0, [_GOOD, _BAD], ""),
        (0.0, [_KILLED], ""),
        (0.0, [_GOOD], "ended with 0"),
        (1.0, [_BAD], "ended with failed 1"),
        (1.0, [_KILLED], "ended with killed -1"),
        (0.0, [{**_BAD, "alive": False}], "was dead"),
        (0.0, [{"event": "died", "n": 4}, _BAD], "was dead"),
        (1.0, [_GOOD, {"event": "died", "n": 6}], ""),
        (1.0, [], "never ran"),
    ],
)
def test_a_grade_is_held_against_what_the_emulator_saw(
    reward: float, story: list[dict[str, Any]], found: str
) -> None:
    attempt = AttemptRow("run-1", 3, 1, AttemptState.DONE, reward=reward)
    lease = LeaseRow("a", "blaxel", "remote", "run-1", 3, 1, "host", LeaseState.RELEASED, 1.0)
    verdict = Verdict()
    judge_grade(verdict, attempt, [lease], {"a": story}, _CHECK)
    assert verdict.graded == 1
    assert len(verdict.wrong) == (found != "")
    assert found in "".join(verdict.wrong)
