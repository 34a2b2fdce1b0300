"""The test suite as a verdict: in a fresh sandbox, on a fresh copy, with the files that the attempt wrote."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from engine.rewards.changes import ChangeLimits, Content, as_bytes, collect_changes
from engine.rewards.protected import FORBIDDEN_CODE, HOOKS, Refused, require_allowed
from engine.rewards.scored import Reward
from engine.sandboxes.contract import Sandbox
from engine.store.reward_names import REFUSED

type Kind = Literal["script", "unittest", "command"]
type Why = Literal["passed", "failed", "refused", "nothing_written", "timed_out", "limits", "cut"]

_SLACK_SECONDS = 10.0
"""What the sandbox may take around the test run's own deadline."""


@dataclass(frozen=True, slots=True)
class Suite:
    """How a workspace is judged.

    ``kind``: "script" runs ``target``, a Python file of plain assertions, to its end; "unittest" the tests of ``target``
    (a file or a directory), one by one; "command" a command line, of which only the exit status is known, so prefer the
    other two where they can be used. ``protected``: patterns of paths that may not be touched (see
    :func:`engine.rewards.protected.require_allowed`); ``target`` always is. Sizes in MiB, times in seconds.
    ``expected``: how many tests there are in an honest run; fewer mean that some were lost. ``passing``: how many of
    them pass on the workspace as the agent gets it. Partial credit is for the others alone, or a change that changes
    nothing would earn it.
    """

    kind: Kind
    target: str = ""
    command: Sequence[str] = ()
    protected: Sequence[str] = ()
    expected: int | None = None
    passing: int = 0
    seconds: float = 120.0
    cpu_seconds: int = 120
    memory_mb: int = 1024
    file_mb: int = 16
    processes: int = 256
    hooks: Sequence[str] = HOOKS
    forbidden: Mapping[str, re.Pattern[str]] = field(default_factory=lambda: FORBIDDEN_CODE)

    def __post_init__(self) -> None:
        """Raises ValueError where it does not say what to run."""
        if self.kind == "command" and not self.command:
            raise ValueError("a suite of kind 'command' needs a command")
        if self.kind != "command" and not self.target:
            raise ValueError(f"a suite of kind {self.kind!r} needs a target")
        if not 0 <= self.passing < (self.expected or self.passing + 1):
            raise ValueError(
                f"of {self.expected} tests, {self.passing} cannot pass before anything is changed"
            )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the suite said. ``reason`` is one sentence; ``before`` of the tests passed before anything was changed."""

    why: Why
    reason: str
    passed: int = 0
    total: int = 0
    before: int = 0

    @property
    def ok(self) -> bool:
        return self.why == "passed"

    @property
    def fraction(self) -> float:
        """The share of the tests to be mended that were; 0 for everything but a run that came to its end."""
        if self.why not in ("passed", "failed") or self.total <= self.before:
            return 0.0
        return max(0, self.passed - self.before) / (self.total - self.before)

    def reward(self, value: float = 1.0, *, partial: bool = False) -> Reward:
        """``value`` for a suite that passes, otherwise 0, or with ``partial`` the share of the tests that pass."""
        earned = self.fraction if partial else float(self.ok)
        return Reward(value * earned, reason=f"{REFUSED if self.why == 'refused' else ''}{self.reason}")


async def run_suite(
    sandbox: Sandbox,
    workspace: Mapping[str, Content],
    writes: Mapping[str, Content | None],
    suite: Suite,
) -> Verdict:
    """Judge an attempt's changes in a sandbox that nothing else has been in.

    Args:
        sandbox: a fresh one (``grading.fresh_sandbox()``); what the agent's own left running cannot reach it.
        workspace: the files as the agent got them, path to content.
        writes: what the attempt changed, path to content, None for a deleted file.

    Raises:
        ProviderError: the sandbox failed, so nothing was judged.
    """
    copy = _copy(workspace, writes, suite)
    return copy if isinstance(copy, Verdict) else await _run(sandbox, copy, suite)


async def judge_sandbox(
    agent: Sandbox,
    fresh: Callable[[], AbstractAsyncContextManager[Sandbox]],
    workspace: Mapping[str, Content],
    suite: Suite,
    limits: ChangeLimits | None = None,
) -> Verdict:
    """Judge what an agent left in its own sandbox, in another one: :func:`collect_changes`, then :func:`run_suite`.

    Args:
        agent: ``grading.require_execution_sandbox()``. Every process in it is ended.
        fresh: ``grading.fresh_sandbox``; called only where there is something to run.
        workspace: the files as the agent got them in its working directory, path to content.

    Raises:
        ProviderError: one of the sandboxes failed, so nothing was judged.
    """
    try:
        writes = await collect_changes(agent, workspace, limits)
    except Refused as refused:
        return Verdict("refused", str(refused))
    copy = _copy(workspace, writes, suite)
    if isinstance(copy, Verdict):
        return copy
    async with fresh() as sandbox:
        return await _run(sandbox, copy, suite)


def _copy(
    workspace: Mapping[str, Content], writes: Mapping[str, Content | None], suite: Suite
) -> dict[str, bytes] | Verdict:
    """The workspace with the attempt's changes, or the verdict on changes that need no run."""
    before = {path: as_bytes(content) for path, content in workspace.items()}
    changes = {path: None if content is None else as_bytes(content) for path, content in writes.items()}
    if not changes:
        return Verdict("nothing_written", "no file was written")
    protected = [*suite.protected, *([suite.target] if suite.target else [])]
    try:
        allowed = require_allowed(changes, before, protected, hooks=suite.hooks, forbidden=suite.forbidden)
    except Refused as refused:
        return Verdict("refused", str(refused))
    if not allowed:
        return Verdict("nothing_written", "every file that was written is as it was before")
    copy = {**before, **{path: content for path, content in allowed.items() if content is not None}}
    for path, content in allowed.items():
        if content is None:
            copy.pop(path, None)
    return copy


