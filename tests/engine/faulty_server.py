"""The local server with faults, as a process: what goes wrong is told by the variable ``LOCAL_LOOPS_FAULTS``."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from engine.hosting.local_server import LocalServer

VARIABLE = "LOCAL_LOOPS_FAULTS"


@dataclass(frozen=True)
class Faults:
    """``fail_every``: every so many samples one is answered 500; 0: none. Prompts that are only scored never are.

    ``empty``: it is answered without a reply instead.
    ``publish_fails``: so many publishes after the first are answered 500, one after the other.
    ``stale_from``: from this published version on (Loops' own count), the sampler goes on with the weights before it.
    ``honest``: whether its replies say so.
    """

    fail_every: int = 0
    empty: bool = False
    publish_fails: int = 0
    stale_from: int | None = None
    honest: bool = False

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give every run that begins a local server with these faults."""
        monkeypatch.setattr(LocalServer, "module", "tests.engine.faulty_server")
        monkeypatch.setenv(VARIABLE, json.dumps(asdict(self)))
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


def fail_samples(every: int, *, empty: bool) -> None:
    from starlette.responses import JSONResponse

    from engine.local_loops.faults import ApiFault
    from engine.local_loops.sampler import SamplerRoutes

    generate, number = SamplerRoutes._generate, itertools.count(1)

    async def failing(self: Any, request: Any, sampler: Any, wanted: Any) -> Any:
        if wanted.prompt_logprobs is None and next(number) % every == 0:
            if empty:
                answer = await generate(self, request, sampler, wanted)
                headers = {name: answer.headers[name] for name in answer.headers if name.startswith("x-")}
                return JSONResponse({**json.loads(bytes(answer.body)), "choices": []}, headers=headers)
            raise ApiFault(500, "injected: the sampler has lost this request")
        return await generate(self, request, sampler, wanted)

    SamplerRoutes._generate = failing  # type: ignore[method-assign]


def fail_publishes(most: int) -> None:
    from engine.local_loops.faults import ApiFault
    from engine.local_loops.trainer import TrainerRoutes

    submitter, number = TrainerRoutes._submitter, itertools.count()

    def failing(self: Any, name: str, body: Any) -> Any:
        submit = submitter(self, name, body)

        async def publish(request: Any) -> Any:
            if 1 <= next(number) <= most:
                raise ApiFault(500, "injected: the weights were not taken")
            return await submit(request)

        return publish if name == "save_weights_for_sampler" else submit

    TrainerRoutes._submitter = failing  # type: ignore[method-assign]


def serve_stale(stale_from: int, *, honest: bool) -> None:
    from engine.local_loops.policies import Policy, RunPolicies

    find = RunPolicies.at_least

    def stale(self: Any, floor: int) -> Policy | None:
        asked = find(self, floor)
        if asked is None or asked.version < stale_from:
            return asked
        old = find(self, stale_from - 1)
        if old is None or honest:
            return old
        return Policy("stale", old.backend, version=asked.version, weights=old.weights())

    RunPolicies.at_least = stale  # type: ignore[method-assign]


if __name__ == "__main__":
    from engine.local_loops.__main__ import main

    chosen = Faults(**json.loads(os.environ[VARIABLE]))
    if chosen.fail_every:
        fail_samples(chosen.fail_every, empty=chosen.empty)
    if chosen.publish_fails:
        fail_publishes(chosen.publish_fails)
    if chosen.stale_from is not None:
        serve_stale(chosen.stale_from, honest=chosen.honest)
    main()
