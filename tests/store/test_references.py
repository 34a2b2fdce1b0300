"""Which run a person means."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store import Store, StoreError
from engine.store.rows import RunState
from tests.store.conftest import make_run

FIRST, SECOND, THIRD = "20261129-143501-aaaa", "20261129-143501-bbbb", "20261130-090000-cccc"


@pytest.fixture
def filled(store: Store, tmp_path: Path) -> Store:
    for number, run_id in enumerate((FIRST, SECOND, THIRD)):
        store.create_run(make_run(tmp_path, run_id, created_at=float(number), loops_run_id=f"loops-{number}"))
    return store


@pytest.mark.parametrize(
    "ref", [FIRST, f" {FIRST} ", "20261129-143501-a", "loops-0", "{project}/runs/demo/" + FIRST + "/"]
)
def test_found(filled: Store, tmp_path: Path, ref: str) -> None:
    assert filled.reader().run(ref.format(project=tmp_path)).run_id == FIRST


def test_a_relative_directory_and_the_beginning_of_one(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert filled.reader().run(f"runs/demo/{SECOND}").run_id == SECOND
    assert filled.reader().run("runs/demo/20261130").run_id == THIRD


def test_an_exact_id_beats_a_longer_one(filled: Store, tmp_path: Path) -> None:
    filled.create_run(make_run(tmp_path, THIRD + "-x"))
    assert filled.reader().run(THIRD).run_id == THIRD


@pytest.mark.parametrize("ref", ["20261129", "runs/demo"])
def test_ambiguous_names_candidates(
    filled: Store, tmp_path: Path, ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        filled.reader().run(ref)
    assert FIRST in str(caught.value)
    assert SECOND in str(caught.value)


@pytest.mark.parametrize(
    "ref", ["nope", "%", "_", "2026*", "'; DROP TABLE runs; --", "a\0b", "\udc80", "~nobody/x"]
)
def test_unknown_names_the_newest(filled: Store, ref: str) -> None:
    with pytest.raises(StoreError, match=THIRD):
        filled.reader().run(ref)


def test_empty_store_and_empty_ref(store: Store) -> None:
    with pytest.raises(StoreError, match="no runs yet"):
        store.reader().run("x")
    with pytest.raises(StoreError, match="no run was named"):
        store.reader().run("  ")


def test_lists_live_runs_first_and_filters(filled: Store, tmp_path: Path) -> None:
    filled.create_run(
        make_run(tmp_path, "done-run", created_at=99.0, state=RunState.DONE, base_model="Qwen/Qwen3-8B")
    )
    reader = filled.reader()
    assert [run.run_id for run in reader.runs()] == [THIRD, SECOND, FIRST, "done-run"]
    assert [run.run_id for run in reader.runs(limit=1)] == [THIRD]
    assert [run.run_id for run in reader.runs(states={RunState.DONE})] == ["done-run"]
    assert [run.run_id for run in reader.runs(text="QWEN3-8")] == ["done-run"]
    assert reader.runs(text="%") == []
