"""The rows of the store, as the engine writes them and every reader (app, command line) sees them.

Times are Unix seconds (float, UTC). ``None`` means "not yet" or "not known", never zero.
Texts are stored as they came, after secrets were removed; readers make them safe for a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """Where a run is. The last five are final; ``INTERRUPTED`` is set by whoever finds a stale heartbeat."""

    CREATED = "created"
    STARTING = "starting"  # provisioning Loops, loading the tokenizer
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"  # draining: the step in flight ends, then the run
    DONE = "done"
    STOPPED = "stopped"
    ABORTED = "aborted"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def final(self) -> bool:
        return self in FINAL_STATES


FINAL_STATES = frozenset(
    {RunState.DONE, RunState.STOPPED, RunState.ABORTED, RunState.FAILED, RunState.INTERRUPTED}
)


class GroupState(StrEnum):
    """A group is one task attempted ``group_size`` times under one policy."""

    RUNNING = "running"
    READY = "ready"  # graded, waiting for its batch
    TRAINED = "trained"
    EVALUATED = "evaluated"  # of an evaluation: graded, never trained on
    REJECTED = "rejected"  # see reason: no_variance, too_many_losses, no_tokens, stopped
    LOST = "lost"


class AttemptState(StrEnum):
    """One episode of a group."""

    QUEUED = "queued"
    PROVISIONING = "provisioning"  # its sandbox is being created
    SETUP = "setup"
    SAMPLING = "sampling"  # waiting for or receiving a reply of the policy
    ACTING = "acting"  # the agent's own code: tools, environment
    GRADING = "grading"
    DONE = "done"
    LOST = "lost"  # infrastructure failed, retries spent
    DISCARDED = "discarded"  # nothing to train on (no reply), or dropped by the agent
    CANCELLED = "cancelled"


@dataclass(slots=True)
class RunRow:
    """One run. Written by its host; ``state`` becomes INTERRUPTED when the host's heartbeat is stale."""

    run_id: str  # e.g. "20261129-143501-k3f9": sortable, unique
    name: str  # [output] name or the config's directory name
    recipe: str  # "rl" | "sft"
    state: RunState
    created_at: float
    config_path: str
    config_toml: str  # as run, overrides applied, without secrets
    run_dir: str
    base_model: str
    max_steps: int
    step: int = 0  # finished optimizer steps
    phase: str = ""  # one word or phrase: "provisioning Loops", "sampling", "training", "publishing"
    mode: str = "sync"
    group_size: int = 0
    groups_per_step: int = 0
    loops_run_id: str | None = None
    loops_url: str | None = None
    scope: str = "local"
    policy_version: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    reward_first: float | None = None
    reward_last: float | None = None
    unusable_groups: int = 0
    error: str | None = None  # one clear sentence
    host_id: str | None = None
    info: dict[str, Any] = field(default_factory=dict)
    # What the Loops run behind it is, as Loops last said: "ACTIVE", "INACTIVE" …; None before there is one.
    loops_state: str | None = None
    # Since when it bills (when it was created); on scope "local" nothing does.
    loops_since: float | None = None
    loops_until: float | None = None  # when it was seen to be INACTIVE
    # {"hours", "sandbox_hours", "sandbox_gb_hours", "prompt_tokens", "sampled_tokens", "trained_tokens",
    #  "cost" (with [prices], else absent), "near": the budget's key that is past 80 %, or absent}
    spend: dict[str, Any] = field(default_factory=dict)
    stopped_seconds: float = 0.0  # between its sittings: it had ended and was taken up again

    def seconds(self, now: float) -> float | None:
        """For how long hosts have had it until ``now`` (Unix seconds); None before the first one."""
        if self.started_at is None:
            return None
        end = now if self.ended_at is None else self.ended_at
        return max(0.0, end - self.started_at - self.stopped_seconds)


@dataclass(slots=True)
class HostRow:
    """A process that hosts runs. Stale when ``heartbeat_at`` is older than 15 s or its pid is gone."""

    host_id: str
    pid: int
    pid_started: float  # process start time: a reused pid is not this host
    hostname: str
    kind: str  # "app" | "headless" | "detached"
    started_at: float
    heartbeat_at: float


@dataclass(slots=True)
class StepRow:
    """One optimizer step. ``metrics`` holds the names of steps.jsonl: reward/mean, rollout/…, time/…, …"""

    run_id: str
    step: int  # 1-based
    state: str  # "collecting" | "training" | "done"
    started_at: float
    ended_at: float | None = None
    policy_version: int | None = None  # the version that this step's publish made
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class GroupRow:
    run_id: str
    group_id: int  # counts up from 0 through the run; an evaluation's groups count down from -1
    state: GroupState
    task_id: str
    task_index: int
    step: int | None = None  # the step it was collected for / trained in
    epoch: int = 0
    policy_version: int | None = None  # at its start
    reason: str | None = None  # why rejected or lost
    reward_mean: float | None = None
    reward_std: float | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    attempts_done: int = 0
    attempts_lost: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    eval_id: str | None = None  # the evaluation that it belongs to; None for a training group


