"""The provider-neutral sandbox: what episodes use and what a provider must offer.

How the parts fit together::

    settings = SandboxSettings.from_table(config["runtime"]["config"]["sandbox"])
    provider = LocalProvider(project_dir, settings)             # or another Provider
    report = await provider.probe()                             # for check: isolation, problems, warnings
    keeper = LeaseKeeper(store, provider, settings, project=project_label(project_dir), run_id=…, host_id=…)
    leased = await keeper.acquire(group_id=12, attempt=3)       # row committed, then the sandbox created
    await leased.sandbox.write_tree({"app.conf": "port=8080\\n"})
    done = await leased.sandbox.exec("sed -i s/8080/9090/ app.conf", timeout=20)
    await keeper.release(leased)                                # shielded, retried, confirmed
    await keeper.release_all(); await provider.aclose()         # also when the run is cancelled
    report = await cleanup(store, project_dir)                  # engine.sandboxes.cleanup: what dead hosts left

One event loop per provider object: it is bound to the loop that first uses it.
Paths: relative ones start in ``Sandbox.workdir``. Texts in results are UTF-8 with replacement characters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, NotRequired, Protocol, TypedDict, runtime_checkable

from engine.sandboxes.errors import PermanentError

WORKDIR = "/work"
"""Where a sandbox's files lie and its commands start, on every provider."""
DEFAULT_MAX_OUTPUT = 1024 * 1024
"""Bytes of output kept of one command and stream, unless it is told otherwise."""

ExecStatus = Literal["completed", "timed_out", "killed"]
ProcessStatus = Literal["running", "stopped"]


class FileEntry(TypedDict):
    """One file of ``write_tree``: ``path`` below the root, ``content``, and ``mode`` (default 0o644)."""

    path: str
    content: str | bytes
    mode: NotRequired[int]


type Tree = Mapping[str, str | bytes] | Sequence[FileEntry]


@dataclass(frozen=True, slots=True)
class Exec:
    """What became of one command.

    ``status``: "completed" (it ended by itself, whatever its exit code), "timed_out" (its deadline ended it and
    everything it had started), "killed" (a signal ended it, or ``kill``/``kill_all`` did).
    ``exit_code``: as the shell reports it, 128 + n after signal n; None after "timed_out", and after "killed" where
    the provider does not tell the signal.
    ``output`` holds both streams in order of arrival (exactly in order with ``merge_stderr``).
    ``truncated``: a stream was longer than ``max_output`` bytes; its head and tail are kept around a mark.
    ``seconds``: wall time inside the provider.
    """

    status: ExecStatus
    exit_code: int | None
    stdout: str
    stderr: str
    output: str
    truncated: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Ran to its end with exit code 0."""
        return self.status == "completed" and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs in a sandbox now. ``pid`` is its number in there, ``started_at`` Unix seconds."""

    pid: int
    command: str
    status: ProcessStatus
    started_at: float


class Isolation(StrEnum):
    """What keeps a sandbox's processes away from the rest of the machine, strongest first."""

    REMOTE = "remote"  # a machine of the provider's
    BUBBLEWRAP = "bubblewrap"  # namespaces, a root of its own, no network
    LANDLOCK = "landlock"  # file and network rules on ordinary processes
    NONE = "none"  # ordinary processes; only when the config asks for it


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What is asked of a provider.

    ``name``: chosen by us, ``[a-z0-9-]``, at most 49 characters, unique for ever.
    ``labels``: project, run, attempt, host and whatever else finds the sandbox again.
    ``memory_mb``: None leaves it to the provider. ``ttl_seconds``: after that the provider ends it by itself.
    ``env``: visible to every command. ``image``: None is the provider's default.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    memory_mb: int | None = None
    ttl_seconds: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """What ``probe`` found. With ``problems`` no sandbox can be created; ``warnings`` say what is weaker."""

    provider: str
    isolation: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        return not self.problems


class ReleaseOutcome(StrEnum):
    RELEASED = "released"
    ALREADY_GONE = "already_gone"


@dataclass(frozen=True, slots=True)
class Released:
    """A confirmed end: nothing of the sandbox is left."""

    name: str
    outcome: ReleaseOutcome


