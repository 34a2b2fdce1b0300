"""What is wrong with a run, in plain words: pure functions from rows to sentences.

The signals are those of an unhealthy GRPO run: groups that score alike teach nothing, attempts that run out of room
are not solving anything, a reward that leaps is worth a look at what earned it, and a sampler that disagrees with the
trainer spoils every update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.store.rows import GroupRow, GroupState, HostRow, RunRow, RunState, StepRow
from loops_tui.lease_words import left_words
from loops_tui.theme import Tone
from loops_tui.wording import elapsed, number

KL_LIMIT = 0.01  # per token; a healthy run stays near zero
OUT_OF_ROOM = 0.3  # share of attempts
LOST_SHARE = 0.1
ALIKE_RUN = 6  # finished groups in a row
ADVICE_GROUPS = 12  # the newest ones, from which the advice is drawn: what the policy does now
SILENT_SECONDS = 15.0
ENDED_GROUPS = frozenset({GroupState.TRAINED, GroupState.READY, GroupState.REJECTED, GroupState.LOST})
OUT_OF_TURNS = ("max_turns", "turns", "turn_limit", "out_of_turns")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know, most pressing first in a list of them."""

    tone: Tone
    text: str
    lasting: bool = (
        False  # it holds for as long as the run lives, and other findings must not push it out of view
    )


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
    run: RunRow,
    steps: Sequence[StepRow],
    groups: Sequence[GroupRow],
    host: HostRow | None,
    now: float,
    *,
    sandboxes: int = 0,
) -> list[Finding]:
    """Everything worth saying about a run now; ``groups`` newest first, ``sandboxes`` are those that may exist."""
    found = [*_no_isolation(run), *_endings(run)]
    if run.state.final and sandboxes:
        found.append(Finding(Tone.BAD, left_words(sandboxes)))
    if not run.state.final and host is not None and now - host.heartbeat_at > SILENT_SECONDS:
        silent = elapsed(now - host.heartbeat_at)
        found.append(Finding(Tone.BAD, f"its host (pid {host.pid}) has been silent for {silent}"))
    done = [step for step in steps if step.state == "done"]
    found.extend(_groups_alike(groups))
    if done:
        found.extend(_step_signals(run, done))
    found.extend(_weak_isolation(run))
    return found


def _no_isolation(run: RunRow) -> list[Finding]:
    if run.state.final or run.info.get("isolation") != "none":
        return []
    text = "nothing isolates this run's sandboxes: its commands run as you, on this machine"
    return [Finding(Tone.WARN, text, lasting=True)]


def _weak_isolation(run: RunRow) -> list[Finding]:
    if run.state.final or run.info.get("isolation") != "landlock":
        return []
    text = "landlock holds this run's sandboxes, bubblewrap would more: commands see this machine's processes"
    return [Finding(Tone.INFO, text)]


def _endings(run: RunRow) -> list[Finding]:
    if run.state is RunState.FAILED:
        return [Finding(Tone.BAD, run.error or "the run failed and left no sentence; its log says more")]
    if run.state is RunState.INTERRUPTED:
        why = run.error or "its host is gone"
        return [Finding(Tone.BAD, f"interrupted: {why}; finished steps are kept")]
    return [Finding(Tone.WARN, run.error)] if run.error else []


def _groups_alike(groups: Sequence[GroupRow]) -> list[Finding]:
    ended = [group for group in groups if group.state in ENDED_GROUPS]
    alike = 0
    for group in ended:
        if group.reason != "no_variance":
            break
        alike += 1
    if alike < ALIKE_RUN:
        return []
    means = [
        group.reward_mean for group in ended[: min(alike, ADVICE_GROUPS)] if group.reward_mean is not None
    ]
    lesson = "make the tasks harder or easier"
    if means and max(means) <= 0:
        lesson = "no attempt succeeds: make the tasks easier"
    elif means and min(means) >= 1:
        lesson = "every attempt succeeds: make the tasks harder, or call it done"
    # "the last": older groups than those at hand may be alike too.
    return [
        Finding(Tone.WARN, f"every group scores alike (the last {alike}), nothing to learn from; {lesson}")
    ]


def _step_signals(run: RunRow, done: Sequence[StepRow]) -> list[Finding]:
    found: list[Finding] = []
    metrics = done[-1].metrics
    kl = kl_of(metrics)
    if kl is not None and kl > KL_LIMIT:
        found.append(
            Finding(Tone.BAD, f"sampler and trainer disagree (KL k3 {number(kl, 3)}): updates are biased")
        )
    room = _out_of_room(metrics)
    if room is not None:
        found.append(room)
    lost = metrics.get("discard/attempts", 0.0)
    size = max(1, run.group_size * run.groups_per_step)
    if lost / size > LOST_SHARE:
        were = "attempt of the last step was" if round(lost) == 1 else "attempts of the last step were"
        found.append(Finding(Tone.WARN, f"{lost:.0f} {were} lost; the log says why"))
    rewards = [step.metrics["reward/mean"] for step in done if "reward/mean" in step.metrics]
    if _leaps(rewards):
        found.append(Finding(Tone.INFO, "reward climbs fast: read transcripts to see that it is earned"))
    return found


def _out_of_room(metrics: Mapping[str, float]) -> Finding | None:
    truncated = metrics.get("rollout/truncated", 0.0)
    turns = max(
        (metrics.get(f"rollout/termination_reason/{name}", 0.0) for name in OUT_OF_TURNS), default=0.0
    )
    if turns >= OUT_OF_ROOM:
        return Finding(Tone.WARN, f"{turns:.0%} of attempts run out of turns instead of solving the task")
    if truncated >= OUT_OF_ROOM:
        return Finding(Tone.WARN, f"{truncated:.0%} of attempts are cut off by the token limit")
    return None


def _leaps(rewards: Sequence[float]) -> bool:
    """From mostly wrong to nearly perfect within three steps, lately."""
    recent = rewards[-6:]
    return any(
        before < 0.4 and max(recent[place + 1 : place + 4], default=0.0) > 0.95
        for place, before in enumerate(recent)
    )
