"""The sampler's routes: a request for completions becomes a generation on the decode thread."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.local_loops.compute.interface import DecodeRequest, PromptScores
from engine.local_loops.faults import ApiFault, unprocessable
from engine.local_loops.generation import Completion, Generation, GenerationFailed, StopStrings
from engine.local_loops.policies import Policy
from engine.local_loops.records import SamplerRecord
from engine.local_loops.registry import BaseModel
from engine.local_loops.service import LoopsService
from engine.local_loops.wire import Sample, read_body

log = logging.getLogger(__name__)

VERSION_HEADER = "x-trainers-policy-version"
#: A log-probability on the wire is finite; this stands for "impossible", as vLLM does it.
IMPOSSIBLE = -9999.0


class SamplerRoutes:
    """``{sampler}/sample`` and what belongs to it."""

    def __init__(self, service: LoopsService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        base = "/sampler/{sampler_id}"
        return [
            Route(f"{base}/sample", self.sample, methods=["POST"]),
            Route(f"{base}/v1/models", self.models, methods=["GET"]),
            Route(f"{base}/trainers_policy_version", self.policy_version, methods=["GET"]),
            Route(f"{base}/health", self.health, methods=["GET"]),
            Route(f"{base}/wake", self.health, methods=["POST"]),
        ]

    def _active(self, request: Request) -> SamplerRecord:
        return self._service.active_sampler(request.path_params["sampler_id"])

    async def health(self, request: Request) -> Response:
        self._active(request)
        return JSONResponse({"status": "ok"})

    async def policy_version(self, request: Request) -> Response:
        sampler = self._active(request)
        version = 0
        if sampler.run_id is not None:
            live = (await self._service.live_run(sampler.run_id)).policies.live
            version = live.version if live is not None else 0
        return JSONResponse({"policy_version": version})

    async def models(self, request: Request) -> Response:
        """The base model and, once a run has published, its adapter."""
        sampler = self._active(request)
        data: list[dict[str, Any]] = [{"id": sampler.base_model, "object": "model", "parent": None}]
        if sampler.run_id is not None and self._service.run_record(sampler.run_id).live_version > 0:
            data.append({"id": sampler.run_id, "object": "model", "parent": sampler.base_model})
        return JSONResponse({"object": "list", "data": data})

    async def sample(self, request: Request) -> Response:
        """Answer with the completions, unless the caller hangs up first."""
        sampler = self._active(request)
        wanted = await read_body(request, Sample)
        generating = asyncio.create_task(self._generate(request, sampler, wanted))
        gone = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait({generating, gone}, return_when=asyncio.FIRST_COMPLETED)
            if generating.done():
                return generating.result()
            log.info("sampler %s: the caller left, generation aborted", sampler.id)
            return Response(status_code=499)  # nobody is there to read it
        finally:
            generating.cancel()
            gone.cancel()

    async def _generate(self, request: Request, sampler: SamplerRecord, wanted: Sample) -> Response:
        service = self._service
        model = service.registry.at(sampler.model_dir)
        await service.load(model)
        budget = _check(wanted, model, min(sampler.context, model.max_context))
        policy = await service.policy_for(
            sampler, model, request.headers.get("x-checkpoint-path"), _floor_of(request)
        )
        generation = await self._run(sampler, model, policy, wanted, budget)
        body = _payload(generation, wanted, model)
        headers = {VERSION_HEADER: str(policy.version)}
        return Response(body, media_type="application/json", headers=headers)

    async def _run(
        self, sampler: SamplerRecord, model: BaseModel, policy: Policy, wanted: Sample, budget: int
    ) -> Generation:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Generation] = loop.create_future()

        def settle(done: Generation, failure: GenerationFailed | None) -> None:
            if outcome.done():
                return
            if failure is None:
                outcome.set_result(done)
            else:
                outcome.set_exception(ApiFault(failure.status, failure.message))

        def finished(done: Generation, failure: GenerationFailed | None) -> None:
            loop.call_soon_threadsafe(settle, done, failure)

        stops = wanted.stop_strings
        tokenizer = model.tokenizer if stops else None
        if stops and tokenizer is None:
            raise unprocessable(f"stop strings need a tokenizer.json, which {model.directory} does not have")
        seed = wanted.seed if wanted.seed is not None else secrets.randbits(62)
        generation = Generation(
            request=DecodeRequest(
                request_id=secrets.token_hex(8),
                prompt=wanted.prompt,
                n=wanted.n,
                temperature=wanted.temperature,
                top_p=wanted.top_p,
                top_k=max(wanted.top_k, 0),
                seed=seed & (2**63 - 1),
                prompt_logprobs=wanted.prompt_logprobs,
            ),
            policy=policy,
            owner=sampler.run_id or sampler.id,
            max_tokens=budget,
            stop_ids=frozenset({*model.backend().card.eos_token_ids, *wanted.stop_token_ids}),
            stop_strings=StopStrings(stops, tokenizer) if tokenizer is not None else None,
            finished=finished,
        )
        self._service.decoding.generate(generation)
        try:
            return await outcome
        except asyncio.CancelledError:
            self._service.decoding.cancel(generation)
            raise


async def _disconnected(request: Request) -> None:
    """Return when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _floor_of(request: Request) -> int | None:
    raw = request.headers.get("x-min-policy-version")
    if raw is None:
        return None
    if not raw.strip().isdecimal():
        raise unprocessable(f"X-Min-Policy-Version must be a non-negative integer, not {raw!r}")
    return int(raw) or None