@dataclass(slots=True)
class AttemptRow:
    """``timeline`` maps a phase's name to [start, end] in Unix seconds, in order of first entry; sampling and acting
    are sums given as [first start, last end, total seconds]."""

    run_id: str
    group_id: int
    attempt: int  # 0 .. group_size-1
    state: AttemptState
    tries: int = 1
    reward: float | None = None
    advantage: float | None = None
    turns: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    segments: int = 0
    version_min: int | None = None
    version_max: int | None = None
    ending: str | None = None  # termination reason, or "graded" where the episode gave none
    timed_out: bool = False
    error: str | None = None
    queued_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    timeline: dict[str, list[float]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TranscriptRow:
    """The whole conversation of one attempt.

    ``turns`` is a list of entries in order; each has ``role`` and ``content`` (text or None) and where they apply
    ``tool_calls`` [{id, name, arguments (text), problem}], ``tool_call_id``, ``name``, ``reasoning``,
    and for a reply of the policy ``sampled``: {tokens: [ids], logprobs: [floats], texts: [one per token],
    policy_version, stop_reason, segment, truncated, discarded}.
    """

    run_id: str
    group_id: int
    attempt: int
    task_id: str
    reward: float | None
    ending: str | None
    turns: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


class CommandState(StrEnum):
    QUEUED = "queued"
    ACCEPTED = "accepted"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True)
class CommandRow:
    """What a person or script asks of a run's host; the host answers in the same row.

    Kinds: ``pause``, ``resume``, ``stop`` (after this step), ``abort`` (now), ``save`` (checkpoint), ``evaluate`` (the
    weights as they are after this step).
    """

    command_id: int
    run_id: str
    kind: str
    state: CommandState
    created_at: float
    args: dict[str, Any] = field(default_factory=dict)
    answer: str | None = None
    answered_at: float | None = None


@dataclass(slots=True)
class LogRow:
    log_id: int
    run_id: str
    at: float
    level: str  # "debug" | "info" | "warning" | "error"
    source: str  # "run" | "episode" | "loops" | "trainer" | "host" …
    text: str


@dataclass(slots=True)
class CheckRow:
    """A stored check report: ``findings`` [{severity, key, line, text, remedy}], ``lines`` the report lines."""

    check_id: int
    config_path: str
    created_at: float
    ok: bool
    findings: list[dict[str, Any]]
    lines: list[str]


class CheckpointState(StrEnum):
    SAVING = "saving"  # committed before Loops is asked: a killed process leaves this
    SAVED = "saved"
    FAILED = "failed"  # see error; what was saved of it may still exist on Loops
    DELETED = "deleted"


@dataclass(slots=True)
class CheckpointRow:
    """The weights of a run after exactly ``step`` optimizer steps, and where the run stood then.

    ``trainer_path`` (weights and optimizer, to resume from) and ``sampler_path`` (to sample from, download, deploy)
    are Loops' own ``bt://`` addresses. ``cursor`` is what a resume needs to repeat and skip no task; the recipe alone
    reads it.
    """

    run_id: str
    name: str  # unique in its run, e.g. "step-000012"
    step: int
    state: CheckpointState
    why: str  # "every" | "asked" | "end" | "stop" | "interrupt" | "budget" | "hand-over"
    created_at: float
    saved_at: float | None = None
    policy_version: int | None = None
    loops_run_id: str | None = None
    trainer_path: str | None = None
    sampler_path: str | None = None
    size_bytes: int | None = None
    reward_mean: float | None = None  # of its step
    metrics: dict[str, float] = field(default_factory=dict)  # of its step
    cursor: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(slots=True)
class EvalRow:
    """One evaluation: the held-out tasks, attempted ``attempts`` times each by fixed weights, never trained on.

    Its groups and attempts are ordinary rows of the run with ``eval_id`` set and negative group ids.
    """

    run_id: str
    eval_id: str  # unique in its run, e.g. "step-000010", "base", "step-000012-2"
    target: str  # "live" (the run's own weights at ``step``), "checkpoint" or "base"
    state: str  # "running" | "done" | "failed" | "stopped"
    why: str  # "every" | "start" | "end" | "asked"
    created_at: float
    ended_at: float | None = None
    step: int | None = None  # of the weights; None for the base model
    checkpoint: str | None = None  # its name, where the target is one
    tasks: int = 0
    attempts: int = 0  # of each task
    graded: int = 0
    lost: int = 0
    mean: float | None = None  # over tasks, of each task's mean reward
    low: float | None = None  # 95 % confidence interval of the mean, over tasks
    high: float | None = None
    pass_at: dict[str, float] = field(default_factory=dict)  # k as text -> unbiased pass@k
    # task id -> {"mean", "graded", "passed"}
    per_task: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)  # temperature, top_p, max_tokens …
    error: str | None = None
    host_id: str | None = None  # the process that makes it; one that is gone leaves it "stopped"


class LeaseState(StrEnum):
    """A lease is one sandbox from the intent to create it to its confirmed end."""

    INTENDED = "intended"  # committed before the provider is asked
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"  # confirmed: nothing of it is left
    LOST = "lost"  # it could not be released (see last_error); cleanup tries again


@dataclass(slots=True)
class LeaseRow:
    """One sandbox, by the name that we chose for it. ``ttl_seconds``: its provider ends it by itself after that."""

    name: str
    provider: str
    isolation: str  # what holds: "bubblewrap", "landlock", "none", "remote"; "" before it is known
    run_id: str | None
    group_id: int | None
    attempt: int | None
    host_id: str | None  # who holds it; without a live host it is cleanup's
    state: LeaseState
    created_at: float
    active_at: float | None = None
    released_at: float | None = None
    ttl_seconds: float | None = None
    memory_mb: int | None = None
    tries: int = 0  # of releasing it
    last_error: str | None = None
    # [prices] sandbox_gb_hour when it was created; None: no price known.
    price_per_gb_hour: float | None = None


@dataclass(slots=True)
class PaceRow:
    """How many sandboxes of one provider may exist now, and how fast they are made, over all processes of a project.

    At what is configured while ``why`` is None; lower, and slowly raised again, after the provider refused.
    """

    provider: str
    max_live: int
    creates_per_second: float
    next_at: float  # when the next creation is due, in Unix seconds
    changed_at: float
    why: str | None = None
