"""Which environment variables are secret, so that nothing the engine stores or shows repeats their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SECRET_NAME = re.compile(
    r"(^|_)(API_?KEYS?|KEY|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?)($|_)", re.IGNORECASE
)
_NOT_SECRET = frozenset({"SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM"})
_SHORTEST = 6  # shorter values would blot out ordinary words

REDACTED = "[secret]"


def is_secret_name(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret, as in BASETEN_API_KEY or HF_TOKEN."""
    return name not in _NOT_SECRET and _SECRET_NAME.search(name) is not None


def secret_values(environ: Mapping[str, str]) -> list[str]:
    """The values to redact, longest first, so that a secret that holds another goes whole."""
    values = {
        value.strip()
        for name, value in environ.items()
        if is_secret_name(name) and len(value.strip()) >= _SHORTEST
    }
    return sorted(values, key=len, reverse=True)


def redact(text: str, values: Iterable[str]) -> str:
    """``text`` with every secret value replaced."""
    for value in values:
        text = text.replace(value, REDACTED)
    return text
