"""What a model call costs in the engine, against a bare loop that makes the same calls on the unmodified SDK.

    uv run python -m tests.bench.engine_cost [--attempts 32] [--turns 12] [--rounds 7] [--json]

These take turns in one process, all against a server that answers at once with canned tokens (a tool call each):

* ``engine``: schedule, episode, conversation, session and store, as a run has them, until the rows and the run directory are on the disk;
* ``bare``: ``sample_async`` of one SDK client, on token lists that were made before: exactly the engine's own prompts;
* ``rendering``: the same, and ``renderers`` for what any loop has to do: extend the prompt, parse the reply;
* ``bare_spread``, ``rendering_spread``: the same with the calls spread over several clients, as the engine does it (see
  ``engine.loops.serving``: a client's own cost grows with the calls under way).

An attempt is a conversation with a tool: a prompt of some hundred tokens, ``--turns`` calls, each adding a reply and a
result, up to about four thousand tokens. Milliseconds are per call: ``wall`` on the clock, ``cpu`` of all this
process's threads, which a busy machine changes less. A real sampler takes hundreds of milliseconds for a reply; here
it takes none, so that the client's work is all there is. Bound: engine / bare at most 1.3, of both; ratios are medians
over rounds. Of the spread ones the ratio says what the engine adds once that saving is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.episodes import Task
from engine.loops.sampling import SamplingSettings
from engine.loops.sdk import ready_sdk
from engine.loops.serving import CALLS_AT_ONCE
from engine.loops.session import LoopsSession, SessionSettings
from engine.policy.rendering import PolicyRenderer
from engine.policy.tokens import Completion, Sampler
from engine.project import Project, load
from engine.recipes.contract import LoopsEndpoint, RunHandle
from engine.recipes.control import RunControl
from engine.recipes.rl.order import TaskOrder
from engine.recipes.rl.parts import deadlines_of, renderer_of
from engine.recipes.rl.report import Reporter
from engine.recipes.rl.rollout import Rollout
from engine.recipes.rl.run import schedule_settings
from engine.recipes.rl.schedule import Schedule
from engine.recipes.spending import SpendMeter
from engine.store.rows import RunRow, RunState
from engine.store.store import Store
from tests.bench.canned_sampler import CannedSampler
from tests.faults.result import tell

BOUND = 1.3
GROUP = 8
MAX_TOKENS = 512

EPISODE = """
import asyncio, json, random
from pydantic import BaseModel
from engine.episodes import Episode, Grading, Sampling
from tests.faults.result import tell

SYSTEM = "You work in a directory of files. Use the tools, then answer briefly. " * 6
RESULT = "\\n".join(f"{number},customer {number},paid,{number * 7}" for number in range(14))
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": PARAMETERS}}
    for name in ("shell", "search", "write_file")
]

class Line(BaseModel):
    name: str
    instruction: str

class Options(BaseModel):
    turns: int
    pauses: bool  # as long as real tools take

class Agent(Episode[Line, Options]):
    async def run(self, sample: Sampling) -> dict[str, object]:
        conversation = sample.model.conversation()
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": self.task.value.instruction},
        ]
        for turn in range(self.options.turns):
            reply = await conversation.generate(messages=messages, tools=TOOLS)
            messages.append(reply.native_message)
            if self.options.pauses:
                await asyncio.sleep(random.lognormvariate(-1.9, 1.0))
            for call in reply.tool_calls:
                result = {"exit_code": 0, "output": f"{call.parse()['command']}: {turn}\\n{RESULT}"}
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": json.dumps(result)}
                )
        return {"termination_reason": "max_turns", "turns": self.options.turns}

    async def grade(self, grading: Grading) -> float:
        return float(grading.attempt % 2)
