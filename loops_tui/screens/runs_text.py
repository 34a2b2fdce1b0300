"""What the Runs screen says about a run: pure functions from rows to lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.store.rows import RunRow, RunState
from loops_tui.health import ended_early
from loops_tui.lease_words import coarse, counted
from loops_tui.scores import score_value
from loops_tui.screens.runs_order import Order
from loops_tui.screens.runs_read import RunEntry
from loops_tui.screens.runs_spend import share_spent, spent_cell, spent_line
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, plain, width_of
from loops_tui.widgets.spark import Spark
from loops_tui.widgets.virtual_table import Cells, Column
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import RUN_STATES, ago, elapsed, number, run_state

HOST_WORDS = {"app": "in an app", "headless": "in a shell", "detached": "detached"}

COLUMNS = (
    Column("state", "state", 13),
    Column("name", "run", 17, flex=2, most=34),
    Column("recipe", "recipe", 6, drop=6),
    Column("model", "model", 10, flex=1, most=24, drop=7),
    Column("step", "step", 9, right=True),
    Column("reward", "reward", 9, right=True),
    Column("spark", "course", 10, flex=3, most=30, drop=2),
    Column("unusable", "unusable", 8, right=True, drop=5),
    Column("sandboxes", "sandboxes", 9, right=True, drop=3),
    Column("spent", "spent", 14, right=True, drop=4),
    Column("bills", "bills for", 9, right=True, drop=1),
    Column("elapsed", "elapsed", 8, right=True),
    Column("host", "host", 12, drop=8),
    Column("id", "id", 20, drop=9),
)


def columns_for(entries: Sequence[RunEntry], order: Order | None, turned: bool) -> tuple[Column, ...]:
    """The columns that have something to say, the one sorted by with an arrow."""
    silent: set[str] = set()
    if not any(entry.bills for entry in entries):
        silent.add("bills")
    if not any(share_spent(entry) is not None for entry in entries):
        silent.add("spent")
    shown = [column for column in COLUMNS if column.key not in silent]
    if order is None:
        return tuple(shown)
    arrow = "▼" if order.falling != turned else "▲"
    return tuple(
        replace(column, title=column.title + arrow, drop=0) if column.key == order.column else column
        for column in shown
    )


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


def run_cells(
    entry: RunEntry, own_pid: int, columns: Sequence[Column] = COLUMNS, *, marked: bool = False
) -> Cells:
    """The row's cells, one for each of ``columns``."""
    run = entry.run
    quiet = Tone.PLAIN if entry.live else Tone.DIM
    reward = (
        run.reward_last if run.reward_last is not None else (entry.rewards[-1] if entry.rewards else None)
    )
    name = plain(safe(run.name, 60), Tone.STRONG if entry.live else Tone.PLAIN)
    cells: dict[str, Line | Spark] = {
        "state": run_state(run.state),
        "name": (("◆ ", Tone.ACCENT), *name) if marked else name,
        "recipe": plain(safe(run.recipe, 12), quiet),
        "model": plain(safe(model_name(run.base_model), 60), quiet),
        "step": plain(progress(run), quiet),
        "reward": _score(run, reward),
        "spark": Spark(entry.rewards, Tone.GOOD if entry.live else Tone.DIM),
        "unusable": plain(str(run.unusable_groups), Tone.WARN if run.unusable_groups else Tone.DIM),
        "sandboxes": plain(
            str(entry.sandboxes) if entry.sandboxes else "–",
            Tone.BAD if entry.left_behind else Tone.PLAIN if entry.sandboxes else Tone.DIM,
        ),
        "spent": spent_cell(entry),
        "bills": _bills(entry),
        "elapsed": plain(elapsed(run.seconds(entry.now)), quiet),
        "host": plain(host_words(entry, own_pid), quiet),
        "id": plain(safe(run.run_id, 40), Tone.DIM),
    }
    return tuple(cells[column.key] for column in columns)


