"""What is sent to deploy a sampler checkpoint for inference, and what to say where nobody knows whether it worked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.config.problems import did_you_mean
from engine.loops.management import InstanceType

DEFAULT_SECRET = "hf_access_token"
"""The workspace secret that Baseten's own tools take unless told otherwise; it fetches the base model's weights."""
ROUTE = "/v1/loops/checkpoints/deploy"
_LISTED = 16
"""Machines named in a sentence."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class DeployChoice:
    """What a person decides: the model's name, the machine's kind, and the secret's *name* (never its value)."""

    model_name: str
    instance_type: str
    secret: str = DEFAULT_SECRET


def name_problem(value: str) -> str | None:
    """What is wrong with the name of a model or of a secret, after "…"; None where nothing is."""
    if _NAME.fullmatch(value):
        return None
    return f"is at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit, not {value[:120]!r}"


def usable_name(text: str) -> str:
    """The nearest name that a model can have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:100] or "model"


def choice_problem(choice: DeployChoice, kinds: Sequence[InstanceType] = ()) -> str | None:
    """What is wrong with a choice, in one sentence; None where nothing is.

    ``kinds``: the machines that Baseten lists, where that is known. No machine at all is no mistake yet.
    """
    for what, value in (("model name", choice.model_name), ("secret name", choice.secret)):
        if (problem := name_problem(value)) is not None:
            return f"a {what} {problem}"
    wanted, ids = choice.instance_type, [kind.id for kind in kinds]
    if not wanted or not ids or wanted in ids:
        return None
    meant = did_you_mean(wanted, ids)
    hint = f" (did you mean {meant!r}?)" if meant else ""
    return f"there is no instance type {wanted!r}{hint}; there are {kinds_in_words(kinds)}"


def kinds_in_words(kinds: Sequence[InstanceType]) -> str:
    """The machines to choose from: those with a GPU, or all where none has one."""
    with_gpu = [kind for kind in kinds if kind.gpu_count] or list(kinds)
    ordered = sorted(with_gpu, key=lambda kind: (kind.gpu_count, kind.id))
    words = [
        f"{kind.id} ({kind.gpu_count} x {kind.gpu_type})" if kind.gpu_type else kind.id for kind in ordered
    ]
    more = f" and {len(words) - _LISTED} more" if len(words) > _LISTED else ""
    return ", ".join(words[:_LISTED]) + more


def deployment_request(checkpoint_ids: list[str], choice: DeployChoice) -> dict[str, Any]:
    """The body of ``POST /v1/loops/checkpoints/deploy``; ``checkpoint_ids`` are Loops' unique ids, not names."""
    return {
        "checkpoint_ids": checkpoint_ids,
        "model_name": choice.model_name,
        "instance_type_id": choice.instance_type,
        "hf_secret_name": choice.secret,
    }


def unknown_outcome(choice: DeployChoice, cause: str) -> str:
    """The sentence for a request that was sent and whose answer never came."""
    return (
        f"whether the deployment {choice.model_name!r} was made is unknown ({cause}). Look for a model of that name at "
        "https://app.baseten.co/models before you try again: each request makes another one, and each one bills"
    )
