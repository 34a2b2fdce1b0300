"""Acts on Loops through the real engine: what is refused comes back as a sentence."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.hosting.trying import WeightsAsked
from engine.store.rows import RunState
from engine.store.store import Store
from loops_tui.link import make_hosting
from loops_tui.loops_ports import ActFailed
from loops_tui.ports import Hosting
from loops_tui.readonly import REFUSAL, NoHosting
from loops_tui.trial_link import TrialFromHere
from tools.sample_store import run_row

RUN = "20261129-143501-k3f9"


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    with Store.open(tmp_path) as store:
        store.create_run(run_row(RUN, "agent", RunState.DONE, tmp_path))
    here = make_hosting(tmp_path)
    yield here
    here.close()


def test_a_run_that_never_had_a_loops_run(hosting: Hosting) -> None:
    with pytest.raises(ActFailed) as told:
        hosting.loops.deactivate(RUN, lambda _: None)
    assert RUN in str(told.value)
    assert "\n" not in str(told.value)


def test_a_checkpoint_that_there_is_not(hosting: Hosting, tmp_path: Path) -> None:
    with pytest.raises(ActFailed, match="has no saved checkpoint"):
        hosting.loops.download(RUN, "step-000010", "sampler", tmp_path / "files", lambda _: None)
    with pytest.raises(ActFailed, match="has no saved checkpoint"):
        hosting.loops.evaluate(RUN, "step-000010", lambda _: None)
    assert not (tmp_path / "files").exists()


@pytest.mark.timeout(60)
def test_whatever_ends_an_opening_is_raised_to_whoever_waits_for_it(tmp_path: Path) -> None:
    def broken[T](make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        raise RuntimeError("nobody foresaw this")

    with pytest.raises(RuntimeError, match="nobody foresaw this"):
        TrialFromHere(
            tmp_path,
            broken,
            WeightsAsked(run=RUN),
            system=None,
            with_sandboxes=False,
            told=lambda _: None,
        )


def test_a_read_only_app_asks_for_nothing() -> None:
    with pytest.raises(ActFailed) as told:
        _ = NoHosting().loops
    assert str(told.value) == REFUSAL