"""
CONFIG = """
recipe = "rl"
[runtime.config]
tasks = "tasks.jsonl"
episode = "agent_episode:Agent"
options = {{ turns = {turns}, pauses = {pauses} }}
[model]
base_model = "loops-demo-1m"
max_seq_len = 16384
renderer_chat_template_kwargs = {{ enable_thinking = false }}
[training]
group_size = {group}
groups_per_step = {groups}
max_steps = 1000
max_concurrent_rollouts = {attempts}
[sampling]
max_tokens = 512
[compute]
scope = "local"
"""
CALL = """I look at the orders first, then I count those that are paid and write the number into the file.
<tool_call>
{{"name": "shell", "arguments": {{"command": "grep -n {word} orders.csv | sort -t, -k4 -n | head -{number} > out.txt"}}}}
</tool_call><|im_end|>"""


def write_project(directory: Path, attempts: int, turns: int, pauses: bool = False) -> Path:
    """The config of an agent that makes ``turns`` calls in each of ``attempts`` attempts a step."""
    (directory / "agent_episode.py").write_text(EPISODE)
    config = directory / "train.toml"
    config.write_text(
        CONFIG.format(
            turns=turns,
            pauses=str(pauses).lower(),
            group=GROUP,
            groups=attempts // GROUP,
            attempts=attempts,
        )
    )
    lines = [
        json.dumps({"name": f"t{n}", "instruction": f"Count the paid orders of customer {n} in orders.csv."})
        for n in range(5)
    ]
    (directory / "tasks.jsonl").write_text("\n".join(lines) + "\n")
    return config


def canned_replies(renderer: PolicyRenderer) -> list[list[int]]:
    """Token lists of a few replies, each with a tool call."""
    texts = [CALL.format(word=word, number=number) for number, word in enumerate(("paid", "open", "late"))]
    return [list(renderer.tokenizer.encode(text, add_special_tokens=False)) for text in texts]


class Recording:
    """A sampler that keeps what it was asked, by attempt."""

    def __init__(self, session: LoopsSession) -> None:
        self._session = session
        self.prompts: dict[int, list[list[int]]] = {}

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        task = asyncio.current_task()
        self.prompts.setdefault(id(task), []).append(list(prompt))
        return await self._session.sample(prompt, max_tokens=max_tokens, seed=seed, affinity_key=affinity_key)


@dataclass
class Engine:
    """A run's parts as the RL recipe puts them together, but for the trainer."""

    project: Project
    renderer: PolicyRenderer
    session: LoopsSession
    store: Store
    sampler: Sampler = field(init=False)
    runs: int = 0
    calls: int = 0  # of the last step

    def __post_init__(self) -> None:
        self.sampler = self.session

    async def step(self) -> None:
        """Collect one step's groups in a run of its own, with its rows and its directory on the disk at the end."""
        self.runs += 1
        settings, directory = self.project.rl, self.store.project_dir
        run_id = f"20260101-000000-{self.runs:04d}"
        self.store.create_run(
            RunRow(
                run_id=run_id,
                name="bench",
                recipe="rl",
                state=RunState.RUNNING,
                created_at=time.time(),
                config_path=str(self.project.path),
                config_toml="",
                run_dir=str(directory / "runs" / run_id),
                base_model="loops-demo-1m",
                max_steps=1,
            )
        )
        recorder = self.store.recorder(run_id)
        control = RunControl()
        handle = RunHandle(run_id, recorder, control, LoopsEndpoint("local", self.session.url, None))
        reporter = Reporter(handle, "full")
        meter = SpendMeter(settings.budget, settings.prices)
        episode = self.project.episode()
        attempts = Rollout(
            handle=handle,
            settings=settings,
            reporter=reporter,
            sampler=meter.metered(self.sampler),
            renderer=self.renderer,
            episode=episode.cls,
            options=episode.options,
            deadlines=deadlines_of(self.project),
            sandboxes=None,
        )
        tasks: list[Task[Any]] = [Task(task.value, task.id, task.index) for task in self.project.tasks()]
        schedule = Schedule(
            tasks=tasks,
            order=TaskOrder(len(tasks), 0, False),
            settings=schedule_settings(settings, episode.cls),
            control=control,
            hold=control.wait_if_paused,
            attempt=attempts.attempt,
            compare=attempts.compare,
            started=reporter.group_started,
            sampling=reporter.group_sampling,
            ended=reporter.group_judged,
        )
        try:
            collected = await schedule.collect()
            for group in collected.usable:
                reporter.group_trained(group, 1)
            self.calls = sum(result.trace.replies for group in collected.usable for result in group.graded)
            await asyncio.to_thread(recorder.close)
        finally:
            await schedule.close()


type Prompts = list[list[list[int]]]  # by attempt and turn
#: Which client an attempt's calls go through.
type Clients = Callable[[int], Any]


async def bare(clients: Clients, prompts: Prompts, stop: list[int]) -> None:
    """The same calls on the SDK alone."""

    async def attempt(number: int, calls: list[list[int]]) -> None:
        for turn, prompt in enumerate(calls):
            await _call(clients(number), prompt, number, turn, stop)

    await asyncio.gather(*(attempt(number, calls) for number, calls in enumerate(prompts)))


async def rendering(clients: Clients, renderer: Any, module: Any, prompts: Prompts, stop: list[int]) -> None:
    """The same calls, the replies parsed and the prompts extended by ``renderers``, and nothing else."""
    tools = module.TOOLS

    async def attempt(number: int, calls: list[list[int]]) -> None:
        prompt = calls[0]
        for turn in range(len(calls)):
            tokens = await _call(clients(number), prompt, number, turn, stop)
            (call,) = renderer.parse_response(tokens, tools=tools, prompt_ids=prompt).tool_calls
            result = {"exit_code": 0, "output": f"{call.arguments['command']}: {turn}\n{module.RESULT}"}
            message = {"role": "tool", "name": call.name, "content": json.dumps(result)}
            prompt = renderer.bridge_to_next_turn(prompt, tokens, [message], tools=tools).token_ids

    await asyncio.gather(*(attempt(number, calls) for number, calls in enumerate(prompts)))


