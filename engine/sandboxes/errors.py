"""What goes wrong around a sandbox. Each error is one clear sentence.

A *command* that fails is no error: it is an :class:`~engine.sandboxes.contract.Exec`. What raises is the provider:

======================  =========================================================================================
``SandboxError``        base of everything here
``ProviderError``       base of the provider's failures: the attempt did not happen, try it in a fresh sandbox
``TransientError``      may work when tried again (``retry_after`` seconds, where the provider said so)
``QuotaError``          the account's or the machine's limit is reached: start fewer, then try again
``RateLimited``         asked too often: ask more slowly
``CredentialsError``    the provider refuses who we are; retrying is pointless until a person acts
``PermanentError``      the provider refuses what we ask (unknown image, name taken, isolation not available)
``SandboxGone``         this sandbox no longer exists or no longer answers; another one may work
``SandboxFileError``    one file cannot be read or written as asked (missing, a directory, too large)
``InvalidRequest``      a name, path or label that no provider takes; raised before anything is sent
======================  =========================================================================================
"""

from __future__ import annotations

from typing import Literal


class SandboxError(Exception):
    """Base of all errors of sandboxes and their providers."""


class ProviderError(SandboxError):
    """The provider failed, not the command that ran in the sandbox."""

    #: Whether the same call may succeed a little later.
    retryable = False


class TransientError(ProviderError):
    """May work when tried again. ``retry_after``: seconds, where the provider named a time."""

    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QuotaError(TransientError):
    """A limit of the account or of the machine is reached; fewer sandboxes at once would help."""


class RateLimited(TransientError):
    """The provider is asked too often; the same call later, and fewer of them, would help."""


class CredentialsError(ProviderError):
    """The provider does not accept our credentials."""


class PermanentError(ProviderError):
    """The provider will not do this however often it is asked."""


class SandboxGone(ProviderError):
    """The sandbox does not exist any more, or has stopped answering."""


type FileTrouble = Literal["missing", "directory", "denied", "too_large", "no_space", "not_a_file", "other"]


class SandboxFileError(SandboxError):
    """One file of a living sandbox cannot be read or written; ``reason`` says why in one word."""

    def __init__(self, message: str, *, path: str, reason: FileTrouble = "other") -> None:
        super().__init__(message)
        self.path = path
        self.reason: FileTrouble = reason


class InvalidRequest(SandboxError, ValueError):
    """What was asked for can never be right, whatever the provider: a bad name, path, label or limit."""
