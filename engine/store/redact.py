"""Secrets leave every text before it is stored or shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

REMOVED = "[secret removed]"

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT)(?:_?ID)?$", re.IGNORECASE
)
_SHORTEST = 8
"""Shorter values are words like "local": replacing them would mangle ordinary text."""

_PER_TOKEN = frozenset({"tokens", "logprobs", "texts"})

# Header values in any spelling that logs and tracebacks use, plain or inside (escaped) JSON.
_HEADER = re.compile(
    r"""((?:proxy-)?authorization\\*["']?\s*[:=,]\s*\\*["']?(?:b(?=["']))?["']?)"""
    r"""(?!(?:\S+\s+)?\[secret)((?:bearer|basic|api-key|token)\s+)?([^\s"'\\,;})\]]+)""",
    re.IGNORECASE,
)


class Redactor:
    """Replaces known secret values, and ``Authorization`` headers, by a mark. Safe to use from several threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.add(secrets)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Redactor:
        """Take the values of all variables whose names say that they are secret (``…_KEY``, ``…_TOKEN``, …)."""
        return cls(secret_values(environment))

    def add(self, secrets: Iterable[str]) -> None:
        """Know these values too, as they are, JSON-escaped and URL-quoted."""
        known = set(self._secrets)
        for secret in secrets:
            value = secret.strip()
            if len(value) >= _SHORTEST:
                known |= {value, json.dumps(value)[1:-1], quote(value, safe="")}
        if known != self._secrets:
            self._secrets = frozenset(known)
            # Longest first: a secret may be the beginning of another.
            self._pattern = re.compile("|".join(re.escape(s) for s in sorted(known, key=len, reverse=True)))

    def text(self, text: str) -> str:
        """The text without secrets."""
        pattern = self._pattern
        if pattern is not None:
            text = pattern.sub(REMOVED, text)
        if "uthorization" in text or "UTHORIZATION" in text:
            text = _HEADER.sub(rf"\1\2{REMOVED}", text)
        return text

    def value(self, value: Any) -> Any:
        """The JSON-like value without secrets, keys included; numbers are left alone."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(k) if isinstance(k, str) else k: self._member(str(k), v) for k, v in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(v) if isinstance(v, str | Mapping | list | tuple) else v for v in value]
        return value

    def _member(self, key: str, value: Any) -> Any:
        """A header map keeps its secret in a value of its own, which no pattern over one text would see."""
        if isinstance(value, str) and key.lower() in {"authorization", "proxy-authorization"}:
            return REMOVED
        return self.value(value)

    def sampled(self, sampled: Mapping[str, Any]) -> dict[str, Any]:
        """A sampled reply without secrets, also where one is spread over several tokens (their ids become -1).

        Replies are long, so the lists of numbers are taken as such and the texts are searched as one.
        """
        rest = {key: value for key, value in sampled.items() if key not in _PER_TOKEN}
        clean: dict[str, Any] = {
            **{key: value for key, value in sampled.items() if key in _PER_TOKEN},
            **self.value(rest),
        }
        texts = sampled.get("texts")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            return {**clean, "texts": self.value(texts)} if "texts" in sampled else clean
        whole = "".join(texts)
        patterns = [_HEADER] if self._pattern is None else [self._pattern, _HEADER]
        hits = [match.span() for pattern in patterns for match in pattern.finditer(whole)]
        if hits:
            clean["texts"], clean["tokens"] = _without(hits, texts, list(sampled.get("tokens") or []))
        return clean


def _without(hits: list[tuple[int, int]], texts: list[str], tokens: list[Any]) -> tuple[list[str], list[Any]]:
    """Texts and ids of tokens, those that touch a hit (a span of the joined texts) replaced."""
    shown = list(texts)
    start = 0
    for index, text in enumerate(texts):
        end = start + len(text)
        if any(start < hit_end and end > hit_start for hit_start, hit_end in hits):
            shown[index] = REMOVED
            if index < len(tokens):
                tokens[index] = -1
        start = end
    return shown, tokens


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values whose variable names say that they are secret."""
    return [value for name, value in environment.items() if _SECRET_NAME.search(name) and value]
