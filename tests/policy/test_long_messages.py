"""Long texts are tokenized beside the event loop, and give the same tokens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from engine.policy.conversation import LONG
from engine.policy.rendering import PolicyRenderer

TEXT = "alpha order count " * (LONG // 18 + 1)


class Watched:
    """The renderer, and on which thread each prompt was made; it may be held up."""

    def __init__(self, renderer: PolicyRenderer) -> None:
        self._renderer = renderer
        self.threads: list[threading.Thread] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._renderer, name)

    def open(self, *arguments: Any) -> list[int]:
        self._rendering()
        return self._renderer.open(*arguments)

    def extend(self, *arguments: Any) -> list[int] | None:
        self._rendering()
        return self._renderer.extend(*arguments)

    def _rendering(self) -> None:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.go_on.wait(120)


@pytest.fixture
def talk(scripted, renderer: PolicyRenderer):
    def make(*replies: str):
        model, trace, sampler = scripted(*replies, max_seq_len=100_000)
        watched = model._renderer = Watched(renderer)
        return model.conversation(), trace, sampler, watched

    return make


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def say(conversation: Any, texts: Sequence[str]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for text in texts:
        messages.append(user(text))
        messages.append((await conversation.generate(messages=messages)).native_message)
    return messages


async def test_only_long_new_texts_leave_the_event_loop(talk, renderer: PolicyRenderer) -> None:
    conversation, trace, sampler, watched = talk(*["Yes.<|im_end|>"] * 3)
    await say(conversation, [TEXT, "And now?", TEXT])
    here = threading.current_thread()
    assert [thread is here for thread in watched.threads] == [False, True, False]
    assert sampler.prompts[0] == renderer.open([user(TEXT)], None)
    (segment,) = trace.segments
    assert segment.tokens[: segment.spans[-1].start].tolist() == sampler.prompts[-1]


async def test_the_loop_runs_while_a_long_text_is_rendered(talk) -> None:
    conversation, _, sampler, watched = talk("Yes.<|im_end|>")
    watched.go_on.clear()
    asking = asyncio.create_task(conversation.generate(messages=[user(TEXT)]))
    assert await asyncio.to_thread(watched.begun.wait, 30)  # the loop is free to wait for it
    assert not sampler.prompts
    watched.go_on.set()
    assert (await asyncio.wait_for(asking, 120)).content == "Yes."


async def test_a_call_cancelled_while_its_text_is_rendered_leaves_the_conversation_as_it_was(talk) -> None:
    conversation, trace, sampler, watched = talk("Yes.<|im_end|>")
    watched.go_on.clear()
    asking = asyncio.create_task(conversation.generate(messages=[user(TEXT)]))
    assert await asyncio.to_thread(watched.begun.wait, 30)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    watched.go_on.set()
    assert (trace.segments, trace.turns, sampler.prompts) == ([], [], [])
    await say(conversation, [TEXT])
    assert len(trace.segments) == 1
