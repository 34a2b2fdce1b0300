"""A conversation as lines: pure functions from a transcript's row to spans.

Three modes: ``text`` as one reads it, ``shaded`` with the policy's replies as tokens shaded by how likely each was,
``tokens`` with one token a line and its logprob.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from engine.store.rows import AttemptRow, TranscriptRow
from loops_tui.theme import Tone
from loops_tui.widgets.line_search import LineSearch
from loops_tui.widgets.safe_text import LINE_LIMIT, safe
from loops_tui.widgets.spans import Line, Span, plain, width_of
from loops_tui.widgets.wrapping import wrap, wrap_spans
from loops_tui.wording import count, number, reward_tone, signed, words

MODES = ("text", "shaded", "tokens")
TURN_LINES = 20_000  # of one entry; what is beyond is copied, not shown
OBJECT_LIMIT = 1_000_000  # characters: a longer text is shown as it is
LIKELY, UNLIKELY = -0.5, -2.5  # logprobs between the shades: about 60 % and 8 %
INDENT = "  "

ROLES = {
    "system": ("system", Tone.DIM),
    "user": ("user", Tone.INFO),
    "assistant": ("policy", Tone.GOOD),
    "tool": ("result", Tone.ACCENT),
}


@dataclass(slots=True)
class Layout:
    """Lines, and where each turn of the conversation begins among them (and where its end is told of)."""

    lines: list[Line] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    whole: bool = True
    search: LineSearch | None = None  # over the lines, of a long conversation


def lay_out(
    transcript: TranscriptRow, attempt: AttemptRow | None, width: int, mode: str, limit: int | None = None
) -> Layout:
    """The conversation at this width, or its first ``limit`` lines. Runs on the reading thread: a long one takes a
    moment."""
    layout = Layout()
    width = max(20, width)
    if mode == "shaded":
        layout.lines.append(_legend())
        layout.lines.append(())
    reply = 0
    segment: int | None = None
    for place, turn in enumerate(transcript.turns):
        sampled = _mapping(turn.get("sampled"))
        if sampled is not None:
            reply += 1
            this = sampled.get("segment")
            if isinstance(this, int) and segment is not None and this != segment:
                layout.lines.append(
                    _rule("new segment: the earlier tokens could not be continued", width, Tone.WARN)
                )
            segment = this if isinstance(this, int) else segment
        layout.starts.append(len(layout.lines))
        layout.lines.append(_heading(turn, place, reply, width, mode))
        room = TURN_LINES if limit is None else min(TURN_LINES, limit - len(layout.lines))
        body = _body(turn, sampled, width, mode)
        layout.lines.extend(islice(body, max(0, room)))
        if room == TURN_LINES and next(body, None) is not None:
            layout.lines.append(plain(f"{INDENT}({TURN_LINES:,} lines are shown; y copies all)", Tone.WARN))
        if limit is not None and len(layout.lines) >= limit:
            missing = len(transcript.turns) + 1 - len(layout.starts)
            layout.starts.extend([len(layout.lines)] * missing)
            layout.whole = False
            return layout
        layout.lines.append(())
    layout.starts.append(len(layout.lines))
    layout.lines.extend(_ending(transcript, attempt, width))
    return layout


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


def _legend() -> Line:
    return (
        ("tokens: ", Tone.DIM),
        ("likely", Tone.TOKEN),
        (f" (above {math.exp(LIKELY):.0%})  ", Tone.DIM),
        ("less likely", Tone.TOKEN_MID),
        ("  ", Tone.PLAIN),
        ("unlikely", Tone.TOKEN_LOW),
        (f" (below {math.exp(UNLIKELY):.0%}, underlined)", Tone.DIM),
    )


def _rule(title: str, width: int, tone: Tone, right: Line = ()) -> Line:
    head: list[Span] = [("── ", Tone.FAINT), (title, tone), (" ", Tone.PLAIN)]
    used = width_of(tuple(head)) + width_of(right) + (1 if right else 0)
    dashes = "─" * max(0, width - used)
    tail: list[Span] = [(dashes, Tone.FAINT)]
    if right:
        tail.extend(((" ", Tone.PLAIN), *right))
    return (*head, *tail)


def _heading(turn: Mapping[str, Any], place: int, reply: int, width: int, mode: str) -> Line:
    role = str(turn.get("role", "?"))
    name, tone = ROLES.get(role, (safe(role, 20), Tone.PLAIN))
    title = f"{place + 1} {name}"
    if role == "tool" and turn.get("name"):
        title += f" of {safe(str(turn['name']), 40)}"
    sampled = _mapping(turn.get("sampled"))
    if sampled is None:
        # Where tokens are shown it must be seen which text the policy did not write.
        return _rule(title, width, tone, plain("prompt, not sampled", Tone.DIM) if mode != "text" else ())
    facts = [f"reply {reply}"]
    if sampled.get("policy_version") is not None:
        facts.append(f"policy v{safe(str(sampled['policy_version']), 20)}")
    tokens = len(_items(sampled, "tokens"))
    facts.append(f"{count(tokens)} token{'' if tokens == 1 else 's'}")
    logprobs = _numbers(sampled)
    if logprobs:
        facts.append(f"mean logprob {number(sum(logprobs) / len(logprobs))}")
    notes: list[Span] = [(" · ".join(facts), Tone.DIM)]
    if sampled.get("truncated"):
        notes.append((" · cut off by the token limit", Tone.WARN))
    if sampled.get("discarded"):
        notes.append((" · discarded, not trained", Tone.WARN))
    stop = sampled.get("stop_reason")
    if stop and stop not in ("stop", "length", "eos"):
        notes.append((f" · {safe(str(stop), 30)}", Tone.DIM))
    return _rule(title, width, tone, tuple(notes))


def _items(sampled: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = sampled.get(name)
    return value if isinstance(value, list) else ()


def _numbers(sampled: Mapping[str, Any]) -> list[float]:
    return [float(value) for value in _items(sampled, "logprobs") if isinstance(value, int | float)]


def _body(
    turn: Mapping[str, Any], sampled: Mapping[str, Any] | None, width: int, mode: str
) -> Iterator[Line]:
    if sampled is not None and mode != "text":
        yield from (_shaded if mode == "shaded" else _token_table)(sampled, width)
        return
    reasoning = turn.get("reasoning")
    if isinstance(reasoning, str) and reasoning.strip():
        for line in _text(reasoning.strip("\n"), width - 4, Tone.DIM):
            yield ((INDENT, Tone.PLAIN), ("┊ ", Tone.FAINT), *line)
    content = turn.get("content")
    tone = Tone.DIM if turn.get("role") == "system" else Tone.PLAIN
    calls = turn.get("tool_calls")
    result = _object(content) if turn.get("role") == "tool" else None
    if result:
        # What a program printed is read as lines, not as a string of JSON with \\n in it; y copies the source.
        yield from _fields(result, width, INDENT)
    elif isinstance(content, str) and content:
        for line in _text(content, width - 2, tone):
            yield ((INDENT, Tone.PLAIN), *line)
    elif content is not None and not isinstance(content, str):
        for line in _text(json.dumps(content, ensure_ascii=False, indent=2), width - 2, tone):
            yield ((INDENT, Tone.PLAIN), *line)
    elif not calls:
        yield ((INDENT, Tone.PLAIN), ("(nothing)", Tone.DIM))
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping):
            yield from _call(call, width)


def _text(text: str, width: int, tone: Tone) -> Iterator[Line]:
    for source in text.removesuffix("\n").split("\n"):
        extra = len(source) - LINE_LIMIT
        for piece in wrap(safe(source[:-1] if source.endswith("\r") else source), width):
            yield ((piece, tone),)
        if extra > 0:
            characters = "character" if extra == 1 else "characters"
            yield ((f"({extra:,} more {characters} in this line; y copies all)", Tone.WARN),)


def _call(call: Mapping[str, Any], width: int) -> Iterator[Line]:
    yield (
        (INDENT, Tone.PLAIN),
        ("→ ", Tone.ACCENT),
        (safe(str(call.get("name") or "?"), 80), Tone.STRONG),
    )
    arguments = call.get("arguments")
    parsed = _object(arguments)
    if parsed:
        yield from _fields(parsed, width, INDENT * 2)
    else:
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        for line in _text(written, width - 6, Tone.PLAIN):
            yield ((INDENT * 2, Tone.PLAIN), *line)
    problem = call.get("problem")
    if problem:
        for line in _text(f"not run: {problem}", width - 4, Tone.BAD):
            yield ((INDENT * 2, Tone.PLAIN), *line)


def _object(text: object) -> Mapping[str, Any] | None:
    """The JSON object that a text is, or None."""
    if not isinstance(text, str) or len(text) > OBJECT_LIMIT or not text.lstrip().startswith("{"):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _fields(values: Mapping[str, Any], width: int, indent: str) -> Iterator[Line]:
    """An object's values under their names, texts as the lines that they hold."""
    for key, value in values.items():
        name = safe(str(key), 40)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        failed = key == "exit_code" and value not in (0, None)
        tone = Tone.WARN if failed else Tone.PLAIN
        for place, line in enumerate(_text(text, max(20, width - len(indent) - len(name) - 4), tone)):
            label = f"{name}: " if place == 0 else " " * (len(name) + 2)
            yield ((indent, Tone.PLAIN), (label, Tone.DIM), *line)


