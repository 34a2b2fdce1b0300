"""Which files an attempt may change: nothing that decides the verdict, by path or by what it does."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

#: Files that change how tests run although no test is in them. They may stay as they are, never be new or changed.
HOOKS: tuple[str, ...] = (
    "conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "noxfile.py",
    ".coveragerc", "sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", "*.pyo", "*.so", "*.pyd", "__pycache__",
    "makefile", "gnumakefile", "package.json", "jest.config.*", "vitest.config.*", ".mocharc*", "*.egg-info",
    ".env", ".git", "pyvenv.cfg",
)  # fmt: skip
#: Modules that a test run imports: a file of that name in the workspace would be imported instead.
RUNNERS = frozenset({"pytest", "_pytest", "pluggy", "nose", "hypothesis", "iniconfig", "py"})

#: What a solution has no business with: ending the process, reaching into the test run, or hiding from it.
FORBIDDEN_CODE: Mapping[str, re.Pattern[str]] = {
    what: re.compile("|".join(patterns), re.MULTILINE)
    for what, patterns in {
        "ends the process": (r"\b_exit\b", r"\bos\s*\.\s*(?:kill\w*|abort|exec\w+|fork\w*)\b", r"\braise_signal\b"),
        "leaves the test run": (
            r"\bsys\s*\.\s*exit\b", r"\bSystemExit\b", r"\bKeyboardInterrupt\b", r"(?<![\w.])(?:quit|exit)\s*\(",
        ),
        "reaches into the test runner": (
            r"\b(?:import|from)\s+(?:unittest|pytest|_pytest|doctest|runpy)\b", r"['\"](?:unittest|pytest|runpy)\b",
        ),
        "acts after the tests": (r"\batexit\b", r"\b__del__\b", r"\bweakref\s*\.\s*finalize\b", r"\bthreading\b"),
        "looks at who calls it": (
            r"\b_getframe\b", r"\binspect\b", r"\bset(?:trace|profile)\b", r"\bgc\s*\.\s*get_\w+",
            r"\b(?:tb_frame|f_back|f_locals|f_globals|gi_frame)\b", r"/proc/",
        ),
        "rewrites what others use": (
            r"\bsys\s*\.\s*(?:modules|meta_path|path_hooks|stdout|stderr|excepthook|path)\b", r"\b_{0,2}builtins?_{0,2}\b",
            r"\bctypes\b", r"\bimportlib\b", r"\b__import__\b", r"\b__class__\s*=", r"\b__main__\b", r"\bsys\s+as\b",
            r"\bfrom\s+sys\s+import\b", r"\b__(?:subclasses|globals|traceback|code|closure|loader|spec)__",
        ),
        "is equal to everything": (
            r"def\s+__(?:eq|ne|lt|le|gt|ge)__\s*\([^)]*\)[^:]*:\s*return\s+(?:True|1|not\s+(?:None|False|0))\b", r"__(?:eq|ne|lt|le|gt|ge)__['\"]?\s*[:=]\s*lambda",
        ),
        "reads the tests": (r"['\"][^'\"\n]*\btests?(?:\.py|/)[^'\"\n]*['\"]", r"\b(?:import|from)\s+tests?\b"),
        "hides what it touches": (
            r"\b(?:getattr|setattr|delattr)\s*\(\s*[^,\n]+,(?!\s*['\"]\w+['\"]\s*[,)])",
            r"\b(?:attrgetter|methodcaller)\s*\((?!\s*['\"][\w.]+['\"]\s*[,)])", r"(?<![\w.])(?:vars|globals|locals)\s*\(",
        ),
        "hides its code": (r"(?<![\w.])(?:exec|eval|compile)\s*\(", r"\bb64decode\b", r"\bmarshal\b", r"\bfromhex\b"),
    }.items()
}  # fmt: skip


class Refused(Exception):
    """A change that decides the verdict at once; the message is one sentence."""


def require_allowed(
    writes: Mapping[str, bytes | None],
    workspace: Mapping[str, bytes],
    protected: Sequence[str],
    *,
    hooks: Sequence[str] = HOOKS,
    forbidden: Mapping[str, re.Pattern[str]] = FORBIDDEN_CODE,
) -> dict[str, bytes | None]:
    """The changes under their plain paths. ``writes``: path to content, None where the file is deleted.

    Args:
        workspace: the files as they were given to the agent.
        protected: patterns of paths that nobody may touch, such as ``tests/*`` or ``tests.py``; ``*`` also matches
            ``/``, and a directory protects all that is in it.
        hooks: patterns of names that change how tests run.
        forbidden: what Python code of a solution may not do, by name.

    Raises:
        Refused: one of them may not be made.
    """
    allowed: dict[str, bytes | None] = {}
    for given, content in writes.items():
        path = _plain(given)
        before = workspace.get(path)
        if content is not None and content == before:
            continue  # nothing changes
        _require_not_protected(path, content, protected, workspace)
        if content is None:
            if before is not None and any(_named(part, hooks) for part in PurePosixPath(path).parts):
                raise Refused(f"deleted {path}, which decides how the tests run")
        else:
            _require_no_hook(path, hooks, workspace)
            _require_fair(path, content, before, forbidden)
        allowed[path] = content
    return allowed


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path, or a directory it lies in, matches one of the patterns; letter case does not matter."""
    folded = _fold(path)
    ways = ["/".join(folded.split("/")[:end]) for end in range(1, folded.count("/") + 2)]
    return any(fnmatchcase(way, _fold(pattern).rstrip("/")) for pattern in patterns for way in ways)


def _plain(given: str) -> str:
    path = PurePosixPath(given)
    if (
        not given
        or "\0" in given
        or "\\" in given
        or path.is_absolute()
        or ".." in path.parts
        or len(given) > 1024
    ):
        raise Refused(f"refused to write outside the workspace: {given[:200]!r}")
    if any(not char.isprintable() for char in given):
        raise Refused(f"a path with characters that nobody can see: {given[:200]!r}")
    plain = str(path)
    if plain == ".":
        raise Refused(f"refused to write outside the workspace: {given[:200]!r}")
    return plain


def _require_not_protected(
    path: str, content: bytes | None, protected: Sequence[str], workspace: Mapping[str, bytes]
) -> None:
    if matches(path, protected):
        raise Refused(f"{'deleted' if content is None else 'wrote'} a protected file: {path}")
    for other in workspace:
        if matches(other, protected):
            if _fold(other).startswith(f"{_fold(path)}/"):
                raise Refused(f"put a file in the place of a directory of protected ones: {path}")
            if content is not None and content.strip() and content == workspace[other]:
                raise Refused(f"copied a protected file: {other} to {path}")


def _require_no_hook(path: str, hooks: Sequence[str], workspace: Mapping[str, bytes]) -> None:
    parts = PurePosixPath(path).parts
    for part in parts:
        if _named(part, hooks):
            raise Refused(f"{path} would change how the tests run")
    if path in workspace:
        return
    # A new module in the place of one that the test run imports. Only where imports look: at the top, or in a package
    # directory at the top that no __init__ makes a package of the workspace's own.
    stem = _fold(parts[0].removesuffix(".py") if len(parts) == 1 else parts[0])
    names = {stem, _fold(PurePosixPath(path).stem) if len(parts) == 2 else stem}
    taken = {_fold(name) for name in sys.stdlib_module_names} | RUNNERS
    own = {_fold(PurePosixPath(other).parts[0].removesuffix(".py")) for other in workspace}
    shadowed = sorted(name for name in names & taken if name not in own)
    if shadowed and path.endswith((".py", "/__init__.py")):
        raise Refused(f"{path} would be imported instead of the module {shadowed[0]}")


def _require_fair(
    path: str, content: bytes, before: bytes | None, forbidden: Mapping[str, re.Pattern[str]]
) -> None:
    if not path.endswith(".py"):
        return
    text = content.decode("utf-8", "replace")
    known = "" if before is None else before.decode("utf-8", "replace")
    for what, pattern in forbidden.items():
        found = pattern.search(text)
        # What the repository did before is its own way of working.
        if found is not None and found.group() not in known:
            raise Refused(f"{path} {what}: {found.group().strip()[:80]!r}")


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(_fold(name), _fold(pattern)) for pattern in patterns)


def _fold(text: str) -> str:
    """As a file system that ignores case and Unicode forms sees it."""
    return unicodedata.normalize("NFKC", text).casefold()
