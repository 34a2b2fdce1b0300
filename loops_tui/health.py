"""What is wrong with a run, in plain words: pure functions from rows to sentences.

A finding says what is the matter, the numbers it rests on, and what one does about it. Those about learning come from
:mod:`loops_tui.signals`; here are those about the run as such: its end, its host, its isolation, its bill.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.store.history_queries import still_bills
from engine.store.rows import HostRow, RunRow, RunState
from loops_tui.lease_words import coarse, left_words
from loops_tui.theme import Tone
from loops_tui.wording import elapsed

SILENT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know: ``text`` is the matter in one line, ``basis`` the numbers, ``remedy`` what to do."""

    tone: Tone
    text: str
    basis: str = ""
    remedy: str = ""
    lasting: bool = False  # it holds while the run lives: other findings must not push it out of view

    @property
    def line(self) -> str:
        """Matter and remedy in one line."""
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


def standing(run: RunRow, host: HostRow | None, now: float, *, sandboxes: int = 0) -> list[Finding]:
    """What is to be said about the run as such now (Unix seconds); ``sandboxes`` are those that may exist."""
    found = [*_no_isolation(run), *_ending(run)]
    if run.state.final and sandboxes:
        found.append(Finding(Tone.BAD, left_words(sandboxes)))
    found.extend(_still_bills(run, now))
    if not run.state.final and host is not None and now - host.heartbeat_at > SILENT_SECONDS:
        silent = elapsed(now - host.heartbeat_at)
        found.append(Finding(Tone.BAD, f"its host (pid {host.pid}) has been silent for {silent}"))
    near = run.spend.get("near")
    if near and not run.state.final:
        found.append(
            Finding(
                Tone.WARN,
                f"[budget] {near} is used to more than 80 %",
                remedy="at 100 % the run ends after its step, with a checkpoint",
            )
        )
    return found


def surroundings(run: RunRow) -> list[Finding]:
    """What is worth knowing about where a live run's sandboxes are; less pressing than anything else."""
    if run.state.final:
        return []
    found: list[Finding] = []
    if run.info.get("isolation") == "landlock":
        text = "landlock holds this run's sandboxes, bubblewrap would more: commands see this machine's processes"
        found.append(Finding(Tone.INFO, text))
    warnings = run.info.get("sandbox_warnings")
    if isinstance(warnings, list):
        found.extend(Finding(Tone.INFO, f"sandboxes: {warning}") for warning in warnings[:5])
    return found


def _no_isolation(run: RunRow) -> list[Finding]:
    if run.state.final or run.info.get("isolation") != "none":
        return []
    text = "nothing isolates this run's sandboxes: its commands run as you, on this machine"
    return [Finding(Tone.WARN, text, lasting=True)]


def _still_bills(run: RunRow, now: float) -> list[Finding]:
    """A Loops run that nobody deactivated goes on billing after the run."""
    if not run.state.final or run.loops_state is None or not still_bills(run):
        return []
    since = f" since {coarse(now - run.loops_since)}" if run.loops_since is not None else ""
    return [
        Finding(
            Tone.WARN,
            f"its Loops run {run.loops_run_id} is {run.loops_state} and bills{since}",
            remedy="deactivate it where nobody needs it",
        )
    ]


# What ends a run before its last step, as its host notes it, in words.
_ENDED_BY = {
    "[training] early_stop_after": "the validation loss fell no further",
    "[training] max_consecutive_unusable_groups": (
        "its last groups all earned the best reward, these tasks have nothing left to teach"
    ),
}


def ended_early(run: RunRow) -> str | None:
    """Why a run ended well before its steps were done; None where it did not, or nothing is noted."""
    key = run.info.get("ended_by")
    if not run.state.final or run.step >= run.max_steps or not isinstance(key, str) or not key:
        return None
    why = "its budget is used up" if key.startswith("[budget]") else _ENDED_BY.get(key)
    return (
        f"ended after step {run.step}: {why} ({key.removeprefix('[training] ')})"
        if why
        else f"ended after step {run.step} by {key}"
    )


def _ending(run: RunRow) -> list[Finding]:
    if run.state is RunState.FAILED:
        return [Finding(Tone.BAD, run.error or "the run failed and left no sentence; its log says more")]
    if run.state is RunState.INTERRUPTED:
        why = run.error or "its host is gone"
        return [Finding(Tone.BAD, f"interrupted: {why}; finished steps are kept")]
    found = [Finding(Tone.WARN, run.error)] if run.error else []
    early = ended_early(run)
    return [Finding(Tone.INFO, early), *found] if early else found
