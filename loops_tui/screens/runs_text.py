"""What the Runs screen says about a run: pure functions from rows to lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.store.rows import HostRow, RunRow, RunState
from loops_tui.lease_words import left_words
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, plain
from loops_tui.widgets.spark import Spark
from loops_tui.widgets.virtual_table import Cells, Column
from loops_tui.wording import RUN_STATES, ago, elapsed, number, run_state

HOST_WORDS = {"app": "in an app", "headless": "in a shell", "detached": "detached"}

COLUMNS = (
    Column("state", "state", 13),
    Column("name", "run", 17, flex=2, most=34),
    Column("recipe", "recipe", 6, drop=5),
    Column("model", "model", 10, flex=1, most=24, drop=6),
    Column("step", "step", 9, right=True),
    Column("reward", "reward", 6, right=True),
    Column("spark", "course", 10, flex=3, most=30, drop=2),
    Column("unusable", "unusable", 8, right=True, drop=4),
    Column("sandboxes", "sandboxes", 9, right=True, drop=3),
    Column("elapsed", "elapsed", 8, right=True),
    Column("host", "host", 12, drop=7),
    Column("id", "id", 20, drop=8),
)


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run as the list shows it."""

    run: RunRow
    rewards: tuple[float, ...]
    host: HostRow | None
    now: float
    sandboxes: int = 0  # that may exist right now

    @property
    def live(self) -> bool:
        return not self.run.state.final

    @property
    def left_behind(self) -> int:
        """Sandboxes of a run that has ended."""
        return 0 if self.live else self.sandboxes

    def matches(self, needle: str) -> bool:
        """Whether every word of ``needle`` occurs in what one sees of this run."""
        run = self.run
        hay = f"{run.name} {run.run_id} {run.state} {run.recipe} {run.base_model} {run.scope}".casefold()
        return all(word in hay for word in needle.casefold().split())


def run_seconds(run: RunRow, now: float) -> float | None:
    """How long a run has worked."""
    if run.started_at is None:
        return None
    return (run.ended_at if run.ended_at is not None else now) - run.started_at


def host_words(entry: RunEntry, own_pid: int) -> str:
    host = entry.host
    if not entry.live:
        return "–"
    if host is None:
        return "none yet"
    return "this app" if host.pid == own_pid else HOST_WORDS.get(host.kind, host.kind)


def model_name(base_model: str) -> str:
    """A model's last part: directories and owners are noise in a list."""
    return Path(base_model).name or base_model


def progress(run: RunRow) -> str:
    return f"{run.step}/{run.max_steps}" if run.max_steps else f"{run.step}"


def run_cells(entry: RunEntry, own_pid: int) -> Cells:
    run = entry.run
    quiet = Tone.PLAIN if entry.live else Tone.DIM
    reward = (
        run.reward_last if run.reward_last is not None else (entry.rewards[-1] if entry.rewards else None)
    )
    return (
        run_state(run.state),
        plain(safe(run.name, 60), Tone.STRONG if entry.live else Tone.PLAIN),
        plain(safe(run.recipe, 12), quiet),
        plain(safe(model_name(run.base_model), 60), quiet),
        plain(progress(run), quiet),
        plain(number(reward), Tone.PLAIN),
        Spark(entry.rewards, Tone.GOOD if entry.live else Tone.DIM),
        plain(str(run.unusable_groups), Tone.WARN if run.unusable_groups else Tone.DIM),
        plain(
            str(entry.sandboxes) if entry.sandboxes else "–",
            Tone.BAD if entry.left_behind else Tone.PLAIN if entry.sandboxes else Tone.DIM,
        ),
        plain(elapsed(run_seconds(run, entry.now)), quiet),
        plain(host_words(entry, own_pid), quiet),
        plain(safe(run.run_id, 40), Tone.DIM),
    )


def details(entry: RunEntry | None, own_pid: int, width: int) -> list[Line]:
    """The run under the cursor in a few lines."""
    if entry is None:
        return []
    run = entry.run
    gap: Span = ("   ", Tone.PLAIN)
    loss = "loss" if run.recipe == "sft" else "reward"
    # The course is the newest steps only: an early best would be missed, so first and last count too.
    known = [value for value in (*entry.rewards, run.reward_first, run.reward_last) if value is not None]
    best = max((value for value in known if math.isfinite(value)), default=None)
    who = [("host ", Tone.DIM), (host_words(entry, own_pid), Tone.PLAIN)] if entry.live else []
    if entry.live and entry.host is not None:
        who.append(
            (f" (pid {entry.host.pid}, heard of {ago(entry.now - entry.host.heartbeat_at)})", Tone.DIM)
        )
    started = [("started ", Tone.DIM), (ago(entry.now - run.created_at), Tone.PLAIN)]
    lines: list[Line] = [
        (
            *run_state(run.state),
            *((f"  {safe(run.phase, 40)}", Tone.DIM),),
            gap,
            ("id ", Tone.DIM),
            (safe(run.run_id, 40), Tone.PLAIN),
        ),
        (
            (f"{safe(run.recipe, 12)} {safe(run.mode, 12)}", Tone.PLAIN),
            gap,
            ("model ", Tone.DIM),
            (safe(model_name(run.base_model), 40), Tone.PLAIN),
            (f" on {safe(run.scope, 20)} Loops", Tone.DIM),
            gap,
            (f"{run.groups_per_step} × {run.group_size}", Tone.PLAIN),
            (" attempts a step", Tone.DIM),
        ),
        (
            (f"{loss} ", Tone.DIM),
            (f"{number(run.reward_first)} → {number(run.reward_last)}", Tone.PLAIN),
            *(((f"  best {number(best)}", Tone.DIM),) if best is not None and loss == "reward" else ()),
            gap,
            ("unusable groups ", Tone.DIM),
            (str(run.unusable_groups), Tone.WARN if run.unusable_groups else Tone.PLAIN),
            *((gap, ("sandboxes ", Tone.DIM), (str(entry.sandboxes), Tone.PLAIN)) if entry.sandboxes else ()),
        ),
        (*started, *((gap, *who) if who else ())),
        (("config ", Tone.DIM), (safe(_shortened(run.config_path, width - 8), width), Tone.PLAIN)),
    ]
    if run.error:
        tone = RUN_STATES[run.state][2]
        lines.insert(0, (("! ", tone), (safe(run.error, 600), tone)))
    elif run.state is RunState.INTERRUPTED:
        lines.insert(0, plain("! its host died; what it had finished is kept", Tone.BAD))
    if entry.left_behind:
        lines.insert(0, plain(f"! {left_words(entry.left_behind)}", Tone.BAD))
    return lines


def _shortened(path: str, room: int) -> str:
    """A path whose end matters more than its beginning."""
    return path if len(path) <= room or room < 8 else "…" + path[-(room - 1) :]


EMPTY: Sequence[Line] = (
    plain("No runs yet in this project.", Tone.STRONG),
    (),
    plain("Start one from a shell in this directory:", Tone.DIM),
    (("  loops-tui run ", Tone.PLAIN), ("examples/in_process_direct/train.toml", Tone.ACCENT)),
    (),
    plain("It needs no account: the model ships with the package and trains on this", Tone.DIM),
    plain("machine. The run appears here as soon as it is created.", Tone.DIM),
)


def nothing_matches(needle: str) -> list[Line]:
    return [
        (("No run matches ", Tone.PLAIN), (f"“{safe(needle, 60)}”", Tone.ACCENT)),
        (),
        plain("esc clears the filter", Tone.DIM),
    ]
