"""The signals of an unhealthy run, each with the numbers it rests on and what to do about it: pure functions.

Groups that score alike teach nothing; attempts that run out of turns are not solving anything; a reward that climbs
faster than the task should allow is the usual sign of an exploit; a sampler that disagrees with the trainer spoils
every update; and a training reward that rises without held-out success proves nothing.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from engine.store.rows import EvalRow, GroupRow, GroupState, HostRow, RunRow, StepRow
from loops_tui.health import Finding, standing, surroundings
from loops_tui.theme import Tone
from loops_tui.wording import number, words

KL_LIMIT = 0.01  # per token; a healthy run stays near zero
KL_RISING = (1e-3, 10.0)  # above this, and by this factor above what it was
OUT_OF_ROOM = 0.3  # share of attempts
GROWING = (0.15, 0.1)  # a share this high, and this much above where it began
UNPARSABLE = 0.2
LOST_SHARE = 0.1
WORSE_VALIDATIONS = 2  # in a row
WORSE_BY = 0.01  # of the best validation loss
REFUSED_SHARE = 0.01  # of the training rows
ALIKE_RUN = 6  # finished groups in a row
MANY_UNUSABLE = (16, 0.5)  # of so many of the newest groups, more than this share
ADVICE_GROUPS = 12  # the newest ones, from which the advice is drawn: what the policy does now
TASK_GROUPS = 3  # newest groups of one task, all alike
SEGMENTS = 1.05  # an attempt
HELD_OUT_RISE = 0.15  # of the training reward, before a held-out one is expected to follow
LEAP = (0.4, 0.95, 3)  # from below, to above, within steps
ENDED_GROUPS = frozenset({GroupState.TRAINED, GroupState.READY, GroupState.REJECTED, GroupState.LOST})
UNUSABLE = ("no_variance", "too_many_losses", "no_tokens")  # and not because the run ended
OUT_OF_TURNS = ("max_turns", "turns", "turn_limit", "out_of_turns")
NOT_PARSED = ("unusable_reply", "unparsable_reply", "invalid_tool_call", "malformed")


def first_of(metrics: Mapping[str, float], *endings: str) -> float | None:
    """The first metric that is called so, or whose name ends so."""
    for ending in endings:
        if ending in metrics:
            return metrics[ending]
        for name, value in metrics.items():
            if name.endswith("/" + ending):
                return value
    return None


def kl_of(metrics: Mapping[str, float]) -> float | None:
    """The sampler/trainer divergence, Schulman's k3 estimate per token."""
    return first_of(metrics, "kl_sample_train_k3", "kl_k3")


def findings(
    run: RunRow, learning: Sequence[Finding], host: HostRow | None, now: float, sandboxes: int = 0
) -> list[Finding]:
    """Everything worth saying about a run now; ``learning`` is what :func:`signals` found in its rows."""
    return [*standing(run, host, now, sandboxes=sandboxes), *learning, *surroundings(run)]


def signals(
    run: RunRow, steps: Sequence[StepRow], groups: Sequence[GroupRow], evals: Sequence[EvalRow] = ()
) -> list[Finding]:
    """What the rows say about learning, most pressing first. ``groups`` in the order in which they began."""
    done = [step for step in steps if step.state == "done"]
    ended = [group for group in groups if group.state in ENDED_GROUPS and group.group_id >= 0]
    found: list[Finding] = []
    if done:
        found.extend(_numbers(done))
        found.extend(_overfits(done))
        found.extend(_disagreement(run, done))
    found.extend(_groups_alike(ended))
    found.extend(_refused(run))
    if done:
        found.extend(_out_of_room(done))
        found.extend(_lost(run, done[-1].metrics))
        found.extend(_climbs(done))
    found.extend(_held_out(done, evals))
    if not any("every group" in finding.text for finding in found):
        found.extend(_tasks_alike(ended))
    return found