async def _call(client: Any, prompt: list[int], number: int, turn: int, stop: list[int]) -> list[int]:
    from baseten.loops import ModelInput, SamplingParams

    params = SamplingParams(max_tokens=MAX_TOKENS, temperature=1.0, seed=number * 100 + turn, stop=stop)
    reply = await client.sample_async(
        ModelInput.from_ints(prompt), 1, params, affinity_key=f"group-{number // GROUP}"
    )
    assert reply.sequences[0].logprobs
    return reply.sequences[0].tokens


async def timed(work: Callable[[], Awaitable[None]], calls: int) -> dict[str, float]:
    """Milliseconds per call."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return {
        "wall": 1000 * (time.perf_counter() - wall) / calls,
        "cpu": 1000 * (time.process_time() - cpu) / calls,
    }


def open_client(url: str) -> Any:
    """An SDK client of the canned sampler."""
    ready_sdk()
    from baseten.loops.sampling_client import LocalDeployment, SamplingClient

    return SamplingClient(base_model="loops-demo-1m", deployment=LocalDeployment(url), timeout=60.0)


async def open_engine(project: Project, renderer: PolicyRenderer, url: str, store: Store) -> Engine:
    """The engine on a client of its own. There is no trainer, so the session is put together by hand."""
    session = LoopsSession(SimpleNamespace(run_id="bench"), SessionSettings("loops-demo-1m", 8, "bench"), url)
    session.use_sampling(SamplingSettings(stop=renderer.stop_token_ids))
    await session._served.serve(open_client(url), 0)
    return Engine(project, renderer, session, store)


async def measure(directory: Path, attempts: int, turns: int, rounds: int) -> dict[str, Any]:
    project = load(write_project(directory, attempts, turns), working_dir=directory)
    renderer = await asyncio.to_thread(renderer_of, project)
    module = sys.modules[project.episode().cls.__module__]
    found: dict[str, list[dict[str, float]]] = {}
    with CannedSampler(canned_replies(renderer)) as server, Store.open(directory) as store:
        engine = await open_engine(project, renderer, server.url, store)
        alone = open_client(server.url)
        several = [open_client(server.url) for _ in range(max(attempts // CALLS_AT_ONCE, 1))]
        recording = engine.sampler = Recording(engine.session)
        await engine.step()  # imports, connections; and the prompts
        engine.sampler = engine.session
        prompts, stop = list(recording.prompts.values()), renderer.stop_token_ids
        calls = sum(map(len, prompts))
        assert calls == engine.calls == attempts * turns, (calls, engine.calls)

        def spread(number: int) -> Any:
            return several[number % len(several)]

        parts = (renderer._renderer, module)
        ways: dict[str, Callable[[], Awaitable[None]]] = {
            "bare": lambda: bare(lambda _: alone, prompts, stop),
            "engine": engine.step,
            "rendering": lambda: rendering(lambda _: alone, *parts, prompts, stop),
            "bare_spread": lambda: bare(spread, prompts, stop),
            "rendering_spread": lambda: rendering(spread, *parts, prompts, stop),
        }
        for name in ("bare", "bare_spread"):  # connections
            await ways[name]()
        for _ in range(rounds):
            for name, way in ways.items():
                found.setdefault(name, []).append(await timed(way, calls))
        for client in (alone, *several):
            await client.aclose()
        await engine.session._served.close()
    project.close()
    lengths = [len(prompt) for each in prompts for prompt in each]

    def ratio(name: str, kind: str) -> float:
        pairs = zip(found["engine"], found[name], strict=True)
        return round(statistics.median(one[kind] / other[kind] for one, other in pairs), 3)

    result: dict[str, Any] = {
        "attempts": attempts,
        "turns": turns,
        "prompt_tokens_mean": round(statistics.fmean(lengths)),
        "prompt_tokens_max": max(lengths),
        "ms_per_call": {
            name: {kind: round(statistics.median(one[kind] for one in rows), 2) for kind in ("wall", "cpu")}
            for name, rows in found.items()
        },
        "ratio": ratio("bare", "wall"),
        "ratio_cpu": ratio("bare", "cpu"),
        **{f"ratio_cpu_to_{name}": ratio(name, "cpu") for name in found if name not in ("bare", "engine")},
        "bound": BOUND,
        "load": round(os.getloadavg()[0], 1),
    }
    result["ok"] = max(result["ratio"], result["ratio_cpu"]) <= BOUND
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attempts", type=int, default=32)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = asyncio.run(measure(Path(scratch), chosen.attempts, chosen.turns, chosen.rounds))
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
