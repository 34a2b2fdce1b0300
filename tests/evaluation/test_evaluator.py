"""One evaluation, with a policy whose replies are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.config.spending import EvalSettings
from engine.episodes import Episode, Grading, Sampling, Task
from engine.episodes.contract import GroupAttempt
from engine.episodes.runtime import Deadlines
from engine.loops.errors import LoopsUnavailable
from engine.policy.conversation import ReplyLimits
from engine.policy.rendering import PolicyRenderer
from engine.policy.tokens import Completion
from engine.recipes.evaluation.evaluator import Evaluator
from engine.recipes.evaluation.plan import EvalPlan, Weights
from engine.recipes.evaluation.wording import compared
from engine.store import Store
from engine.store.rows import AttemptState, EvalRow, GroupState
from tests.store.conftest import make_host, make_run

RUN = "20261129-143501-k3f9"
TASKS = [Task({"text": name}, name, index) for index, name in enumerate(("easy", "middling", "hard"))]


class Echo(Episode[dict, None]):
    """Rewards what the policy wrote, as a number; "broken" is an infrastructure failure."""

    reply = ""

    async def run(self, sample: Sampling) -> None:
        message = {"role": "user", "content": self.task.value["text"]}
        self.reply = (await sample.model.conversation().generate(messages=[message])).content or ""
        if self.reply == "broken":
            raise ConnectionError("the tool server went away")

    async def grade(self, grading: Grading) -> float:
        return float(self.reply)


class Ranked(Episode[dict, None]):
    """Only compares: the longest reply of a task's attempts is worth 1, all others 0."""

    reply = ""

    async def run(self, sample: Sampling) -> None:
        message = {"role": "user", "content": self.task.value["text"]}
        self.reply = (await sample.model.conversation().generate(messages=[message])).content or ""

    @classmethod
    async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
        lengths = [len(attempt.episode.reply) for attempt in attempts]  # type: ignore[attr-defined]
        if max(lengths) > 6:
            raise ValueError("one is too long to compare")
        return [float(length == max(lengths)) for length in lengths]


class Written:
    """Replies with what ``reply(text of the prompt, number of the call with it)`` says."""

    def __init__(self, renderer: PolicyRenderer, reply: Callable[[str, int], str]) -> None:
        self._renderer, self._reply = renderer, reply
        self.seeds: dict[str, list[int | None]] = {}

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        text = self._renderer.tokenizer.decode(list(prompt))
        name = next(task.id for task in TASKS if task.id in text)
        seeds = self.seeds.setdefault(name, [])
        seeds.append(seed)
        await asyncio.sleep(0)
        tokens = self._renderer.tokenizer.encode(self._reply(name, len(seeds) - 1), add_special_tokens=False)
        return Completion(tokens, [-0.5] * len(tokens), "stop", 3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path) as opened:
        opened.create_run(make_run(tmp_path, RUN))
        opened.register_host(make_host("h"))
        yield opened


class Bench:
    def __init__(self, store: Store, renderer: PolicyRenderer) -> None:
        self.store, self.renderer = store, renderer
        self.said: list[str] = []
        self.told: list[str] = []
        self.attempts_ended = 0

    async def evaluate(
        self, reply: Callable[[str, int], str], name: str = "step-000003", **more: Any
    ) -> tuple[EvalRow, Written]:
        settings = EvalSettings.model_validate({"tasks": "held.jsonl", "attempts_per_task": 4, "seed": 7})
        plan = EvalPlan(
            settings,
            TASKS,
            more.pop("episode", Echo),
            None,
            Deadlines(5, 5, 5),
            0,
            self.renderer,
            ReplyLimits(500, 20),
            [],
            more.pop("concurrent", 2),
            "full",
            None,
        )
        recorder = self.store.recorder(RUN)
        evaluator = Evaluator(
            plan,
            store=self.store,
            recorder=recorder,
            host_id="h",
            log=lambda _, text: self.said.append(text),
            told=self.told.append,
            **more,
        )
        sampler = Written(self.renderer, reply)
        try:
            return await evaluator.evaluate(sampler, Weights(name, "live", 3), "every"), sampler
        finally:
            self.attempts_ended = evaluator.attempts_ended
            recorder.close()