async def _run(sandbox: Sandbox, copy: Mapping[str, bytes], suite: Suite) -> Verdict:
    nonce = secrets.token_hex(24)
    place = f"/tmp/suite-{secrets.token_hex(8)}"
    await sandbox.write_tree(copy)
    await sandbox.write_tree({"run.py": _INSIDE, "request.json": json.dumps(_request(suite, nonce))}, place)
    done = await sandbox.exec(
        ["python3", "-I", "-S", "-B", f"{place}/run.py"],
        timeout=suite.seconds + _SLACK_SECONDS,
        max_output=1024 * 1024,
    )
    found = _told(done.stdout, nonce)
    if found is None:
        await sandbox.ensure_alive()
        if done.status == "timed_out":
            return Verdict("timed_out", f"the test run did not end within {suite.seconds:g} s")
        said = (done.stderr or done.stdout).strip().splitlines()
        return Verdict(
            "cut", f"the test run told nothing: {said[-1][:200] if said else f'exit code {done.exit_code}'}"
        )
    return _verdict(found, suite)


def _verdict(found: Mapping[str, Any], suite: Suite) -> Verdict:
    ended = found["ended"]
    if ended == "timed_out":
        return Verdict("timed_out", f"timed out after {suite.seconds:g} s")
    if ended == "killed":
        limits = {
            "SIGXCPU": f"{suite.cpu_seconds} s of processor time",
            "SIGXFSZ": f"files of {suite.file_mb} MiB",
        }
        signal = found["signal"]
        if signal in limits:
            return Verdict("limits", f"the test run passed its limit of {limits[signal]}")
        return Verdict("cut", f"the test run was ended by {signal}")
    if ended == "cut":
        return Verdict("cut", "the test run was ended before it was through")
    passed, total, first = int(found["passed"]), int(found["total"]), str(found["first"])[:300]
    if "MemoryError" in first:
        return Verdict("limits", f"the test run passed its limit of {suite.memory_mb} MiB of memory")
    if suite.expected is not None and total != suite.expected:
        return Verdict("cut", f"{total} tests ran, and there are {suite.expected}")
    if total > 0 and passed == total:
        return Verdict("passed", "tests passed", passed, total, suite.passing)
    if total == 0:
        return Verdict("cut", "no test ran")
    share = f"{passed} of {total} tests passed" if suite.kind == "unittest" else "the tests failed"
    return Verdict("failed", f"{share}{f'; {first}' if first else ''}", passed, total, suite.passing)


def _request(suite: Suite, nonce: str) -> dict[str, Any]:
    return {
        "nonce": nonce,
        "kind": suite.kind,
        "target": suite.target,
        "command": list(suite.command),
        "seconds": suite.seconds,
        "cpu_seconds": suite.cpu_seconds,
        "memory_mb": suite.memory_mb,
        "file_mb": suite.file_mb,
        "processes": suite.processes,
    }


def _told(output: str, nonce: str) -> dict[str, Any] | None:
    for line in reversed(output.splitlines()):
        if line.startswith(f"{nonce} "):
            return json.loads(line.removeprefix(f"{nonce} "))
    return None


_INSIDE = resources.files("engine.rewards").joinpath("inside.py").read_text(encoding="utf-8")