@dataclass(frozen=True, slots=True)
class ProviderSandbox:
    """One sandbox as the provider lists it. ``state`` is the provider's own word, ``created_at`` Unix seconds."""

    name: str
    labels: Mapping[str, str]
    state: str
    created_at: float | None
    owner_alive: bool | None = None  # whether the process that made it runs; None: the provider cannot know


class Flavour:
    """Base of the marker classes for ``require_sandbox(Blaxel)``: what one provider has beyond the neutral face."""

    provider: ClassVar[str]


class Local(Flavour):
    """Sandboxes on this machine; their neutral face is all there is."""

    provider = "local"


class Blaxel(Flavour):
    """Blaxel's sandboxes; the flavoured face has ``await client()``, the SDK's own instance."""

    provider = "blaxel"


class Sandbox(ABC):
    """One sandbox, the same face on every provider.

    Every method raises a ``ProviderError`` (see ``engine.sandboxes.errors``) when the provider fails, which means
    that the attempt did not happen. Cancelling ``exec`` ends the command.
    """

    def __init__(self, name: str, provider: str, isolation: str, workdir: str = WORKDIR) -> None:
        self.name = name
        self.provider = provider
        self.isolation = isolation
        #: Where commands start and relative paths begin; differs from ``/work`` only without a private root.
        self.workdir = workdir

    @abstractmethod
    async def write_tree(self, files: Tree, root: str = WORKDIR) -> None:
        """Write files below ``root``, making directories; whatever lies in the way of a file is replaced.

        Raises InvalidRequest for paths that are absolute, climb (``..``) or hold NUL, before anything is written;
        SandboxFileError where the sandbox's disk is full or refuses.
        """

    @abstractmethod
    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float,
        max_output: int = DEFAULT_MAX_OUTPUT,
        merge_stderr: bool = False,
    ) -> Exec:
        """Run a shell command line (or a list of words without a shell) and wait for it.

        At ``timeout`` seconds the command and everything it started is ended (SIGTERM, then SIGKILL). What a
        command that ended by itself left in the background stays until ``kill``, ``kill_all`` or release.
        ``merge_stderr`` sends both streams into one, in exact order, as ``stdout`` and ``output``.
        """

    @abstractmethod
    async def processes(self) -> list[Process]:
        """What runs in the sandbox now, oldest first; the provider's own processes are left out."""

    @abstractmethod
    async def kill(self, process: int | Process) -> bool:
        """End a process and its descendants at once (SIGKILL). False where it was gone already."""

    @abstractmethod
    async def kill_all(self) -> None:
        """End every process of the sandbox, detached ones too; returns when they are gone."""

    @abstractmethod
    async def read(self, path: str, max_bytes: int = 16 * 1024 * 1024) -> bytes:
        """The content of a file. Raises SandboxFileError (missing, directory, too_large, …)."""

    @abstractmethod
    async def ensure_alive(self) -> None:
        """Return if the sandbox answers; raise SandboxGone if it does not."""

    def flavour(self, kind: type[Flavour] | None = None) -> Any:
        """The face that ``kind`` has on this provider; the neutral one without ``kind``.

        Raises PermanentError where the sandbox is of another provider.
        """
        if kind is None or kind.provider == self.provider:
            return self
        raise PermanentError(
            f"this episode asks for a {kind.provider} sandbox, but the config's provider is {self.provider}"
        )


@runtime_checkable
class Provider(Protocol):
    """Who creates sandboxes. All methods may be called many times at once on one event loop."""

    name: str

    async def probe(self) -> ProviderReport:
        """What holds here, found out by trying; creates nothing that costs. Never raises a ProviderError."""
        ...

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox; it is ready for commands. Raises ProviderError, InvalidRequest.

        After an error or a cancellation a sandbox of that name may exist: release the name.
        """
        ...

    async def release(self, name: str, *, settle_seconds: float = 0.0) -> Released:
        """End the sandbox of that name, whoever made it, and confirm that nothing is left. Idempotent.

        ``settle_seconds``: how long a creation of that name, which another process had asked for, may still be under
        way; a name that is missing is confirmed only after that.
        Raises ProviderError where that could not be confirmed.
        """
        ...

    async def list(self, labels: Mapping[str, str] | None = None) -> list[ProviderSandbox]:
        """The sandboxes that carry all these labels, also those of other and of dead processes."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and helpers. The sandboxes that are left are ended or abandoned to their ttl."""
        ...
