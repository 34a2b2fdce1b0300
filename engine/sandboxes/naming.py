"""Names and labels of sandboxes: short, safe in a URL, a host name and a directory, and unique for ever."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from engine.sandboxes.errors import InvalidRequest

NAME_PREFIX = "ltui"
MAX_NAME = 49
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_MAX_LABEL_VALUE = 255
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_RANDOM = 8

LABEL_PROJECT = "ltui-project"
LABEL_RUN = "ltui-run"
LABEL_ATTEMPT = "ltui-attempt"
LABEL_HOST = "ltui-host"


def check_name(name: str) -> str:
    """The name, if every provider takes it. Raises InvalidRequest."""
    if len(name) > MAX_NAME or not _NAME.match(name):
        raise InvalidRequest(
            f"{name[:80]!r} cannot name a sandbox: small letters, digits and single dashes, at most {MAX_NAME} of them"
        )
    return name


def new_name(run_id: str, group_id: int | None = None, attempt: int | None = None, number: int = 1) -> str:
    """A fresh name such as ``ltui-k3f9-g12a3t1-x7c2q9ab``: a person can tell whose it is, nobody has it already.

    ``number``: which of the attempt's sandboxes; a retry has its own, and so has grading in a fresh one.
    """
    suffix = re.sub(r"[^a-z0-9]+", "", run_id.rsplit("-", 1)[-1].lower())[:8] or "run"
    place = "" if group_id is None else f"-g{group_id}a{attempt or 0}t{number}"
    rest = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return check_name(f"{NAME_PREFIX}-{suffix}{place[:20]}-{rest}")


def project_label(project_dir: Path) -> str:
    """What marks the sandboxes of one project directory, without giving its path away."""
    return hashlib.sha256(str(project_dir.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels, if every provider takes them. Raises InvalidRequest."""
    for key, value in labels.items():
        if not _LABEL_KEY.match(key):
            raise InvalidRequest(f"{key[:80]!r} cannot be a label's name")
        if len(value) > _MAX_LABEL_VALUE or not value.isprintable():
            raise InvalidRequest(
                f"the label {key} must be printable text of at most {_MAX_LABEL_VALUE} characters"
            )
    return dict(labels)


def has_labels(labels: Mapping[str, str], wanted: Mapping[str, str] | None) -> bool:
    """Whether all wanted labels are there."""
    return all(labels.get(key) == value for key, value in (wanted or {}).items())