def _numbers(done: Sequence[StepRow]) -> Iterable[Finding]:
    metrics = done[-1].metrics
    broken = [name for name in ("loss", "optim/grad_norm") if not math.isfinite(metrics.get(name, 0.0))]
    if broken:
        yield Finding(
            Tone.BAD,
            "the update is not a number: the weights are spoilt",
            f"{' and '.join(broken)} of step {done[-1].step}",
            "lower learning_rate and go on from a checkpoint before it",
        )
    segments = metrics.get("tokens/segments_per_attempt", 1.0)
    if segments > SEGMENTS:
        yield Finding(
            Tone.INFO,
            "conversations break into segments: what was sampled cannot be continued token by token",
            f"{segments:.2f} segments an attempt",
            "look at the renderer; prompts are read and trained again for each segment",
        )


def _overfits(done: Sequence[StepRow]) -> Iterable[Finding]:
    """The validation loss above its best, twice in a row at least, while the training loss went on falling."""
    held = [step for step in done if "loss/validation" in step.metrics]
    if not held:
        return
    best = min(held, key=lambda step: step.metrics["loss/validation"])
    later = held[held.index(best) + 1 :]
    low, last = best.metrics["loss/validation"], held[-1].metrics["loss/validation"]
    fell = done[-1].metrics.get("loss", math.inf) < best.metrics.get("loss", -math.inf)
    if len(later) >= WORSE_VALIDATIONS and last > low * (1 + WORSE_BY) and fell:
        yield Finding(
            Tone.WARN,
            "the validation loss rises while the training loss falls: it learns its rows by heart",
            f"validation {number(low, 3)} at step {best.step}, now {number(last, 3)}",
            f"take the checkpoint nearest to step {best.step}; early_stop_after ends such a run by itself",
        )


def _refused(run: RunRow) -> Iterable[Finding]:
    """Rows of the training data that are left out."""
    data = run.info.get("data")
    refused, rows = (data.get("refused"), data.get("rows")) if isinstance(data, dict) else (None, None)
    if isinstance(refused, int) and isinstance(rows, int) and refused > 0:
        yield Finding(
            Tone.WARN if refused > REFUSED_SHARE * rows else Tone.INFO,
            f"{refused:,} of {rows:,} training rows are refused",
            remedy="check lists them with file, line and reason",
        )


def _disagreement(run: RunRow, done: Sequence[StepRow]) -> Iterable[Finding]:
    metrics = done[-1].metrics
    kl = kl_of(metrics)
    if kl is None or not kl > 0:
        return
    before = [value for step in done[:-1] if (value := kl_of(step.metrics)) is not None and value > 0]
    usual = median(before) if before else None
    basis = [f"KL k3 {number(kl, 3)} a token"]
    basis += [f"usually {number(usual, 3)}"] if usual is not None else []
    ess = first_of(metrics, "ess_fraction")
    basis += [f"effective samples {ess:.0%}"] if ess is not None else []
    remedy = "stale weights, or other numerics in the sampler; a healthy run stays near zero"
    temperature = _temperature(run)
    if temperature is not None and temperature != 1.0:
        remedy = f"temperature {temperature:g} alone makes them differ: the trainer scores at 1"
    if kl > KL_LIMIT:
        text = f"sampler and trainer disagree (KL k3 {number(kl, 3)}): updates are biased"
        yield Finding(Tone.BAD, text, ", ".join(basis), remedy)
    elif usual is not None and kl > KL_RISING[0] and kl > usual * KL_RISING[1]:
        text = f"sampler and trainer drift apart (KL k3 {number(kl, 4)}, usually {number(usual, 4)})"
        yield Finding(Tone.WARN, text, ", ".join(basis), remedy)


def _temperature(run: RunRow) -> float | None:
    try:
        found = tomllib.loads(run.config_toml).get("sampling", {}).get("temperature")
    except tomllib.TOMLDecodeError:
        return None
    return float(found) if isinstance(found, int | float) else None


