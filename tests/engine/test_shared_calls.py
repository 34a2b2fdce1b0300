"""``[sampling] share_first_call`` with the real SDK and server: the same run, in whatever order attempts ask."""

from __future__ import annotations

from pathlib import Path

from engine.loops.session import LoopsSession
from engine.store.rows import RunState
from tests.engine.resumable import make_project, train

SHARED = ("sampling.share_first_call=true", "training.max_steps=3")


async def test_shared_calls_give_the_same_run_one_by_one_and_all_at_once(tmp_path: Path, monkeypatch) -> None:
    asked: list[int] = []
    sample = LoopsSession.sample_many

    async def counted(self, prompt, count, **how):
        asked.append(count)
        return await sample(self, prompt, count, **how)

    monkeypatch.setattr(LoopsSession, "sample_many", counted)
    at_once = await train(make_project(tmp_path / "at once"), *SHARED)
    groups = {attempt[1] for attempt in at_once.attempts}
    assert at_once.outcome.state is RunState.DONE
    assert asked == [4] * len(groups)
    singly = await train(make_project(tmp_path / "singly"), *SHARED, "training.max_concurrent_rollouts=1")
    assert at_once.attempts == singly.attempts
    assert at_once.curve == singly.curve
    # The attempts of a group did not all get the same reply.
    assert len({(attempt[1], attempt[5]) for attempt in at_once.attempts}) > len(groups)
