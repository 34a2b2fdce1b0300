"""Imports the modules that lie beside a config.

Every load gets a namespace of its own: two projects with modules of the same name do not see each other's, and an
edited module is read anew. Inside it, ``import sibling`` finds the file beside the config first, as it would in a
script's directory; nothing is written into that directory, not even byte code.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from engine.config.problems import ConfigError, Problem, did_you_mean
from engine.config.user_errors import at_the_keyboard, message_of

_PREFIX = "_loops_project_"
_numbers = itertools.count(1)
# A config may lie in a directory that also holds these packages (a checkout): a second copy of them would define
# a second Episode class.
_NEVER_SIBLINGS = frozenset({"engine", "loops_tui", "loops_cookbook"})


class ProjectModules:
    """The modules beside one config, under a package name that nobody else has."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.package = f"{_PREFIX}{next(_numbers)}"
        self._builtins = {**vars(builtins), "__import__": self._import}
        root = ModuleType(self.package)
        root.__path__ = [str(directory)]
        _Finder.install()
        _Finder.projects[self.package] = self
        sys.modules[self.package] = root
        if (
            str(directory) not in sys.path
        ):  # last: for importlib.import_module and for the caller's own imports
            sys.path.append(str(directory))

    def load(self, name: str) -> ModuleType:
        """Import ``name``, a module beside the config; raises ConfigError with the file and line at fault."""
        importlib.invalidate_caches()
        file = self.directory.joinpath(*name.split("."))
        source = file.with_suffix(".py")
        if not os.path.isfile(source) and not os.path.isfile(file / "__init__.py"):
            what = "is no regular file" if os.path.exists(source) else "does not exist"
            text = f"there is no module {name!r} beside the config: {source} {what}"
            raise ConfigError([Problem(text, remedy=self._nearest(name))])
        try:
            return importlib.import_module(f"{self.package}.{name}")
        except BaseException as error:  # a script that calls sys.exit() when imported must not end the engine
            if at_the_keyboard(error):
                raise
            raise ConfigError([self._why(name, error)]) from error

    def close(self) -> None:
        """Forget the namespace; objects that still hold its classes keep working."""
        _Finder.projects.pop(self.package, None)
        for name in [name for name in sys.modules if name.split(".")[0] == self.package]:
            del sys.modules[name]

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """The import statement of the project's modules: a file beside the config comes first."""
        top = name.partition(".")[0]
        if level == 0 and self._is_sibling(top):
            inner = f"{self.package}.{name}"
            if fromlist:
                return builtins.__import__(inner, globals, locals, fromlist, 0)
            importlib.import_module(inner)
            return sys.modules[f"{self.package}.{top}"]
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    def _is_sibling(self, top: str) -> bool:
        if not top or top in _NEVER_SIBLINGS:
            return False
        directory = self.directory / top
        if (self.directory / f"{top}.py").is_file() or (directory / "__init__.py").is_file():
            return True
        # A bare directory is a package only where nothing installed has its name (a data/ or wandb/ directory). A spec
        # without an origin is such a directory again, found through sys.path.
        if not directory.is_dir() or top in sys.modules:
            return False
        spec = importlib.util.find_spec(top)
        return spec is None or spec.origin is None

    def _nearest(self, name: str) -> str | None:
        names = [file.stem for file in self.directory.glob("*.py") if file.is_file()]
        meant = did_you_mean(name, names)
        if meant:
            return f"Did you mean {meant!r}?"
        return f"Modules there: {', '.join(sorted(names)[:8])}" if names else None

    def _why(self, name: str, error: BaseException) -> Problem:
        said = message_of(error).replace(f"{self.package}.", "")
        what = f"{type(error).__name__}: {said}" if said else type(error).__name__
        if isinstance(error, SyntaxError) and error.filename:
            what = f"{type(error).__name__}: {error.msg}"  # its text would name the line again
            remedy = "Mend the line, or the one before it"
            return Problem(
                f"the module {name!r} is not Python: {what}", Path(error.filename), error.lineno, None, remedy
            )
        if isinstance(error, SyntaxError):  # not even text
            file = self.directory.joinpath(*name.split(".")).with_suffix(".py")
            return Problem(f"the module {name!r} is not Python: {what}", file, remedy="Save it as UTF-8 text")
        frames = traceback.extract_tb(error.__traceback__)
        for frame in reversed(frames):
            if Path(frame.filename).is_relative_to(self.directory):
                file, line = Path(frame.filename), frame.lineno
                break
        else:
            file, line = self.directory.joinpath(*name.split(".")).with_suffix(".py"), None
        remedy = f"`python {file.name}` in its directory shows the whole traceback"
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        if missing.partition(".")[0] == "loops_cookbook":  # its stand-in lacks most of it
            what, remedy = (
                f"{missing} is not available in this version",
                "Only loops_cookbook.episodes and loops_cookbook.project are",
            )
        elif missing.startswith(f"{self.package}."):
            remedy = f"Put {missing.removeprefix(f'{self.package}.').replace('.', '/')}.py beside the config"
        elif missing:
            remedy = f"Install {missing.partition('.')[0]}, or put it beside the config"
        elif isinstance(error, ImportError) and error.name_from:
            what = f"{error.name} has no {error.name_from!r}".replace(f"{self.package}.", "")
            meant = did_you_mean(error.name_from, dir(sys.modules.get(error.name or "")))
            remedy = f"Did you mean {meant!r}?" if meant else f"It was imported from {error.path}"
        elif isinstance(error, KeyError) and frames[-1].filename in ("<frozen os>", os.__file__):
            what = f"there is no environment variable {error.args[0]}"
            remedy = "Set it, in the environment or in a .env file beside the config"
        elif isinstance(error, FileNotFoundError):
            remedy = "Paths begin in the working directory; the module's own is Path(__file__).parent"
        return Problem(f"the module {name!r} cannot be imported: {what}", file, line, None, remedy)


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the file as it is now: a byte-code cache is trusted by mtime, which two quick edits share."""

    def __init__(self, fullname: str, path: str, project: ProjectModules) -> None:
        super().__init__(fullname, path)
        self._project = project

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        # Import statements look __import__ up in the module's own builtins.
        vars(module)["__builtins__"] = self._project._builtins
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules below a project's package."""

    projects: dict[str, ProjectModules] = {}  # noqa: RUF012 - one table for the process, like sys.modules

    @classmethod
    def install(cls) -> None:
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        project = self.projects.get(fullname.partition(".")[0])
        if project is None or path is None:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, project)
            spec.cached = None
        return spec