def _tokens(sampled: Mapping[str, Any]) -> Iterator[tuple[int, str, float | None]]:
    ids, texts, logprobs = (_items(sampled, name) for name in ("tokens", "texts", "logprobs"))
    for place, token in enumerate(ids):
        text = (
            texts[place]
            if place < len(texts) and isinstance(texts[place], str)
            else f"<{safe(str(token), 12)}>"
        )
        value = logprobs[place] if place < len(logprobs) else None
        yield token, text, float(value) if isinstance(value, int | float) else None


def _token_tone(logprob: float | None) -> Tone:
    if logprob is None or not math.isfinite(logprob):
        return Tone.DIM
    return Tone.TOKEN if logprob > LIKELY else Tone.TOKEN_MID if logprob > UNLIKELY else Tone.TOKEN_LOW


def _shaded(sampled: Mapping[str, Any], width: int) -> Iterator[Line]:
    spans: list[Span] = []
    for _, text, logprob in _tokens(sampled):
        tone = _token_tone(logprob)
        *whole, rest = text.split("\n")
        for piece in whole:
            spans.extend(((safe(piece) if piece else "", tone), ("⏎", Tone.FAINT)))
            yield from _indented(wrap_spans(spans, width - 2))
            spans = []
        if rest:
            spans.append((safe(rest), tone))
    yield from _indented(wrap_spans(spans, width - 2))


