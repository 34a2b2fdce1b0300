"""Evaluations: names and groups of their own, and a true end where their process is gone."""

from __future__ import annotations

from pathlib import Path

from engine.store import Store
from engine.store.rows import AttemptRow, AttemptState, EvalRow, GroupRow, GroupState, RunState
from tests.store.conftest import make_host, make_run

RUN = "20261129-143501-k3f9"
TASKS = [("a", 0), ("b", 1)]


def row(host_id: str | None, eval_id: str = "base") -> EvalRow:
    return EvalRow(RUN, eval_id, "base", "running", "asked", 1.0, host_id=host_id)


def test_groups_go_down_from_minus_one_and_names_are_unique(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.create_run(make_run(tmp_path, RUN))
        store.recorder(RUN, files=False).group(GroupRow(RUN, 7, GroupState.TRAINED, "a", 0))
        store.flush()
        first = store.begin_evaluation(row("h"), TASKS)
        again = row("h")
        second = store.begin_evaluation(again, TASKS)
        assert [group.group_id for group in first + second] == [-1, -2, -3, -4]
        assert again.eval_id == "base-2"
        assert [found.eval_id for found in store.reader().evals(RUN)] != []
        kept = store.reader().group(RUN, -4)
        assert kept is not None
        assert (kept.eval_id, kept.task_id, kept.state) == ("base-2", "b", GroupState.RUNNING)


def test_an_evaluation_whose_process_is_gone_is_stopped(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.create_run(make_run(tmp_path, RUN))
        store.register_host(make_host("alive"))
        store.register_host(make_host("dead", pid=2**22 + 1))
        for host in ("alive", "dead"):
            groups = store.begin_evaluation(row(host, host), TASKS)
            recorder = store.recorder(RUN, files=False)
            recorder.attempt(AttemptRow(RUN, groups[0].group_id, 0, AttemptState.SAMPLING))
            recorder.attempt(AttemptRow(RUN, groups[1].group_id, 0, AttemptState.DONE, reward=1.0))
            store.flush()
        store.reconcile()
        reader = store.reader()
        states = {found.eval_id: (found.state, found.error) for found in reader.evals(RUN)}
        assert states["alive"] == ("running", None)
        assert states["dead"][0] == "stopped"
        assert "ended before" in (states["dead"][1] or "")
        assert [a.state for g in (-3, -4) for a in reader.attempts(RUN, g)] == [
            AttemptState.CANCELLED,
            AttemptState.DONE,
        ]
        assert reader.attempts(RUN, -1)[0].state is AttemptState.SAMPLING
        store.forget_host("alive")
        store.reconcile()
        assert {found.state for found in reader.evals(RUN)} == {"stopped"}


def test_a_run_s_end_settles_its_own_evaluation_and_nobody_elses(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.create_run(make_run(tmp_path, RUN))
        store.claim(RUN, make_host("host-1"))
        store.register_host(make_host("other"))
        store.begin_evaluation(row("host-1", "own"), TASKS)
        store.begin_evaluation(row("other", "other"), TASKS)
        store.end_run(RUN, "host-1", RunState.ABORTED, None)
        reader = store.reader()
        assert {found.eval_id: found.state for found in reader.evals(RUN)} == {
            "own": "stopped",
            "other": "running",
        }
        assert {group.state for group in reader.groups(RUN) if group.eval_id == "other"} == {
            GroupState.RUNNING
        }
