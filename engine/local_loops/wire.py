"""What requests must look like, and reading their bodies."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from starlette.requests import ClientDisconnect, Request

from engine.local_loops.faults import ApiFault, sentence_of, unprocessable

#: The SDK splits batches at 24 MiB; twice that leaves room for other clients.
MAX_BODY_BYTES = 64 * 1024 * 1024
#: Bodies from this size on are parsed in a thread.
_PARSE_IN_THREAD_BYTES = 64 * 1024


class Body(BaseModel):
    """A request body; fields we do not know are for other servers and are ignored."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class CreateTrainer(Body):
    session_id: str
    base_model: str
    lora_rank: int = Field(32, ge=1, le=1024)
    replicas: int = Field(1, ge=1)
    availability_model: Literal["dedicated", "spot"] = "dedicated"
    base_checkpoint: str | None = None
    seed: int | None = None
    max_seq_len: int | None = Field(None, ge=1)
    name: str | None = None
    path: str | None = None
    reuse_from_run_id: str | None = None


class CreateSampler(Body):
    session_id: str
    run_id: str | None = None
    base_model: str | None = None
    model_path: str | None = None
    max_seq_length: int | None = Field(None, ge=1)


class ValidateCheckpoint(Body):
    checkpoint_path: str


class DeployCheckpoints(Body):
    checkpoint_ids: list[str] = Field(min_length=1)
    model_name: str = Field(min_length=1)
    instance_type_id: str = Field(min_length=1)
    hf_secret_name: str = Field(min_length=1)


class UserConfig(Body):
    trainer_accelerator_priority: list[str] | None = None
    sampler_accelerator_priority: list[str] | None = None


class Sample(Body):
    """A request for completions; ``max_tokens`` absent means up to the context's end."""

    prompt: list[int] = Field(default_factory=list)
    n: int = Field(1, ge=1, le=1024)
    temperature: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    top_k: int = 0
    max_tokens: int | None = Field(None, ge=0)
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] = Field(default_factory=list)
    prompt_logprobs: int | None = Field(None, ge=0, le=100)
    structured_outputs: JsonValue = None
    model_input_chunks: JsonValue = None

    @property
    def stop_strings(self) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in stops if stop]


class InitTrainer(Body):
    lora_rank: int = Field(ge=1, le=1024)


class ForwardPass(Body):
    """``data`` stays raw: its datums are checked where the loss is known, and fail the operation, not the submit."""

    data: list[Any]
    loss_fn: str = "cross_entropy"
    loss_fn_config: dict[str, Any] | None = None
    top_k_logprobs: int = Field(0, ge=0, le=20)


class AdamParams(Body):
    learning_rate: float = Field(1e-4, ge=0.0, allow_inf_nan=False)
    beta1: float = Field(0.9, ge=0.0, lt=1.0)
    beta2: float = Field(0.95, ge=0.0, lt=1.0)
    eps: float = Field(1e-12, ge=0.0)
    weight_decay: float = Field(0.0, ge=0.0)
    grad_clip_norm: float = Field(1.0, ge=0.0)


class OptimStep(Body):
    adam_params: AdamParams


class SaveState(Body):
    name: str = Field(min_length=1, max_length=200)
    ttl_seconds: int | None = Field(None, ge=1)


class Publish(Body):
    name: str = Field("default", min_length=1, max_length=200)
    bump_version: bool = True
    ttl_seconds: int | None = Field(None, ge=1)


class LoadState(Body):
    path: str = Field(min_length=1)


def validate[ModelT: Body](model: type[ModelT], raw: Any) -> ModelT:
    """``raw`` as ``model``, or a 422 with the first complaint."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise unprocessable(sentence_of(error)) from error


async def read_json(request: Request) -> Any:
    """The body as JSON; None where there is none."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise ApiFault(413, f"the body exceeds {MAX_BODY_BYTES} bytes")
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ApiFault(422, "the client left before its request was complete") from error
    body = b"".join(chunks)
    if not body:
        return None
    try:
        if size < _PARSE_IN_THREAD_BYTES:
            return json.loads(body)
        return await asyncio.to_thread(parse_object, body)
    except ValueError as error:
        raise unprocessable(f"the body is not valid JSON: {error}") from error


async def read_body[ModelT: Body](request: Request, model: type[ModelT]) -> ModelT:
    return validate(model, await read_json(request))


def parse_object(body: bytes) -> Any:
    """Parse a large JSON object value by value.

    The C parser holds the interpreter lock from the first byte to the last, half a second for a full batch, during
    which nothing else is served. Parsing each datum with a call of its own lets the event loop in between.
    """
    text = body.decode("utf-8")
    scan = json.JSONDecoder().raw_decode
    at = _skip_space(text, 0)
    if not text.startswith("{", at):
        return json.loads(text)
    result: dict[str, Any] = {}
    at = _skip_space(text, at + 1)
    if text.startswith("}", at):
        return _ended(text, at + 1, result)
    while True:
        key, at = scan(text, at)
        if not isinstance(key, str):
            raise ValueError(f"a member name must be a string (char {at})")
        at = _expect(text, at, ":")
        if text.startswith("[", at) and text.startswith("{", _skip_space(text, at + 1)):
            result[key], at = _parse_array(text, at, scan)
        else:
            result[key], at = scan(text, at)
        at = _skip_space(text, at)
        if text.startswith("}", at):
            return _ended(text, at + 1, result)
        at = _expect(text, at, ",")


def _parse_array(text: str, at: int, scan: Any) -> tuple[list[Any], int]:
    """A list of objects, one call of the C parser each."""
    values: list[Any] = []
    at = _skip_space(text, at + 1)
    while True:
        value, at = scan(text, at)
        values.append(value)
        at = _skip_space(text, at)
        if text.startswith("]", at):
            return values, at + 1
        at = _expect(text, at, ",")


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _expect(text: str, at: int, mark: str) -> int:
    at = _skip_space(text, at)
    if not text.startswith(mark, at):
        raise ValueError(f"expected {mark!r} (char {at})")
    return _skip_space(text, at + 1)


def _ended(text: str, at: int, result: dict[str, Any]) -> dict[str, Any]:
    if _skip_space(text, at) != len(text):
        raise ValueError(f"extra data after the object (char {at})")
    return result