def _groups_alike(ended: Sequence[GroupRow]) -> Iterable[Finding]:
    alike = 0
    for group in reversed(ended):
        if group.reason != "no_variance":
            break
        alike += 1
    if alike >= ALIKE_RUN:
        newest = ended[-min(alike, ADVICE_GROUPS) :]
        means = [group.reward_mean for group in newest if group.reward_mean is not None]
        lesson = "make the tasks harder or easier"
        if means and max(means) <= 0:
            lesson = "no attempt succeeds: make the tasks easier, or give credit for parts"
        elif means and min(means) >= 1:
            lesson = "every attempt succeeds: make the tasks harder, or call it done"
        basis = f"mean reward {number(fmean(means))}" if means else ""
        # "the last": older groups than those at hand may be alike too.
        text = f"every group scores alike (the last {alike}), nothing to learn from"
        yield Finding(Tone.WARN, text, basis, lesson)
        return
    window = ended[-MANY_UNUSABLE[0] :]
    unusable = [group for group in window if group.reason in UNUSABLE]
    if len(window) == MANY_UNUSABLE[0] and len(unusable) / len(window) > MANY_UNUSABLE[1]:
        same = sum(group.reason == "no_variance" for group in unusable)
        yield Finding(
            Tone.WARN,
            f"most groups teach nothing ({len(unusable)} of the last {len(window)})",
            f"{same} all alike, {len(unusable) - same} for other reasons",
            "make tasks that never vary harder or easier, or leave them out",
        )


def _tasks_alike(ended: Sequence[GroupRow]) -> Iterable[Finding]:
    tasks: dict[str, list[GroupRow]] = {}
    for group in ended:
        tasks.setdefault(group.task_id, []).append(group)
    dead = {
        task: rows[-1].reward_mean
        for task, rows in tasks.items()
        if len(rows) >= TASK_GROUPS and all(group.reason == "no_variance" for group in rows[-TASK_GROUPS:])
    }
    if dead and len(tasks) > 1:
        named = ", ".join(f"{task} ({number(mean)})" for task, mean in list(dead.items())[:4])
        more = f" and {len(dead) - 4} more" if len(dead) > 4 else ""
        many = "tasks scores" if len(dead) == 1 else "tasks score"
        yield Finding(
            Tone.INFO,
            f"{len(dead)} of {len(tasks)} {many} alike every time",
            f"{named}{more}: the last {TASK_GROUPS} groups of each",
            "such a task teaches nothing: make it harder or easier",
        )


def _share(metrics: Mapping[str, float], names: Sequence[str]) -> float:
    return max((metrics.get(f"rollout/termination_reason/{name}", 0.0) for name in names), default=0.0)


def _out_of_room(done: Sequence[StepRow]) -> Iterable[Finding]:
    first, last = [step.metrics for step in done[:3]], done[-1].metrics

    def judged(now: float, before: float) -> str | None:
        grew = now >= GROWING[0] and now - before >= GROWING[1] and len(done) > 3
        if now < OUT_OF_ROOM and not grew:
            return None
        return f"{now:.0%} of the last step, {before:.0%} at first"

    turns = judged(_share(last, OUT_OF_TURNS), fmean(_share(metrics, OUT_OF_TURNS) for metrics in first))
    if turns is not None:
        text = "attempts run out of turns instead of solving the task"
        yield Finding(
            Tone.WARN, f"{text} ({turns})", turns, "allow more turns, or give tasks that need fewer"
        )
    cut = judged(
        last.get("rollout/truncated", 0.0), fmean(metrics.get("rollout/truncated", 0.0) for metrics in first)
    )
    if cut is not None:
        text = "attempts are cut off by the token limit"
        yield Finding(Tone.WARN, f"{text} ({cut})", cut, "raise [sampling] max_tokens or [model] max_seq_len")
    late = judged(
        last.get("rollout/timed_out", 0.0), fmean(metrics.get("rollout/timed_out", 0.0) for metrics in first)
    )
    if late is not None:
        text = "attempts run into their deadline"
        yield Finding(Tone.WARN, f"{text} ({late})", late, "raise agent_timeout_seconds, or find what waits")
    broken = _share(last, NOT_PARSED)
    if broken >= UNPARSABLE:
        yield Finding(
            Tone.WARN,
            f"replies cannot be parsed ({broken:.0%} of attempts)",
            f"{broken:.0%} of the last step",
            "look at a transcript: the renderer and the model's format may not fit",
        )


