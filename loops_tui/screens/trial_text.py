"""What the dialog that tries weights says and asks: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loops_tui.theme import Tone
from loops_tui.widgets.form import whole_number
from loops_tui.widgets.safe_text import safe, safe_lines
from loops_tui.widgets.spans import Line, plain
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import duration, number

if TYPE_CHECKING:
    from engine.hosting.trying import Said, TrialAttempt, TrialSampling

SHOWN_LINES = 400  # of one reply
TONES = {
    "you": Tone.ACCENT,
    "user": Tone.ACCENT,
    "model": Tone.GOOD,
    "assistant": Tone.GOOD,
    "thinking": Tone.DIM,
}


def _between(low: float, high: float) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        if not text.strip():
            return None
        try:
            value = float(text)
        except ValueError:
            return "must be a number"
        return None if low <= value <= high else f"must be from {low:g} to {high:g}"

    return check


def _tokens(text: str) -> str | None:
    return whole_number(text) if text.strip() else None


def _seed(text: str) -> str | None:
    return whole_number(text, above=-1) if text.strip() else None


SAMPLING_FIELDS = (
    ("temperature", "Temperature: 0 always takes the likeliest token", _between(0.0, 10.0)),
    ("top_p", "top_p", _between(0.0, 1.0)),
    ("max_tokens", "Most tokens of a reply", _tokens),
    ("seed", "Seed: empty for other replies each time", _seed),
)


def sampling_of(values: dict[str, str]) -> TrialSampling:
    """What the fields say; an empty one is as the config says."""
    from engine.hosting.trying import TrialSampling

    def as_number(name: str) -> float | None:
        text = values.get(name, "").strip()
        return float(text) if text else None

    def as_whole(name: str) -> int | None:
        text = values.get(name, "").strip()
        return int(text) if text else None

    return TrialSampling(
        temperature=as_number("temperature"),
        top_p=as_number("top_p"),
        max_tokens=as_whole("max_tokens"),
        seed=as_whole("seed"),
    )


def sampling_words(values: dict[str, str]) -> str:
    """The settings that differ from the config's, in a line."""
    told = [
        f"{name} {safe(values[name], 12)}" for name, _, _ in SAMPLING_FIELDS if values.get(name, "").strip()
    ]
    return ", ".join(told) if told else "sampled as the config says"


def reply_lines(who: str, text: str, width: int) -> list[Line]:
    """Something that was said, under the name of who said it."""
    tone = Tone.DIM if who == "thinking" else Tone.PLAIN
    lines: list[Line] = [plain(safe(who, 40), TONES.get(who, Tone.TITLE))]
    for line in safe_lines(text):
        lines.extend(plain(f"  {piece}", tone) for piece in wrap(line, max(10, width - 2)))
        if len(lines) > SHOWN_LINES:
            return [*lines[:SHOWN_LINES], plain("  … and more", Tone.DIM)]
    return lines


def call_lines(calls: Sequence[Mapping[str, Any]], width: int) -> list[Line]:
    """Tool calls, those of a transcript's turn."""
    lines: list[Line] = []
    for call in calls:
        told = f"→ {call.get('name') or '(no name)'} {call.get('arguments')}"
        lines.extend(plain(f"  {piece}", Tone.INFO) for piece in wrap(safe(told, 400), max(10, width - 2)))
        if call.get("problem"):
            told = safe(f"malformed: {call['problem']}", 200)
            lines.extend(plain(f"  {piece}", Tone.WARN) for piece in wrap(told, max(10, width - 2)))
    return lines


def about_reply(said: Said) -> str:
    cut = ", cut off at the most tokens" if said.truncated else ""
    return f"  {said.tokens} tokens after {said.prompt_tokens}{cut}"


def attempt_lines(done: TrialAttempt, width: int) -> list[Line]:
    """An attempt's turns, then how it was graded."""
    lines: list[Line] = []
    for turn in done.turns:
        who = str(turn.get("role", "?"))
        if turn.get("reasoning"):
            lines.extend(reply_lines("thinking", str(turn["reasoning"]), width))
        content = str(turn.get("content") or "")
        said = reply_lines(who, content, width)
        lines.extend(said if content else said[:1])  # a turn of calls alone says nothing
        lines.extend(call_lines(turn.get("tool_calls") or (), width))
    if done.error is not None:
        lines.extend(plain(piece, Tone.BAD) for piece in wrap(safe(done.error, 600), width))
    reward = "none" if done.reward is None else number(done.reward)
    lines.append((
        (f"task {safe(done.task_id, 60)}  ", Tone.STRONG),
        (f"reward {reward}", Tone.GOOD if done.reward else Tone.WARN),
        (f"  {safe(done.ending or done.state, 60)}, {duration(done.seconds)}", Tone.DIM),
    ))  # fmt: skip
    return lines