def _score(run: RunRow, reward: float | None) -> Line:
    """The reward, or of fine-tuning the held-out loss, which must not be taken for one."""
    if run.recipe != "sft":
        return plain(number(reward), Tone.PLAIN)
    return (("loss ", Tone.DIM), (number(run.info.get("loss", {}).get("last")), Tone.PLAIN))


def _bills(entry: RunEntry) -> Line:
    if not entry.bills:
        return plain("–", Tone.DIM)
    # A run at work bills rightly; one that has ended should be looked at.
    return plain(coarse(entry.bills_for), Tone.PLAIN if entry.live else Tone.WARN)


def details(
    entry: RunEntry | None, own_pid: int, width: int, height: int = 12, *, acts: bool = True
) -> list[Line]:
    """The run under the cursor in a few lines, what needs a hand first. ``acts``: whether keys may change anything."""
    if entry is None:
        return []
    alarms = _alarms(entry, width, acts)
    facts = [*_facts(entry, own_pid), _money(entry, acts)]
    config = (("config ", Tone.DIM), (safe(_shortened(entry.run.config_path, width - 8), width), Tone.PLAIN))
    lines = [*alarms, *(line for line in facts if line), config]
    return lines[:height]


def _alarms(entry: RunEntry, width: int, acts: bool) -> list[Line]:
    """Why it ended, where that was no good end, and what it left."""
    run = entry.run
    lines: list[Line] = []
    early = ended_early(run)
    if run.error or run.state is RunState.INTERRUPTED or early:
        tone = RUN_STATES[run.state][2]
        text = safe(run.error or early or "its host died; what it had finished is kept", 600)
        pieces = list(wrap(text, max(20, width - 2)))
        for place, piece in enumerate(pieces[:2]):
            more = "…" if place == 1 and len(pieces) > 2 else ""
            lines.append((("! " if place == 0 else "  ", tone), (piece + more, tone)))
    if entry.left_behind or run.state is RunState.INTERRUPTED:
        lines.extend(_left(entry, width, acts))
    return lines


def _left(entry: RunEntry, width: int, acts: bool) -> list[Line]:
    """What a run left, and the keys for it: in one line where that has room."""

    def key(words: str) -> str:
        return f" ({words})" if acts else ""

    run, leases, checkpoint = entry.run, entry.leases, entry.checkpoint
    left: Span = ("! left ", Tone.BAD) if entry.left_behind else ("  left ", Tone.DIM)
    parts: list[Line] = []
    if leases.live:
        parts.append(plain(counted(leases.live, "sandbox") + key("c cleans up"), Tone.BAD))
    if leases.lost:
        parts.append(plain(f"{leases.lost} that could not be released" + key("c tries again"), Tone.BAD))
    if checkpoint is not None:
        again = run.step - checkpoint.step
        after = f" and {counted(again, 'step')} after it" if again > 0 else ""
        parts.append(((f"{safe(checkpoint.name, 40)}{after}", Tone.PLAIN), (key("r resumes"), Tone.DIM)))
    else:
        none = f"{counted(run.step, 'step')}, no checkpoint" + key("r trains it from the beginning")
        parts.append(plain(none, Tone.DIM))
    lines: list[Line] = []
    for part in parts:
        longer: Line = (*lines[-1], (" · ", Tone.FAINT), *part) if lines else ()
        if lines and width_of(longer) <= width:
            lines[-1] = longer
        else:
            lines.append((left if not lines else ("       ", Tone.PLAIN), *part))
    return lines


