"""What the Run screen computes from rows: shares of time, timelines, the step in hand, answers to what was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store.rows import (
    AttemptRow,
    AttemptState,
    CommandRow,
    CommandState,
    EvalRow,
    GroupRow,
    GroupState,
    LogRow,
    RunState,
    StepRow,
)
from engine.store.run_queries import StepProgress
from loops_tui.health import Finding, standing
from loops_tui.screens.attempt_time import attempt_lines, timeline
from loops_tui.screens.run_curves import FIGURES, group_parts, series_of, time_parts
from loops_tui.screens.run_facts import run_lines, step_lines
from loops_tui.screens.run_read import RunView, RunWish
from loops_tui.screens.run_text import (
    asked_words,
    curve_words,
    header,
    log_line,
    step_counts,
    wrapped_log_line,
)
from loops_tui.theme import Tone
from loops_tui.widgets.line_search import LineSearch
from loops_tui.widgets.spans import text_of
from tools.sample_store import run_row

NOW = 1_000_000.0
METRICS = {
    "reward/mean": 0.5,
    "time/step": 8.0,
    "time/share/rollout": 0.6,
    "time/share/train": 0.3,
    "time/share/publish": 0.1,
    "time/attempt_share/sampling": 0.5,
    "time/attempt_share/acting": 0.25,
    "time/attempt_share/grading": 0.15,
    "time/attempt_share/provisioning": 0.06,
    "time/attempt_share/setup": 0.04,
}


def view_of(**values: object) -> RunView:
    run = run_row("r", "demo", RunState.RUNNING, Path("/"), phase="sampling", started_at=NOW - 100)
    for name in [name for name in values if name.startswith("run_")]:
        setattr(run, name.removeprefix("run_"), values.pop(name))
    given: dict[str, object] = {
        "run": run, "host": None, "steps": [], "groups": [], "group_id": None, "attempts": [],
        "progress": StepProgress(), "log": [], "command": None, "now": NOW, "wish": RunWish(),
    }  # fmt: skip
    return RunView(**{**given, **values})  # pyright: ignore[reportArgumentType]  # a test's shorthand


def said(view: RunView, width: int = 118) -> str:
    return "\n".join(text_of(line) for line in header(view, [], width))


def test_shares_of_a_steps_time_make_the_whole() -> None:
    before = StepRow("r", 1, "done", NOW - 30, NOW - 20)
    parts = time_parts(StepRow("r", 2, "done", NOW - 19, NOW - 10, metrics=METRICS), before)
    assert sum(parts.values()) == pytest.approx(1.0)
    assert parts["idle"] == pytest.approx(0.2)  # two of the ten seconds since the step before
    assert parts["sampling"] == pytest.approx(0.8 * 0.6 * 0.5)
    assert parts["environment"] == pytest.approx(0.8 * 0.6 * 0.25)
    assert parts["setup"] == pytest.approx(0.8 * 0.6 * 0.1)
    assert parts["training"] == pytest.approx(0.8 * 0.3)
    assert time_parts(StepRow("r", 2, "collecting", NOW)) == {}


def test_hours_between_an_end_and_a_resume_are_not_idle() -> None:
    before = StepRow("r", 1, "done", NOW - 4000, NOW - 3600)
    step = StepRow("r", 2, "done", NOW - 9, NOW, metrics={**METRICS, "time/step": 9.0})
    assert time_parts(step, before)["idle"] > 0.9
    earlier, taken_up = NOW - 5000, NOW - 10
    parts = time_parts(step, before, [earlier, taken_up])
    assert parts["idle"] == pytest.approx(0.1)  # loading, from the resume to the step
    assert sum(parts.values()) == pytest.approx(1.0)


def test_groups_of_a_step_by_what_became_of_them() -> None:
    metrics = {"groups/trained": 8.0, "discard/groups/no_variance": 2.0}
    assert group_parts(metrics) == {"trained": 8.0, "all alike": 2.0, "many lost": 0.0}
    assert group_parts({}) == {}


def test_raw_curves_lie_faintly_below_smoothed_ones_and_evaluations_on_top() -> None:
    steps = [StepRow("r", step, "done", NOW, NOW, metrics={"reward/mean": step / 10}) for step in range(1, 9)]
    evals = [EvalRow("r", "base", "base", "done", "start", NOW, mean=0.1)]
    drawn = series_of(FIGURES[0], steps, {"reward/mean"}, evals, 5)
    assert [one.tone for one in drawn] == [Tone.FAINT, Tone.GOOD, Tone.ACCENT]
    assert drawn[2].points == [(0.0, 0.1)]
    assert drawn[1].points[-1] == (8.0, pytest.approx(0.6))


def test_a_timeline_names_every_phase_and_counts_the_one_in_hand() -> None:
    row = AttemptRow("r", 1, 0, AttemptState.ACTING, queued_at=NOW - 9, started_at=NOW - 6)
    spent = timeline(row, NOW)
    assert (spent["queued"], spent["acting"], spent["grading"]) == (3.0, 6.0, 0.0)
    ended = AttemptRow(
        "r", 1, 0, AttemptState.DONE, queued_at=NOW - 9, started_at=NOW - 6, ended_at=NOW, ending="max_turns", tries=2,
        timeline={"setup": [0.0, 1.0, 1.0], "sampling": [1.0, 5.0, 3.5], "acting": [1.0, 5.0, 0.5]},
    )  # fmt: skip
    lines = [text_of(line) for line in attempt_lines(ended, NOW, 70)]
    assert "setup 1.0s" in lines[1]
    assert "sampling 3.5s" in lines[1]
    assert "ended: max turns" in lines[2]
    assert "2 tries" in lines[3]
    queued = attempt_lines(AttemptRow("r", 1, 0, AttemptState.QUEUED), NOW, 70)
    assert text_of(queued[0]) == "not begun yet"


def test_the_step_in_hand_is_counted_and_says_what_it_waits_for() -> None:
    oldest = AttemptRow("r", 7, 3, AttemptState.GRADING, started_at=NOW - 43)
    training = {AttemptState.DONE: 5, AttemptState.GRADING: 1, AttemptState.QUEUED: 2}
    progress = StepProgress(training, {}, 1, 8, NOW - 2, oldest)
    view = view_of(progress=progress, phase_since=NOW - 50)
    assert step_counts(view)["done"] == 13
    words = said(view)
    assert "sampling 50s" in words
    assert "waits for 3 attempts, longest group 7 #3, grading, 40s" in words
    assert "13/64" in words
    assert "queued 2" in words


def test_an_evaluation_under_way_is_counted_by_itself() -> None:
    progress = StepProgress({}, {AttemptState.DONE: 3, AttemptState.SAMPLING: 1}, 1, 8)
    view = view_of(progress=progress, run_phase="evaluating")
    assert step_counts(view)["done"] == 3
    assert "3/4 evaluated" in said(view)


def test_what_a_paused_run_waits_for() -> None:
    assert "waits for P: go on" in said(view_of(run_state=RunState.PAUSED))
    idle = view_of(run_state=RunState.PAUSED, run_phase="publishing", run_step=617, run_max_steps=20000)
    assert said(idle, 78).startswith(" ‖ paused  waits for P: go on")  # what it did last is over
    progress = StepProgress({AttemptState.SAMPLING: 3}, {}, 1, 8)
    assert "‖ paused  sampling  waits" in said(view_of(run_state=RunState.PAUSED, progress=progress))


def test_an_answer_is_told_for_a_while_and_a_refusal_stays() -> None:
    done = CommandRow(
        1, "r", "save", CommandState.DONE, NOW - 9, answer="step-000003 is saved", answered_at=NOW - 5
    )
    assert asked_words(done, NOW) == "save a checkpoint: step-000003 is saved"
    assert asked_words(done, NOW + 100) is None
    refused = CommandRow(
        1, "r", "save", CommandState.REFUSED, NOW - 9, answer="no step yet", answered_at=NOW - 5
    )
    assert asked_words(refused, NOW + 100) == "save a checkpoint was refused: no step yet"
    assert " › save a checkpoint: step-000003 is saved" in said(view_of(command=done)).splitlines()
    assert " ! save a checkpoint was refused: no step yet" in said(view_of(command=refused)).splitlines()
    assert (
        asked_words(CommandRow(1, "r", "stop", CommandState.QUEUED, NOW), NOW)
        == "stop after this step: asked"
    )


def test_how_far_policies_were_behind() -> None:
    step = StepRow("r", 4, "done", NOW - 9, NOW, 5, {"reward/mean": 0.5})
    groups = [GroupRow("r", number, "trained", "t", 0, step=4, policy_version=version)  # pyright: ignore[reportArgumentType]
              for number, version in enumerate((4, 4, 3, 2))]  # fmt: skip
    lines = [text_of(line) for line in step_lines(view_of(steps=[step], groups=groups), 44)]
    assert any("policies behind" in line and "0.8, at most 2" in line for line in lines)
    current = [text_of(line) for line in step_lines(view_of(steps=[step], groups=groups[:2]), 44)]
    assert not any("policies behind" in line for line in current)


def test_spend_stands_against_its_budget_and_billing_is_said() -> None:
    view = view_of(
        run_spend={"hours": 0.45, "prompt_tokens": 1_500_000, "sampled_tokens": 500_000},
        run_config_toml="[budget]\nmax_hours = 0.5\n",
        run_scope="dedicated", run_loops_run_id="loops-1", run_loops_state="ACTIVE", run_loops_since=NOW - 7200,
    )  # fmt: skip
    lines = "\n".join(text_of(line) for line in run_lines(view, 46))
    assert "0.45 of 0.5 (90%)" in lines
    assert "2.0M" in lines
    assert "ACTIVE, bills since 2h 00m" in lines
    assert "checkpoints" in lines


def test_nothing_in_flight_is_said_as_what_it_is() -> None:
    group = GroupRow("r", 3, GroupState.TRAINED, "t", 0)
    assert "waiting for the first attempts" in said(view_of())
    assert "waiting for the next attempts" in said(view_of(groups=[group]))
    assert "no attempts in flight" in said(view_of(groups=[group], run_state=RunState.PAUSED))


def test_where_there_is_little_room_the_bar_alone_says_what_is_queued() -> None:
    counts = {
        AttemptState.DONE: 38,
        AttemptState.GRADING: 23,
        AttemptState.ACTING: 1,
        AttemptState.SAMPLING: 66,
    }
    view = view_of(progress=StepProgress(training={**counts, AttemptState.QUEUED: 128}))
    line = said(view, 80).splitlines()[1]
    assert "…" not in line
    assert "queued" not in line
    assert "queued 128" in said(view, 118)


def test_an_answer_from_before_a_resume_is_not_told_again() -> None:
    stop = CommandRow(
        1, "r", "stop", CommandState.DONE, NOW - 9, {}, "stopping after the step in hand", NOW - 5
    )
    assert "stopping after the step in hand" in said(view_of(command=stop))
    assert "stopping after the step in hand" not in said(view_of(command=stop, run_state=RunState.STARTING))


PACE = {
    "attempts_per_minute": 390.16,
    "tokens_per_second": 12_356.7,
    "slots_busy": 0.956,
    "waits_for": "group 8, 13 attempts left",
    "ahead": 16,
}


@pytest.mark.parametrize("width", [80, 120])
def test_a_live_run_says_how_fast_it_goes_and_which_group_it_waits_for(width: int) -> None:
    view = view_of(run_mode="async", run_info={"pace": PACE}, groups_ahead=4, phase_since=NOW - 19)
    lines = [text_of(line) for line in header(view, [], width)]
    group = "group 8, 13 attempts left" if width > 80 else "group 8, 13 left"
    assert f"waits for {group}" in lines[0]
    assert "19s" in lines[0]
    assert lines[2] == " 390 attempts/min   12.4k tokens/s   slots 96% busy   4 groups ahead"
    assert all(len(line) <= width for line in lines)


def test_the_rates_of_a_run_that_has_ended_or_starts_anew_are_not_told() -> None:
    info = {"pace": PACE}
    for state in (RunState.DONE, RunState.STARTING):
        view = view_of(run_state=state, run_info=info)
        assert "attempts/min" not in said(view)
        assert "a minute" not in "".join(text_of(line) for line in run_lines(view, 60))
    assert "waits for group" not in said(view_of(run_phase="training", run_info=info))
    assert "groups ahead" not in said(view_of(run_info=info, groups_ahead=4))  # only where groups may be


def test_an_engine_that_comes_late_is_told_first() -> None:
    late = view_of(run_info={"pace": {**PACE, "loop_lag_p99": 0.12}})
    assert said(late).splitlines()[2].startswith(" engine 120 ms late   390 attempts/min")
    assert "≤ 120 ms" in "".join(text_of(line) for line in run_lines(late, 60))
    assert "late" not in said(view_of(run_info={"pace": {**PACE, "loop_lag_p99": 0.04}}))


def test_rates_that_are_no_numbers_are_left_out() -> None:
    pace = {
        "attempts_per_minute": "many",
        "tokens_per_second": float("nan"),
        "slots_busy": 2.5,
        "waits_for": 7,
    }
    words = said(view_of(run_info={"pace": pace}))
    assert "slots 250% busy" in words
    assert "attempts/min" not in words
    assert "nan" not in words


def test_a_step_like_the_one_before_has_no_negative_zero() -> None:
    steps = [
        StepRow("r", step, "done", NOW - 9, NOW, 5, {"reward/mean": mean})
        for step, mean in ((3, 0.5), (4, 0.498))
    ]
    lines = [text_of(line) for line in step_lines(view_of(steps=steps), 44)]
    assert any("= +0.00" in line for line in lines)
    assert not any("-0.00" in line for line in lines)


@pytest.mark.parametrize(
    ("room", "told"),
    [
        (60, "first 0.16 · last 0.75 · best 0.97 (step 12)"),
        (38, "0.16 → 0.75 · best 0.97 (step 12)"),
    ],
)
def test_the_words_below_a_curve_are_whole(room: int, told: str) -> None:
    assert curve_words([(1.0, 0.16), (12.0, 0.97), (16.0, 0.75)], lower_is_better=False, room=room) == told


def test_the_legend_of_the_step_is_whole_at_80_columns() -> None:
    training = {AttemptState.DONE: 115, AttemptState.GRADING: 11, AttemptState.ACTING: 12, AttemptState.SAMPLING: 16,
                AttemptState.PROVISIONING: 12, AttemptState.QUEUED: 129}  # fmt: skip
    view = view_of(progress=StepProgress(training), run_info={"isolation": "bubblewrap"})
    line = text_of(header(view, [], 80)[1])
    assert "sandbox 12" in line
    assert not line.endswith("…")


def test_why_a_run_ended_is_told_in_full_at_80_columns() -> None:
    error = "the local Loops server ended (killed by signal 9); its log is /data/ann/agents/tools/.loops/loops-server.log"
    view = view_of(run_state=RunState.FAILED, run_error=error)
    found = [*standing(view.run, None, NOW), Finding(Tone.WARN, "most groups teach nothing")]
    lines = [text_of(line) for line in header(view, found, 80)][2:]
    assert all(len(line) <= 80 for line in lines)
    assert " ".join("".join(lines).replace("   ", " ").split()) == f"! {error} (+1 more, i)"


def test_what_does_not_fit_the_header_is_left_out_whole() -> None:
    oldest = AttemptRow("r", 17, 3, AttemptState.GRADING, started_at=NOW - 43)
    counts = {AttemptState.DONE: 8, AttemptState.GRADING: 1, AttemptState.ACTING: 1, AttemptState.SAMPLING: 118,
              AttemptState.SETUP: 1, AttemptState.PROVISIONING: 64}  # fmt: skip
    view = view_of(progress=StepProgress(counts, {}, 1, 8, NOW - 2, oldest), phase_since=NOW - 3, run_policy_version=2,
                   run_info={"pace": PACE, "isolation": "bubblewrap"})  # fmt: skip
    found = [
        Finding(
            Tone.WARN, "reward climbs faster than the task should allow: read transcripts", remedy="see how"
        )
    ]
    for width in (72, 80, 84):
        lines = [text_of(line) for line in header(view, found, width)]
        assert all(len(line) <= width for line in lines)
        assert "waits for group 8, 13 left " in lines[0]
        assert "longest" not in lines[0] or "longest group 17 #3, grading, 40s" in lines[0]
        assert lines[1].split()[-1].isdigit()
        assert lines[-1] in (
            " ! reward climbs faster than the task should allow: read transcripts; see how",
            " ! reward climbs faster than the task should allow: read transcripts; see …",
            " ! reward climbs faster than the task should allow: read transcripts; …",
            " ! reward climbs faster than the task should allow: read …",
        )


def test_a_line_of_the_log_is_whole_where_there_is_room_for_lines() -> None:
    text = "Run r failed: the local Loops server ended (killed by signal 9); its log is /data/ann/.loops/loops-server.log"
    lines = wrapped_log_line(log_line(LogRow(1, "r", NOW, "error", "host", text)), 78)
    words = [text_of(line) for line in lines]
    assert all(len(line) <= 78 for line in words)
    assert len(words) == 2
    assert " ".join(line[20:].strip() for line in words) == text
    (match,), _ = LineSearch(lines).find(text[-60:])
    assert {part.line for part in match} == {0, 1}  # found across the break


def test_the_first_minutes_of_a_budget_are_no_power_of_ten() -> None:
    view = view_of(run_spend={"hours": 0.0031, "sandbox_hours": 0.0})
    assert "hours                0.00" in "\n".join(text_of(line) for line in run_lines(view, 25))


def test_what_was_asked_before_a_resume_holds_no_more() -> None:
    stop = CommandRow(1, "r", "stop", CommandState.DONE, NOW - 20, answer="stopping after the step in hand",
                      answered_at=NOW - 19)  # fmt: skip
    sitting = {"at": NOW - 10, "step": 3, "checkpoint": "step-000003", "was": "stopped"}
    assert "stopping after the step in hand" in said(view_of(command=stop))
    assert "stopping after" not in said(view_of(command=stop, run_info={"resumed": [sitting]}))
    earlier = {**sitting, "at": NOW - 30}
    assert "stopping after" in said(view_of(command=stop, run_info={"resumed": [earlier]}))
    assert "stopping after" in said(view_of(command=stop, run_info={"resumed": ["odd", {"at": None}]}))


def test_how_often_a_run_was_resumed_and_that_nothing_of_a_local_one_is_left() -> None:
    sittings = [{"at": NOW - ago, "step": 3, "checkpoint": None, "was": "stopped"} for ago in (90, 30)]
    local = {"run_scope": "local", "run_loops_run_id": "run-1", "run_loops_state": "ACTIVE"}
    ended = view_of(run_state=RunState.DONE, run_info={"resumed": sittings}, **local)
    words = "\n".join(text_of(line) for line in run_lines(ended, 60))
    assert "2 times, last at " in words
    assert "'at'" not in words
    assert "ACTIVE" not in words
    assert "ACTIVE" in "\n".join(text_of(line) for line in run_lines(view_of(**local), 60))