@pytest.fixture
def bench(store: Store, renderer: PolicyRenderer) -> Bench:
    return Bench(store, renderer)


REWARDS = {"easy": "1 1 1 1", "middling": "1 0 1 0", "hard": "0 0 0 0.5"}


def scripted(name: str, call: int) -> str:
    return REWARDS[name].split()[call]


async def test_all_tasks_are_attempted_and_told(bench: Bench, tmp_path: Path) -> None:
    row, _ = await bench.evaluate(scripted)
    assert (row.state, row.graded, row.lost, row.step) == ("done", 12, 0, 3)
    assert bench.attempts_ended == 12
    assert row.mean == pytest.approx((1 + 0.5 + 0.125) / 3)
    assert row.mean is not None
    assert row.low is not None
    assert row.high is not None
    assert row.low < row.mean < row.high
    assert row.pass_at["1"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert row.pass_at["4"] == pytest.approx((1 + 1 + 0) / 3)
    assert row.per_task["middling"] == {"mean": 0.5, "graded": 4, "passed": 2}
    assert row.metrics["eval/mean"] == row.mean
    assert row.metrics["eval/turns"] == 1.0
    assert bench.told[-1] == "evaluating step-000003: 12 of 12 attempts"
    assert "mean 0.542" in bench.said[-1]
    reader = bench.store.reader()
    assert reader.evals(RUN) == [row]
    groups = reader.groups(RUN)
    assert {(group.group_id, group.state, group.eval_id) for group in groups} == {
        (number, GroupState.EVALUATED, "step-000003") for number in (-1, -2, -3)
    }
    attempt = reader.attempts(RUN, -2)[1]
    assert (attempt.state, attempt.reward, attempt.version_min) == (AttemptState.DONE, 0.0, 3)
    transcript = reader.transcript(RUN, -2, 1)
    assert transcript is not None
    assert transcript.turns[0]["content"] == "middling"
    directory = Path(reader.run(RUN).run_dir)
    assert (directory / "evals.jsonl").read_text().count("\n") == 1
    assert (directory / "eval_rollouts.jsonl").read_text().count("\n") == 12
    assert not (directory / "rollouts.jsonl").exists()
    rebuilt = bench.store.rebuild_directory(RUN, tmp_path / "copy").path
    for name in ("evals.jsonl", "eval_rollouts.jsonl"):
        lines = [sorted((place / name).read_text().splitlines()) for place in (directory, rebuilt)]
        assert lines[0] == lines[1]


async def test_a_lost_attempt_costs_that_attempt_alone(bench: Bench) -> None:
    row, _ = await bench.evaluate(
        lambda name, call: "broken" if (name, call) == ("middling", 2) else scripted(name, call)
    )
    assert (row.state, row.graded, row.lost) == ("done", 11, 1)
    assert row.per_task["middling"] == {"mean": pytest.approx(1 / 3), "graded": 3, "passed": 1}
    assert "1 lost" in bench.said[-1]
    (group,) = [group for group in bench.store.reader().groups(RUN) if group.task_id == "middling"]
    assert (group.state, group.attempts_done, group.attempts_lost) == (GroupState.EVALUATED, 3, 1)


async def test_a_task_that_was_lost_altogether_is_in_no_mean(bench: Bench) -> None:
    row, _ = await bench.evaluate(lambda name, call: "broken" if name == "hard" else scripted(name, call))
    assert (row.state, row.lost, set(row.per_task)) == ("done", 4, {"easy", "middling"})
    assert row.mean == pytest.approx(0.75)
    (group,) = [group for group in bench.store.reader().groups(RUN) if group.task_id == "hard"]
    assert group.state is GroupState.LOST


async def test_attempts_that_are_only_compared_are_graded_by_task(bench: Bench) -> None:
    words = {"easy": "a bb ccc d", "middling": "aa aa aa aa", "hard": "a far-too-long b c"}
    row, _ = await bench.evaluate(lambda name, call: words[name].split()[call], episode=Ranked)
    assert (row.state, row.graded, row.lost) == ("done", 8, 4)
    assert row.per_task["easy"] == {"mean": 0.25, "graded": 4, "passed": 1}
    assert row.per_task["middling"]["passed"] == 4
    assert any("one is too long to compare" in line for line in bench.said)
    (group,) = [group for group in bench.store.reader().groups(RUN) if group.task_id == "easy"]
    rewards = [attempt.reward for attempt in bench.store.reader().attempts(RUN, group.group_id)]
    assert sorted(rewards, key=str) == [0.0, 0.0, 0.0, 1.0]


async def test_what_was_not_compared_when_it_was_stopped_has_no_reward(bench: Bench) -> None:
    begun = iter(range(1000))
    row, _ = await bench.evaluate(
        lambda *_: "a", episode=Ranked, concurrent=1, stopping=lambda: next(begun) >= 7
    )
    assert (row.state, row.graded, row.mean) == ("stopped", 0, None)
    assert_settled(bench)


async def test_two_evaluations_ask_with_the_same_seeds(bench: Bench) -> None:
    first, one = await bench.evaluate(scripted)
    second, two = await bench.evaluate(lambda *_: "1", name="step-000004")
    assert {name: sorted(map(str, seeds)) for name, seeds in one.seeds.items()} == {
        name: sorted(map(str, seeds)) for name, seeds in two.seeds.items()
    }
    assert len({seed for seeds in one.seeds.values() for seed in seeds}) == 12
    found = compared(first, second)
    assert found is not None
    assert found.mean == pytest.approx((0 + 0.5 + 0.875) / 3)


async def test_a_stop_leaves_every_task_about_as_well_known(bench: Bench) -> None:
    begun = iter(range(1000))
    row, sampler = await bench.evaluate(scripted, concurrent=1, stopping=lambda: next(begun) >= 7)
    assert (row.state, row.graded) == ("stopped", 7)
    assert sorted(len(seeds) for seeds in sampler.seeds.values()) == [2, 2, 3]
    assert row.mean is not None
    assert "stopped after 7 of 12 attempts" in bench.said[-1]
    assert {group.state for group in bench.store.reader().groups(RUN)} == {GroupState.EVALUATED}
    assert {group.reason for group in bench.store.reader().groups(RUN)} == {"stopped"}


async def test_loops_going_away_is_told_and_leaves_nothing_in_flight(bench: Bench) -> None:
    def reply(name: str, call: int) -> str:
        if (name, call) == ("hard", 1):
            raise LoopsUnavailable("the sampler is deactivated")
        return scripted(name, call)

    with pytest.raises(LoopsUnavailable):
        await bench.evaluate(reply)
    (row,) = bench.store.reader().evals(RUN)
    assert (row.state, row.error) == ("failed", "the sampler is deactivated")
    assert_settled(bench)


async def test_cancelling_stops_it_cleanly(bench: Bench) -> None:
    waiting = asyncio.Event()

    async def hold() -> None:
        if len(bench.told) >= 3:
            waiting.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(bench.evaluate(scripted, hold=hold))
    await asyncio.wait_for(waiting.wait(), 120)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (row,) = bench.store.reader().evals(RUN)
    assert row.state == "stopped"
    assert_settled(bench)


def assert_settled(bench: Bench) -> None:
    reader = bench.store.reader()
    for group in reader.groups(RUN):
        assert group.state in (GroupState.EVALUATED, GroupState.LOST)
        assert group.ended_at is not None
        for attempt in reader.attempts(RUN, group.group_id):
            assert attempt.state in (AttemptState.DONE, AttemptState.LOST, AttemptState.CANCELLED)
