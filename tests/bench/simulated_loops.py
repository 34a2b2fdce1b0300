"""The SDK's two clients, simulated in process: canned replies after drawn latencies, a trainer that encodes and answers.

What the SDK does on the event loop it does here too (a prompt as JSON, a batch as JSON, twice), so that memory and
stalls are those of a real client; only the network and the model are missing.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from engine.loops.own_loop import OnOwnLoop
from engine.loops.session import LoopsSession, SessionSettings
from engine.policy.rendering import PolicyRenderer
from engine.project import Project
from engine.recipes.contract import Outcome, RunHandle
from engine.recipes.frame import carry
from engine.recipes.rl.run import _Run
from engine.recipes.spending import SpendMeter
from engine.store.rows import RunRow, RunState
from engine.store.store import Store


class SimulatedSampler:
    """Answers with one of ``replies`` (token lists); latency in seconds is log-normal, divided by ``speed``."""

    def __init__(
        self, replies: Sequence[Sequence[int]], version: int, speed: float, draw: random.Random
    ) -> None:
        self._replies, self._version, self._speed, self._draw = replies, version, speed, draw
        self.most_at_once = self._at_once = 0

    async def sample_async(
        self,
        prompt: Any,
        num_samples: int = 1,
        sampling_params: Any = None,
        *,
        affinity_key: str | None = None,
    ) -> Any:
        json.dumps({"prompt": prompt.to_ints(), "n": num_samples})
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(self._draw.lognormvariate(-0.9, 0.6) / self._speed)
        finally:
            self._at_once -= 1
        return SimpleNamespace(
            sequences=[self._sequence() for _ in range(num_samples)], policy_version=self._version
        )

    def _sequence(self) -> Any:
        tokens = list(self._draw.choice(self._replies))
        logprobs = [-self._draw.expovariate(2.0) for _ in tokens]
        return SimpleNamespace(tokens=tokens, logprobs=logprobs, stop_reason="stop")

    async def compute_logprobs_async(self, prompt: Any) -> list[float | None]:
        return [None, *(-1.0 - self._version / 1000 for _ in prompt.to_ints()[1:])]

    async def aclose(self) -> None:
        """Nothing is open."""


class _Done:
    """A finished operation of the trainer."""

    def __init__(self, result: Any) -> None:
        self._result = result

    async def result_async(self) -> Any:
        return self._result


class SimulatedTrainer:
    """Takes batches, sends nothing; ``update`` seconds for an optimizer step, divided by ``speed``."""

    run_id = "simulated"
    base_checkpoint = None

    def __init__(
        self, replies: Sequence[Sequence[int]], *, speed: float, update: float = 2.0, seed: int = 0
    ) -> None:
        self._replies, self._speed, self._update = replies, speed, update
        self._draw = random.Random(seed)
        self._version = 0
        self.most_at_once = 0
        self.largest_request = 0  # bytes
        self._sampler: SimulatedSampler | None = None

    async def forward_backward_async(
        self, *, data: Sequence[Any], loss_fn: str, loss_fn_config: dict[str, Any] | None
    ) -> _Done:
        from baseten.loops import TensorData

        dumped = [datum.model_dump(mode="json") for datum in data]
        for one in dumped:  # the SDK looks how large each is
            json.dumps(one, separators=(",", ":"))
        body = json.dumps({"data": dumped, "loss_fn": loss_fn, "loss_fn_config": loss_fn_config}).encode()
        self.largest_request = max(self.largest_request, len(body))
        scored = [{"logprobs": TensorData(**one["loss_fn_inputs"]["logprobs"])} for one in dumped]
        return _Done(SimpleNamespace(loss=0.0, metrics={}, loss_fn_outputs=scored))

    async def optim_step_async(self, adam: Any) -> _Done:
        await asyncio.sleep(self._update / self._speed)
        return _Done(SimpleNamespace(metrics={"grad_norm": 1.0}))

    async def save_weights_and_get_sampling_client_async(self, name: str) -> SimulatedSampler:
        if self._sampler is not None:
            self._version += 1
            self.most_at_once = max(self.most_at_once, self._sampler.most_at_once)
        self._sampler = SimulatedSampler(self._replies, self._version, self._speed, self._draw)
        return self._sampler

    async def save_state_async(self, name: str) -> _Done:
        return _Done(SimpleNamespace(path=f"simulated://{name}"))

    save_weights_for_sampler_async = save_state_async

    def list_checkpoints(self) -> list[Any]:
        return []

    async def aclose(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


class SimulatedConnections:
    """In place of ``Connections``: no sandboxes, and a session over simulated clients."""

    sandboxes = None

    def __init__(self, trainer: SimulatedTrainer, renderer: PolicyRenderer) -> None:
        self._renderer = renderer
        self.session = LoopsSession(
            OnOwnLoop(trainer), SessionSettings("loops-demo-1m", 8, "simulated"), None
        )

    async def open_sandboxes(self) -> None:
        """The episode has none."""

    async def connect(self) -> tuple[Any, PolicyRenderer]:
        await self.session.publish(0)
        return self.session, self._renderer

    async def close(self) -> None:
        await self.session.close()


def simulated_run(run_id: str, project: Project, store: Store) -> RunRow:
    """The row of a run that is about to begin in the store's project directory."""
    return RunRow(
        run_id=run_id,
        name="simulated",
        recipe="rl",
        state=RunState.RUNNING,
        created_at=time.time(),
        config_path=str(project.path),
        config_toml="",
        run_dir=str(store.project_dir / "runs" / run_id),
        base_model="loops-demo-1m",
        max_steps=project.rl.training.max_steps,
    )


async def simulated_training(
    project: Project, handle: RunHandle, trainer: SimulatedTrainer, renderer: PolicyRenderer
) -> Outcome:
    """The RL recipe to its end, with these clients in place of the SDK's."""
    meter = SpendMeter(project.rl.budget, project.rl.prices)
    training = _Run(project, handle, meter)
    training.connections = SimulatedConnections(trainer, renderer)  # type: ignore[assignment]
    return await carry(training, project, handle, meter)
