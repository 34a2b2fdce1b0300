"""Code of an episode that swallows every cancellation: its attempt ends all the same, and it harms nothing later."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from engine.episodes import Episode, Grading, GroupAttempt, Sampling, Setup, user_code
from engine.recipes.rl.comparing import compare
from engine.store.rows import AttemptState
from tests.recipes.test_attempts import Base, attempt

LEFT: ContextVar[str] = ContextVar("LEFT")


class Deaf:
    """``listen`` returns only once it may, however often it is cancelled."""

    def __init__(self) -> None:
        self.may_end, self.begun, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def listen(self) -> None:
        self.begun.set()
        while not self.may_end.is_set():
            with suppress(BaseException):
                await self.may_end.wait()
        self.ended.set()


class Counted:
    """Sandboxes: which were made, and which released."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.released: list[Any] = []

    async def acquire(self, seconds: float) -> Any:
        self.made.append(SimpleNamespace(sandbox=None))
        return self.made[-1]

    async def release(self, leased: Any) -> None:
        self.released.append(leased)


@pytest.fixture
async def deaf(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deaf]:
    monkeypatch.setattr(user_code, "LET_GO_SECONDS", 0.01)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    deaf = Deaf()
    yield deaf
    assert deaf.begun.is_set()
    assert not deaf.ended.is_set()  # it went on all the time
    deaf.may_end.set()
    await asyncio.wait_for(deaf.ended.wait(), 120)
    await asyncio.sleep(0)
    assert complaints == []


async def test_an_agent_that_never_lets_go_is_graded_by_what_it_has_said(deaf: Deaf) -> None:
    class Stuck(Base):
        async def run(self, sample: Sampling) -> None:
            await super().run(sample)
            await deaf.listen()
            raise RuntimeError("long after")

    boxes = Counted()
    result, states, said = await asyncio.wait_for(attempt(Stuck, agent=0.01, sandboxes=boxes), 120)
    assert (result.state, result.reward, result.ending) == (AttemptState.DONE, 1.0, "timed_out")
    assert states[-1] is AttemptState.GRADING
    assert boxes.released == boxes.made
    assert result.trace.closed
    assert len(said) == 1
    assert "warning run() did not let go although it was cancelled 3 times" in said[0]


async def test_a_setup_that_never_lets_go_loses_its_attempt(deaf: Deaf) -> None:
    class Stuck(Base):
        async def setup(self, setup: Setup) -> None:
            await deaf.listen()

    boxes = Counted()
    result, _, said = await asyncio.wait_for(attempt(Stuck, setup=0.01, sandboxes=boxes), 120)
    assert (result.state, result.error) == (AttemptState.LOST, "setup() took longer than 0.01 s")
    assert boxes.released == boxes.made
    assert "setup() did not let go" in said[0]


async def test_a_grader_that_never_lets_go_loses_its_sandboxes(deaf: Deaf) -> None:
    class Stuck(Base):
        async def grade(self, grading: Grading) -> float:
            async with grading.fresh_sandbox():
                await deaf.listen()
            return 1.0

    boxes = Counted()
    result, _, said = await asyncio.wait_for(attempt(Stuck, grading=0.01, sandboxes=boxes), 120)
    assert (result.state, result.error) == (AttemptState.LOST, "grade() took longer than 0.01 s")
    assert len(boxes.made) == 2
    assert boxes.released == boxes.made[::-1]
    assert "grade() did not let go" in said[0]


async def test_a_grader_that_never_lets_go_is_not_called_again_beside_itself(deaf: Deaf) -> None:
    calls: list[Episode[Any, Any]] = []

    class Stuck(Base):
        grading_retries = 2

        async def grade(self, grading: Grading) -> float:
            calls.append(self)
            if len(calls) == 1:
                raise OSError("judge away")
            await deaf.listen()
            return 1.0

    result, _, said = await asyncio.wait_for(attempt(Stuck, grading=0.01), 120)
    assert result.state is AttemptState.LOST
    assert (
        result.error
        == "grade() took longer than 0.01 s; it has not let go, so it is not called again beside that"
    )
    assert len(calls) == 2
    assert [text.split(":")[0] for text in said] == [
        "warning grading failed (call 1 of 3)",
        "warning grade() did not let go although it was cancelled 3 times in 0.03 s",
        "warning grading failed (call 2 of 3)",
    ]


