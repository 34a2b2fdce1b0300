"""What is sent to deploy a sampler checkpoint for inference, and what to say where nobody knows whether it worked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

DEFAULT_SECRET = "hf_access_token"
"""The workspace secret that Baseten's own tools take unless told otherwise; it fetches the base model's weights."""
ROUTE = "/v1/loops/checkpoints/deploy"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class DeployChoice:
    """What a person decides: the model's name, the machine's kind, and the secret's *name* (never its value)."""

    model_name: str
    instance_type: str
    secret: str = DEFAULT_SECRET


def choice_problem(choice: DeployChoice) -> str | None:
    """What is wrong with a choice, in one sentence; None where nothing is."""
    for what, value in (("model name", choice.model_name), ("secret name", choice.secret)):
        if not _NAME.fullmatch(value):
            return f"a {what} is letters, digits, '.', '_' and '-', beginning with a letter or digit, not {value!r}"
    if not choice.instance_type.strip():
        return "no instance type is given; Baseten's list of instance types names them"
    return None


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