def _indented(lines: Iterator[Line]) -> Iterator[Line]:
    for line in lines:
        yield ((INDENT, Tone.PLAIN), *line)


def _token_table(sampled: Mapping[str, Any], width: int) -> Iterator[Line]:
    version = sampled.get("policy_version")
    shown = "" if version is None else f"v{safe(str(version), 20)}"
    room = max(8, min(32, width - 44))
    yield ((f"{INDENT}{'#':>5}  {'token':<{room}}  {'id':>6}  {'logprob':>8}  {'p':>5}  policy", Tone.DIM),)
    for place, (token, text, logprob) in enumerate(_tokens(sampled)):
        quoted = safe(text.replace("\n", "⏎").replace(" ", "·"), room)
        gap = " " * max(0, room - width_of(plain(quoted)))
        value = "–" if logprob is None else f"{logprob:8.4f}"
        chance = "–" if logprob is None else f"{math.exp(min(0.0, logprob)):5.0%}"
        yield (
            (f"{INDENT}{place:>5}  ", Tone.DIM),
            (quoted, _token_tone(logprob)),
            (f"{gap}  {safe(str(token), 12):>6}", Tone.DIM),
            (f"  {value:>8}  {chance:>5}", Tone.PLAIN),
            (f"  {shown}", Tone.DIM),
        )


def _ending(transcript: TranscriptRow, attempt: AttemptRow | None, width: int) -> Iterator[Line]:
    reward = attempt.reward if attempt is not None else transcript.reward
    ending = (attempt.ending if attempt is not None else None) or transcript.ending
    live = attempt is not None and attempt.ended_at is None and reward is None
    if live and attempt is not None:
        yield _rule(f"under way: {attempt.state}", width, Tone.INFO)
        return
    yield _rule("ended", width, Tone.STRONG)
    facts: list[Span] = [
        (INDENT, Tone.PLAIN),
        ("reward ", Tone.DIM),
        (number(reward), Tone.STRONG),
    ]
    if attempt is not None and attempt.advantage is not None:
        facts.extend(
            (("   advantage ", Tone.DIM), (signed(attempt.advantage), reward_tone(attempt.advantage)))
        )
    if ending:
        facts.extend((("   because ", Tone.DIM), (safe(words(ending), 120), Tone.PLAIN)))
    yield tuple(facts)
    if attempt is not None and attempt.timed_out:
        yield plain(f"{INDENT}its deadline passed; it was graded as it stood", Tone.WARN)
    if attempt is not None and attempt.error:
        for line in _text(attempt.error, width - 2, Tone.BAD):
            yield ((INDENT, Tone.PLAIN), *line)
    for name, value in transcript.metadata.items():
        yield (
            (f"{INDENT}{safe(words(str(name)), 40)} ", Tone.DIM),
            (safe(str(value), max(10, width - 20)), Tone.PLAIN),
        )
