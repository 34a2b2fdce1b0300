"""What a check says of ``[eval]``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.config import CheckReport, Severity
from engine.config.local_models import shipped_models
from engine.project import load

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")

EXAMPLE = "examples/in_process_direct/train.toml"


async def check(directory: Path, *tasks: dict[str, str], **settings: object) -> CheckReport:
    (directory / "held.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    overrides = {"eval.tasks": "held.jsonl", **{f"eval.{key}": value for key, value in settings.items()}}
    project = load(EXAMPLE, overrides=overrides, working_dir=directory)
    try:
        return await project.check()
    finally:
        project.close()


def of_eval(report: CheckReport, severity: Severity) -> list[str]:
    return [
        str(finding) for finding in report.findings if finding.severity is severity and "held" in str(finding)
    ]


async def test_held_out_tasks_are_counted_and_their_times_told(tmp_path: Path) -> None:
    report = await check(
        tmp_path, {"name": "a", "instruction": "Name it.", "answer": "x"}, every_steps=5, attempts_per_task=4
    )
    assert (
        "Held-out tasks: 1, 4 attempts each; at the start, every 5 steps, at the end: 20 attempts in all, beside those of the estimate"
        in report.lines
    )
    assert of_eval(report, Severity.WARNING) == []
    never = await check(
        tmp_path, {"name": "a", "instruction": "Name it.", "answer": "x"}, at_start=False, at_end=False
    )
    assert "Held-out tasks: 1, 1 attempt each; only when asked" in never.lines


async def test_held_out_tasks_are_validated_as_training_tasks_are(tmp_path: Path) -> None:
    report = await check(
        tmp_path, {"name": "a", "answer": "x"}, {"name": "a", "instruction": "?", "answer": "x"}
    )
    (error,) = of_eval(report, Severity.ERROR)
    assert "held.jsonl:1" in error
    assert "the task has no 'instruction'" in error
    assert not report.ok


async def test_a_task_that_is_trained_on_as_well_is_a_warning_whatever_its_name(tmp_path: Path) -> None:
    report = await check(
        tmp_path,
        {"name": "other name", "instruction": "Name the hidden game.", "answer": "rugby"},
        {"name": "hidden_game", "instruction": "Another question.", "answer": "rugby"},
    )
    (warning,) = of_eval(report, Severity.WARNING)
    assert "1 held-out task is trained on as well (other name)" in warning
    assert report.ok


async def test_an_episode_that_only_compares_needs_attempts_to_compare(tmp_path: Path) -> None:
    source = Path(load(EXAMPLE, working_dir=tmp_path).directory)
    shutil.copytree(source, tmp_path / "copy")
    module = tmp_path / "copy" / "direct_episode.py"
    module.write_text(
        module.read_text() + "\n    @classmethod\n    async def grade_group(cls, attempts):\n"
        "        return [0.0 for _ in attempts]\n"
    )
    (tmp_path / "held.jsonl").write_text('{"name": "a", "instruction": "?", "answer": "x"}\n')
    for attempts, warned in ((1, True), (4, False)):
        overrides = {"eval.tasks": "held.jsonl", "eval.attempts_per_task": attempts}
        project = load(tmp_path / "copy" / "train.toml", overrides=overrides, working_dir=tmp_path)
        report = await project.check()
        project.close()
        assert any("makes one of each" in str(finding) for finding in report.findings) is warned
