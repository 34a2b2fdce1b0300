"""``try``: talk to weights line by line, or let them attempt one task."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.output import DONE, FAILED, Output, UsageError
from loops_tui.widgets.safe_text import safe, safe_lines

if TYPE_CHECKING:
    from engine.hosting.trying import Said, Trial, TrialAttempt, TrialSampling, WeightsAsked

BASE = "base"
_PROMPT = "> "


def try_weights(
    target: str | None,
    base: str | None,
    task: int | None,
    out: Output,
    *,
    held_out: bool,
    system: str | None,
    sampling: TrialSampling,
) -> int:
    """Open the weights, do what was asked for, and release them."""
    asked = weights_meant(target, base)
    if held_out and task is None:
        raise UsageError("--held-out goes with --task N")
    if task is None:
        return asyncio.run(_talk(asked, out, system, sampling))
    return asyncio.run(_attempt(asked, out, task, held_out, sampling))


def weights_meant(target: str | None, base: str | None) -> WeightsAsked:
    """``RUN`` (its last checkpoint), ``RUN@CHECKPOINT``, ``RUN@base``, or the base model of a config."""
    from engine.hosting.trying import WeightsAsked

    if (target is None) == (base is None):
        raise UsageError("say whose weights: RUN, RUN@CHECKPOINT, RUN@base, or --base CONFIG")
    if target is None:
        return WeightsAsked(config=base)
    run, at, checkpoint = target.rpartition("@")
    if not at:
        return WeightsAsked(run=target, checkpoint="last")
    return WeightsAsked(run=run, checkpoint=None if checkpoint == BASE else checkpoint or "last")


# -- talking -------------------------------------------------------------------------------------------------------


async def _talk(asked: WeightsAsked, out: Output, system: str | None, sampling: TrialSampling) -> int:
    """One message a line; an empty reply is shown as one. Ends with the input, or on ctrl+c."""
    from engine.hosting.trying import open_trial

    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    async with open_trial(Path.cwd(), asked, sampling=sampling, system=system, told=out.note) as trial:
        out.note(f"You talk to {trial.name}." + (" /new begins anew, ctrl+d ends." if terminal else ""))
        await _lines(trial, out, terminal)
        out.value({"weights": trial.name, "turns": [_turn(turn) for turn in trial.turns]})
    return DONE


async def _lines(trial: Trial, out: Output, terminal: bool) -> None:
    lines = _StandardInput()
    while True:
        if terminal:
            print(_PROMPT, end="", file=sys.stderr, flush=True)
        line = await lines.next()
        if line is None:
            return
        text = line.rstrip("\n")
        if terminal and text.strip() == "/new":
            trial.forget()
            continue
        if text.strip():
            said = await trial.say(text)
            for shown in [*(safe_lines(said.text) if said.text else ()), *_calls(said.tool_calls)] or [
                "(nothing)"
            ]:
                out.line(shown)
            if terminal:
                out.note(_about(said))


def _about(said: Said) -> str:
    cut = ", cut off" if said.truncated else ""
    return f"  [{said.tokens} tokens after {said.prompt_tokens}{cut}]"


class _StandardInput:
    """Lines of standard input for a loop. A read cannot be cancelled, so a thread that nobody waits for does it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    def _read(self) -> None:
        try:
            for line in sys.stdin:
                # What is no UTF-8 comes as halves of surrogates, which no tokenizer takes.
                readable = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                self._loop.call_soon_threadsafe(self._lines.put_nowait, readable)
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)
        except (RuntimeError, ValueError):
            return  # the loop or the stream is closed: the command is over

    async def next(self) -> str | None:
        """The next line, or None at the end."""
        return await self._lines.get()


# -- attempting ----------------------------------------------------------------------------------------------------


async def _attempt(
    asked: WeightsAsked, out: Output, task: int, held_out: bool, sampling: TrialSampling
) -> int:
    from engine.hosting.trying import open_trial

    async with open_trial(
        Path.cwd(), asked, sampling=sampling, with_sandboxes=True, task=(task, held_out), told=out.note
    ) as trial:
        out.note(f"{trial.name} attempts task {task} …")
        done = await trial.attempt(
            task,
            held_out=held_out,
            changed=lambda state: out.note(f"  {state}"),
            log=lambda level, text: out.note(f"{level}: {text}"),
        )
    out.value({"weights": trial.name, **_value(done)})
    if not out.as_json:
        for line in transcript_lines(done.turns):
            out.line(line)
    reward = "none" if done.reward is None else f"{done.reward:g}"
    out.line(f"Task {done.task_id}: reward {reward}, {done.state}, {done.ending}, {done.seconds:.1f} s")
    if done.error is not None:
        out.error(done.error)
    return DONE if done.reward is not None else FAILED


def _value(done: TrialAttempt) -> dict[str, Any]:
    return {**asdict(done), "turns": [_turn(turn) for turn in done.turns]}


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn without its tokens: what people read."""
    return {key: value for key, value in turn.items() if key != "sampled"}


def transcript_lines(turns: list[dict[str, Any]]) -> list[str]:
    """A conversation in plain lines, safe for a terminal."""
    lines: list[str] = []
    for turn in turns:
        lines.append(f"[{safe(str(turn.get('role', '?')), 40)}]")
        for text in (turn.get("reasoning"), turn.get("content")):
            if text:
                lines += [f"  {line}" for line in safe_lines(str(text))]
        lines += _calls(turn.get("tool_calls") or ())
    return lines


def _calls(calls: Iterable[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for call in calls:
        name, arguments = str(call.get("name") or "(no name)"), str(call.get("arguments"))
        lines.append(f"  -> {safe(name, 80)} {safe(arguments, 400)}")
        if call.get("problem"):
            lines.append(f"     malformed: {safe(str(call['problem']), 200)}")
    return lines