def _facts(entry: RunEntry, own_pid: int) -> list[Line]:
    run = entry.run
    gap: Span = ("   ", Tone.PLAIN)
    [(score, ends)] = score_value(run).items()
    # The course is the newest steps only: an early best would be missed, so first and last count too.
    known = [value for value in (*entry.rewards, run.reward_first, run.reward_last) if value is not None]
    best = max((value for value in known if math.isfinite(value)), default=None)
    who = [("host ", Tone.DIM), (host_words(entry, own_pid), Tone.PLAIN)] if entry.live else []
    if entry.live and entry.host is not None:
        who.append(
            (f" (pid {entry.host.pid}, heard of {ago(entry.now - entry.host.heartbeat_at)})", Tone.DIM)
        )
    size = f"{run.groups_per_step} × {run.group_size}" if run.group_size else ""
    return [
        (
            *run_state(run.state),
            (f"  {safe(run.phase, 40)}", Tone.DIM),
            gap,
            ("id ", Tone.DIM),
            (safe(run.run_id, 40), Tone.PLAIN),
        ),
        (
            (f"{safe(run.recipe, 12)} {safe(run.mode, 12)}".rstrip(), Tone.PLAIN),
            gap,
            ("model ", Tone.DIM),
            (safe(model_name(run.base_model), 40), Tone.PLAIN),
            (f" on {safe(run.scope, 20)} Loops", Tone.DIM),
            *((gap, (size, Tone.PLAIN), (" attempts a step", Tone.DIM)) if size else ()),
        ),
        (
            (f"{'held-out loss' if score == 'loss' else score} ", Tone.DIM),
            (f"{number(ends['first'])} → {number(ends['last'])}", Tone.PLAIN),
            *(((f"  best {number(best)}", Tone.DIM),) if best is not None and score == "reward" else ()),
            *(_unusable(run) if score == "reward" else ()),
            *((gap, ("sandboxes ", Tone.DIM), (str(entry.sandboxes), Tone.PLAIN)) if entry.sandboxes else ()),
        ),
        (
            ("started ", Tone.DIM),
            (ago(entry.now - run.created_at), Tone.PLAIN),
            *_saved(entry),  # where there is no room for all, the host is cut: its silence is told above
            *((gap, *who) if who else ()),
        ),
    ]


def _unusable(run: RunRow) -> Line:
    number_of = (str(run.unusable_groups), Tone.WARN if run.unusable_groups else Tone.PLAIN)
    return (("   unusable groups ", Tone.DIM), number_of)


def _saved(entry: RunEntry) -> Line:
    """The last checkpoint; of an interrupted run it is said with what it left."""
    if entry.checkpoint is None or entry.run.state is RunState.INTERRUPTED:
        return ()
    return (("   last checkpoint ", Tone.DIM), (safe(entry.checkpoint.name, 40), Tone.PLAIN))


def _money(entry: RunEntry, acts: bool) -> Line:
    """What still bills, and what is spent."""
    spent = spent_line(entry)
    if not entry.bills:
        return spent
    tone = Tone.PLAIN if entry.live else Tone.WARN
    spans: list[Span] = [(f"bills for {coarse(entry.bills_for)}", tone)]
    if not entry.live and acts:
        spans.append((" (5 deactivates)", Tone.DIM))
    return (*spans, ("   ", Tone.PLAIN), *spent) if spent else tuple(spans)


def _shortened(path: str, room: int) -> str:
    """A path whose end matters more than its beginning."""
    return path if len(path) <= room or room < 8 else "…" + path[-(room - 1) :]


EMPTY: Sequence[Line] = (
    plain("No runs yet in this project.", Tone.STRONG),
    (),
    (("2", Tone.ACCENT), (" shows the examples and this project's configs; ", Tone.DIM), ("ctrl+r", Tone.ACCENT),
     (" runs one.", Tone.DIM)),
    plain("Or start one from a shell in this directory:", Tone.DIM),
    (("  loops-tui run ", Tone.PLAIN), ("examples/in_process_direct/train.toml", Tone.ACCENT)),
    (),
    plain("It needs no account: the model ships with the package and trains on this", Tone.DIM),
    plain("machine. The run appears here as soon as it is created.", Tone.DIM),
)  # fmt: skip


def nothing_matches(needle: str) -> list[Line]:
    return [
        (("No run matches ", Tone.PLAIN), (f"“{safe(needle, 60)}”", Tone.ACCENT)),
        (),
        plain("esc clears the filter", Tone.DIM),
    ]
