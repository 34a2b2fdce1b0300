"""Advantages, rejection, and the datums that reach the trainer."""

from __future__ import annotations

import math

import pytest

from engine.episodes import Task
from engine.episodes.runtime import AttemptResult
from engine.policy.conversation import ConversationTrace
from engine.policy.tokens import Completion, Segment
from engine.recipes.contract import LoopsEndpoint, RunHandle
from engine.recipes.control import RunControl
from engine.recipes.rl.batch import datum_of, loss_config, pack
from engine.recipes.rl.groups import Group, judge
from engine.recipes.rl.metrics import MOST_TEXTS, rollout_metrics
from engine.recipes.rl.order import TaskOrder, sampling_seed
from engine.recipes.rl.report import Reporter
from engine.store.rows import AttemptState


def conversation(reply: list[int]) -> Segment:
    segment = Segment()
    segment.append_prompt([10, 11])
    segment.append_reply(Completion(reply, [-0.1 * token for token in reply], "stop", 3))
    segment.append_prompt([12])
    segment.append_reply(Completion([7, 8], [-0.7, -0.8], "stop", 3))
    return segment


def group(*rewards: float | None, group_id: int = 0) -> Group:
    results: list[AttemptResult | None] = []
    for index, reward in enumerate(rewards):
        trace = ConversationTrace(segments=[conversation([index + 1])], replies=2)
        state = AttemptState.LOST if reward is None else AttemptState.DONE
        results.append(AttemptResult(state, trace, reward=reward))
    return Group(group_id, Task(object(), "t", 0), 0, len(rewards), 0, results, 0.0)


def test_advantage_is_reward_minus_the_groups_mean() -> None:
    verdict = judge(group(1.0, 0.0, 0.0, 0.5), 0)
    assert verdict.usable
    assert verdict.advantages == {0: 0.625, 1: -0.375, 2: -0.375, 3: 0.125}
    assert math.isclose(sum(verdict.advantages.values()), 0.0, abs_tol=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3])
def test_groups_that_score_alike_teach_nothing(value: float) -> None:
    verdict = judge(group(value, value, value), 0)
    assert (verdict.usable, verdict.reason) == (False, "no_variance")


def test_baseline_is_over_usable_attempts_only() -> None:
    verdict = judge(group(1.0, None, 0.0, 0.0), 1)
    assert verdict.usable
    assert verdict.advantages == {0: 1 - 1 / 3, 2: -1 / 3, 3: -1 / 3}


def test_too_many_losses() -> None:
    assert judge(group(1.0, None, 0.0), 0).reason == "too_many_losses"
    assert judge(group(1.0, None, None), 2).reason == "too_many_losses"  # one attempt compares with nothing


def test_datum_carries_sampled_tokens_alone() -> None:
    datum = datum_of(conversation([5, 6]), -0.25)
    assert datum is not None
    assert list(datum.tokens) == [10, 11, 5, 6, 12, 7, 8]
    assert datum.mask == [0, 0, 1, 1, 0, 1, 1]
    assert datum.advantages == [0, 0, -0.25, -0.25, 0, -0.25, -0.25]
    assert list(datum.logprobs) == [0, 0, -0.5, pytest.approx(-0.6), 0, -0.7, -0.8]


def test_discarded_replies_are_masked_out() -> None:
    segment = conversation([5, 6])
    segment.spans[1].trained = False
    datum = datum_of(segment, 1.0)
    assert datum is not None
    assert datum.mask == [0, 0, 1, 1, 0, 0, 0]
    segment.spans[0].trained = False
    assert datum_of(segment, 1.0) is None


def test_attempts_at_the_mean_are_not_sent() -> None:
    one, two = group(1.0, 0.0, 0.5, group_id=2), group(0.0, 1.0, group_id=1)
    for each in (one, two):
        each.verdict = judge(each, 0)
    batches = pack([one, two])
    assert [len(batch) for batch in batches] == [2, 2]
    assert batches[0][0].tokens[2] == 1  # group 1 first, whatever order the groups ended in


def test_texts_of_attempts_become_rates_unless_each_is_another() -> None:
    attempts = group(*[1.0] * (MOST_TEXTS + 1)).graded
    for number, attempt in enumerate(attempts):
        attempt.metadata = {"outcome": f"kind {number % MOST_TEXTS}", "answer": f"text {number}"}
    told = {name: value for name, value in rollout_metrics(attempts).items() if name.count("/") == 2}
    assert len(told) == MOST_TEXTS
    assert told["rollout/outcome/kind 0"] == 2 / len(attempts)
    assert sum(told.values()) == pytest.approx(1.0)


def test_loss_aggregation() -> None:
    assert loss_config({"beta": 1}, "sum") == {"beta": 1, "skip_token_normalization": True}
    assert loss_config({}, "token_mean") == {"skip_token_normalization": False}


def test_each_pass_visits_every_task_once_in_its_own_order() -> None:
    order = TaskOrder(5, seed=3, shuffle=True)
    passes = [[order.of(epoch * 5 + place) for place in range(5)] for epoch in range(3)]
    assert [sorted(index for index, _ in one) for one in passes] == [[0, 1, 2, 3, 4]] * 3
    assert len({tuple(index for index, _ in one) for one in passes}) > 1
    assert order.of(7) == TaskOrder(5, seed=3, shuffle=True).of(7)
    assert [TaskOrder(3, 0, False).of(g)[0] for g in range(4)] == [0, 1, 2, 0]


def test_sampling_seeds_are_distinct_and_repeatable() -> None:
    seeds = {sampling_seed(1, g, a, 1, c) for g in range(20) for a in range(16) for c in range(3)}
    assert len(seeds) == 960
    assert sampling_seed(1, 2, 3, 1, 0) == sampling_seed(1, 2, 3, 1, 0) != sampling_seed(2, 2, 3, 1, 0)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_long_step_says_how_far_it_is() -> None:
    class Silent:
        def __getattr__(self, name: str):
            return lambda *_, **__: None

    handle = RunHandle("r", Silent(), RunControl(), LoopsEndpoint("local", None, None))  # type: ignore[arg-type]
    reporter = Reporter(handle, "full")
    reporter.step_began(3)
    reporter.phase("sampling")
    running = group(1.0, 0.0)
    reporter.group_started(running)
    reporter.attempt_phase(running, 1, AttemptState.SETUP)
    line, lasted = reporter.progress()
    assert line.startswith("step 3: sampling, 1 queued, 1 setup, ")
    assert lasted >= 0
