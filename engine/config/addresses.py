"""Addresses of services, as configs name them."""

from __future__ import annotations

from urllib.parse import urlsplit


def web_address(value: str | None) -> str | None:
    """``value``, if it is the address of a service that can be asked. Raises ValueError with a sentence."""
    if value is None:
        return None
    if not value.lower().startswith(("http://", "https://")):
        raise ValueError(f"must begin with http:// or https://, not {value!r}")
    try:
        parts = urlsplit(value)
        named, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is no address: {error} in {value!r}") from error
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "must not hold a user or a password, which would be stored: keys belong in the environment"
        )
    if not named or any(char.isspace() or not char.isprintable() for char in value):
        raise ValueError(f"names no host: {value!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"must end before '?' and '#': {value!r}")
    return value