async def test_a_comparison_that_never_lets_go_loses_its_group(deaf: Deaf) -> None:
    class Stuck(Base):
        @classmethod
        async def grade_group(cls, attempts: Sequence[GroupAttempt]) -> list[float]:
            await deaf.listen()
            return [1.0]

    result, _, _ = await attempt(Stuck)
    said: list[str] = []
    problem = await asyncio.wait_for(compare([result], 0.01, lambda _, text: said.append(text)), 120)
    assert (problem, result.state) == ("grade_group() took longer than 0.01 s", AttemptState.LOST)
    assert "grade_group() did not let go" in said[0]


async def test_a_run_that_ends_does_not_wait_for_it(deaf: Deaf) -> None:
    class Stuck(Base):
        async def run(self, sample: Sampling) -> None:
            await deaf.listen()

    boxes = Counted()
    task = asyncio.create_task(attempt(Stuck, sandboxes=boxes))
    await deaf.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 120)
    assert boxes.released == boxes.made
    assert not any("Stuck" in repr(each) or "run()" in each.get_name() for each in asyncio.all_tasks())


async def test_cancelling_gets_through_code_that_makes_something_else_of_it() -> None:
    begun = asyncio.Event()

    class Polite(Base):
        async def run(self, sample: Sampling) -> dict[str, Any]:
            await super().run(sample)
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return {"interrupted": True}
            return {}

    task = asyncio.create_task(attempt(Polite))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 120)


async def test_what_setup_leaves_in_its_context_is_there_in_run() -> None:
    class Contextual(Base):
        async def setup(self, setup: Setup) -> None:
            LEFT.set("by setup")

        async def run(self, sample: Sampling) -> dict[str, Any]:
            await super().run(sample)
            return {"left": LEFT.get()}

    result, _, _ = await attempt(Contextual)
    assert result.metadata == {"left": "by setup"}


async def test_what_setup_opens_may_be_closed_by_grade() -> None:
    """As with anyio's task groups, on which MCP clients stand: they must be left in the task that entered them."""
    served: list[str] = []

    class Connected(Base):
        async def setup(self, setup: Setup) -> None:
            self.group = await anyio.create_task_group().__aenter__()
            self.group.start_soon(self.serve)

        async def serve(self) -> None:
            served.append("begun")
            await anyio.sleep_forever()

        async def grade(self, grading: Grading) -> float:
            self.group.cancel_scope.cancel()
            await self.group.__aexit__(None, None, None)
            served.append("ended")
            return 1.0

    result, _, said = await attempt(Connected)
    assert (result.state, result.reward, said) == (AttemptState.DONE, 1.0, [])
    assert served == ["begun", "ended"]


async def test_the_next_call_runs_after_one_was_cut_before_or_while_it_ran() -> None:
    async def sleeping() -> None:
        await asyncio.sleep(3600)

    async def answering() -> str:
        return "here"

    with user_code.OneTask(lambda *said: None) as code:
        for seconds in (0, 0.01, 0, 0.01):
            cut = user_code.within(code, sleeping, asyncio.timeout(seconds), "run()")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cut, 120)
            assert await user_code.within(code, answering, asyncio.timeout(60), "grade()") == "here"
        code.close()
        await asyncio.sleep(0)
        assert await user_code.within(code, answering, asyncio.timeout(60), "grade()") == "here"


PROGRAM = """
import asyncio
from engine.episodes import user_code

user_code.LET_GO_SECONDS = 0.01

async def deaf():
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass

async def main():
    for call in (deaf, lambda: asyncio.gather(deaf(), deaf())):
        try:
            with user_code.OneTask(lambda *said: None) as code:
                await user_code.within(code, call, asyncio.timeout(0.01), "run()")
        except TimeoutError:
            print("left behind")

asyncio.run(main())
print("ended")
"""


def test_a_process_ends_although_such_code_goes_on() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("left behind\nleft behind\nended\n", "", 0)