def _check(wanted: Sample, model: BaseModel, context: int) -> int:
    """Refuse what cannot be sampled; returns how many tokens may be drawn."""
    if wanted.model_input_chunks is not None:
        raise unprocessable("this local server samples from text only; images are not supported")
    if wanted.structured_outputs is not None:
        raise unprocessable("this local server does not support structured_outputs")
    length = len(wanted.prompt)
    if length == 0:
        raise unprocessable("the prompt is empty")
    if length > context:
        raise unprocessable(
            f"the prompt has {length} tokens; this sampler's context is {context} tokens. Shorten the prompt."
        )
    if min(wanted.prompt) < 0 or max(wanted.prompt) >= model.backend().card.vocab_size:
        raise unprocessable(
            f"the prompt has token ids outside the model's vocabulary of {model.backend().card.vocab_size}"
        )
    room = context - length
    if room == 0 and wanted.prompt_logprobs is None:
        raise unprocessable(
            f"the prompt fills the context of {context} tokens; nothing can be sampled after it"
        )
    return room if wanted.max_tokens is None else min(wanted.max_tokens, room)


def _payload(generation: Generation, wanted: Sample, model: BaseModel) -> bytes:
    scores = generation.prompt_scores
    prompt_logprobs = _prompt_logprobs(wanted.prompt, scores) if scores is not None else None
    choices = [
        # Prompt log-probabilities go with the first choice: the SDK reads them from there, and n copies are heavy.
        _choice(index, completion, wanted, model, prompt_logprobs if index == 0 else None)
        for index, completion in enumerate(generation.completions)
    ]
    drawn = sum(len(completion.tokens) for completion in generation.completions)
    payload = {
        "id": generation.request.request_id,
        "object": "text_completion",
        "choices": choices,
        "usage": {
            "prompt_tokens": len(wanted.prompt),
            "completion_tokens": drawn,
            "total_tokens": len(wanted.prompt) + drawn,
        },
    }
    return json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()


def _choice(
    index: int,
    completion: Completion,
    wanted: Sample,
    model: BaseModel,
    prompt_logprobs: list[dict[str, Any] | None] | None,
) -> dict[str, Any]:
    tokens = completion.tokens
    logprobs = [_finite(value) for value in completion.logprobs]
    text = _text(completion, model)
    if tokens[: len(wanted.prompt)] == wanted.prompt:
        # The SDK takes a completion that starts with the prompt for an echo and strips that prefix, once. Handing
        # it the echo it expects keeps the completion whole.
        tokens = [*wanted.prompt, *tokens]
        logprobs = [0.0] * len(wanted.prompt) + logprobs
    return {
        "index": index,
        "text": text,
        "finish_reason": completion.finish,
        "stop_reason": completion.stopped_by,
        "logprobs": {"tokens": [f"token_id:{token}" for token in tokens], "token_logprobs": logprobs},
        "token_ids": tokens,
        "prompt_token_ids": None,
        "prompt_logprobs": prompt_logprobs,
    }


def _text(completion: Completion, model: BaseModel) -> str:
    """The completion as text: without special tokens, and up to the stop string that ended it."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return ""
    text = tokenizer.decode(completion.tokens, skip_special_tokens=True)
    if completion.stopped_by is not None:
        text = text.split(completion.stopped_by, 1)[0]
    return text


def _prompt_logprobs(prompt: list[int], scores: PromptScores) -> list[dict[str, Any] | None]:
    """Per prompt token its log-probability and those of the likeliest alternatives; nothing predicts the first."""
    entries: list[dict[str, Any] | None] = [None]
    for at in range(1, len(prompt)):
        entry: dict[str, Any] = {}
        if scores.top_ids is not None and scores.top_logprobs is not None:
            for token, value in zip(
                scores.top_ids[at].tolist(), scores.top_logprobs[at].tolist(), strict=True
            ):
                entry[str(token)] = {"logprob": _finite(value)}
        entry[str(prompt[at])] = {"logprob": _finite(float(scores.logprobs[at]))}
        entries.append(entry)
    return entries


def _finite(value: float) -> float:
    return value if math.isfinite(value) else IMPOSSIBLE