def _lost(run: RunRow, metrics: Mapping[str, float]) -> Iterable[Finding]:
    lost = metrics.get("discard/attempts", 0.0)
    size = max(1, run.group_size * run.groups_per_step)
    if lost / size <= LOST_SHARE:
        return
    were = "attempt of the last step was" if round(lost) == 1 else "attempts of the last step were"
    prefix = "discard/attempts/"
    reasons = [
        f"{value:.0f} {words(name.removeprefix(prefix))}"
        for name, value in sorted(metrics.items())
        if name.startswith(prefix) and value
    ]
    yield Finding(Tone.WARN, f"{lost:.0f} {were} lost", ", ".join(reasons), "the log says why")


def _climbs(done: Sequence[StepRow]) -> Iterable[Finding]:
    rewards = [(step.step, step.metrics["reward/mean"]) for step in done if "reward/mean" in step.metrics]
    low, high, within = LEAP
    for place, (step, before) in reversed(list(enumerate(rewards))):
        best = max(rewards[place + 1 : place + 1 + within], key=lambda item: item[1], default=None)
        if before < low and best is not None and best[1] > high:
            yield Finding(
                Tone.WARN,
                "reward climbs faster than the task should allow: read transcripts",
                f"{number(before)} at step {step}, {number(best[1])} at step {best[0]}",
                f"see whether the best attempts of step {best[0]} earn it or exploit the grader",
            )
            return


def _held_out(done: Sequence[StepRow], evals: Sequence[EvalRow]) -> Iterable[Finding]:
    told = [
        (0 if row.step is None else row.step, row)
        for row in evals
        if row.state == "done" and row.mean is not None and row.target != "checkpoint"
    ]
    told.sort(key=lambda item: (item[0], item[1].created_at))
    if len(told) < 2:
        return
    (start, first), (end, last) = told[0], told[-1]
    assert first.mean is not None
    assert last.mean is not None
    best_step, best = max(told, key=lambda item: item[1].mean or 0.0)
    if best is not last and best.low is not None and last.mean < best.low:
        yield Finding(
            Tone.WARN,
            f"held-out reward falls ({number(best.mean)} at step {best_step}, {number(last.mean)} at step {end})",
            f"95 % of step {best_step}: {number(best.low)} to {number(best.high)}",
            f"keep the checkpoint of step {best_step}",
        )
        return
    then, now = _trained_about(done, start), _trained_about(done, end)
    if then is None or now is None or now - then < HELD_OUT_RISE:
        return
    if last.mean - first.mean < (now - then) / 4:
        yield Finding(
            Tone.WARN,
            "training reward rises, held-out reward does not",
            f"training {number(then)} to {number(now)}, held-out {number(first.mean)} to {number(last.mean)}",
            "read transcripts: it may learn these tasks by heart, or exploit their grader",
        )


def _trained_about(done: Sequence[StepRow], step: int) -> float | None:
    """The mean training reward of the three steps nearest to ``step``."""
    rewards = [
        (abs(row.step - step), value)
        for row in done
        if (value := row.metrics.get("reward/mean_with_unusable", row.metrics.get("reward/mean"))) is not None
    ]
    nearest = [value for _, value in sorted(rewards)[:3]]
    return fmean(nearest) if nearest else None
