"""From a config's path to settings one can rely on: overrides, paths, .env files and rules applied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.config.addresses import web_address
from engine.config.any_recipe import AnySettings, problems_between_keys, settings_type
from engine.config.bundled import bundled_path
from engine.config.environment import apply_to_process, env_file_doubts, read_env_files
from engine.config.explain import explain
from engine.config.overrides import Overrides, apply_overrides, parse_overrides
from engine.config.parsing import read_config
from engine.config.positions import KeyLines
from engine.config.problems import ConfigError, Problem
from engine.config.secrets import redact, secret_values
from engine.config.settings import EffectiveScope, Settings, scope_of
from engine.config.sft import SftSettings
from engine.config.values import OUTPUT, unusable_values

_PATH_KEYS = ("runtime.config.tasks", "eval.tasks", "data.train", "data.validation")
_MAYBE_PATH_KEYS = ("model.tokenizer", "model.base_model")
_NAMING_KEYS = ("model.renderer", "model.from_checkpoint")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A config as it will run, with what a message needs to point at its cause."""

    path: Path  # absolute, as it was named
    source: Path  # the file it is, links followed; paths and modules lie beside it
    working_dir: Path
    settings: AnySettings
    scope: EffectiveScope
    overrides: dict[str, Any]
    environ: Mapping[
        str, str
    ]  # the process's variables over the .env files'; [compute] base_url over LOOPS_BASE_URL
    env_files: tuple[Path, ...]  # those that were read
    env_doubts: tuple[Problem, ...]  # what of them, or of others with their name, was not
    table: dict[str, Any]  # as written, overrides applied, paths absolute
    lines: KeyLines = field(repr=False)

    @property
    def rl(self) -> Settings:
        """The settings of an RL config. Raises TypeError for another recipe's."""
        if not isinstance(self.settings, Settings):
            raise TypeError(f"{self.source} is of the recipe {self.settings.recipe!r}, not 'rl'")
        return self.settings

    @property
    def sft(self) -> SftSettings:
        """The settings of an SFT config. Raises TypeError for another recipe's."""
        if not isinstance(self.settings, SftSettings):
            raise TypeError(f"{self.source} is of the recipe {self.settings.recipe!r}, not 'sft'")
        return self.settings

    @property
    def directory(self) -> Path:
        """Where relative paths begin and modules are found."""
        return self.source.parent

    @property
    def runs_dir(self) -> Path:
        """``<output_dir>/<name>``: every run of this config gets a directory in it."""
        return self.settings.output.output_dir / (self.settings.output.name or self.directory.name)

    def problem(self, key: str, text: str, remedy: str | None = None) -> Problem:
        """A problem at the line of ``key``."""
        return place(Problem(text, key=key, remedy=remedy), self.source, self.lines, self.overrides)

    def as_run(self) -> str:
        """The config as TOML, overrides applied and paths absolute, without secrets."""
        import tomlkit  # 50 ms that a first paint need not wait for

        document = tomlkit.document()
        document.add(tomlkit.comment(f"As run. Source: {self.source}"))
        for key, value in self.overrides.items():
            document.add(tomlkit.comment(f"override: {key} = {_one_line(value)}"))
        document.update(_without_none(self.table))
        return redact(tomlkit.dumps(document), secret_values(self.environ))


def load_config(
    path: str | os.PathLike[str],
    overrides: Overrides = None,
    *,
    env_file: str | os.PathLike[str] | None = None,
    dotenv: bool = False,
    working_dir: str | os.PathLike[str] | None = None,
    text: str | None = None,
) -> LoadedConfig:
    """Load a TOML or JSON config.

    ``path`` is relative to the working directory; a bundled example's path works from anywhere, and a file of that
    path in the working directory wins. ``dotenv`` reads ``.env`` beside the config and in the working directory;
    ``env_file`` reads that file, relative to the config, before them. Neither replaces what the process sets.
    ``text`` is what an editor holds: it counts instead of what the file says.

    Raises ConfigError with every problem found.
    """
    base = Path(os.path.expanduser(working_dir)).resolve() if working_dir is not None else Path.cwd()
    named = find_config(path, base)
    source = _source(named)
    _refuse_unwritable(source, named)
    _, table, lines = read_config(source, named, text)

    files: list[Path] = []
    if env_file is not None:
        file = source.parent / os.path.expanduser(env_file)
        if not os.path.isfile(file):
            raise ConfigError(
                [Problem("there is no such .env file", file, remedy="Name one beside the config")]
            )
        files.append(file)
    if dotenv:
        files += [source.parent / ".env", base / ".env"]
    values, used = read_env_files(files)
    apply_to_process(values)
    environ = {**values, **os.environ}

    parsed = parse_overrides(overrides)
    apply_overrides(table, parsed)
    settings, scope, problems = validate(table, parsed, source, base, environ)
    if settings is not None and not problems:
        if settings.compute.base_url is not None:
            environ["LOOPS_BASE_URL"] = settings.compute.base_url
        return LoadedConfig(
            path=named,
            source=source,
            working_dir=base,
            settings=settings,
            scope=scope,
            overrides=parsed,
            environ=environ,
            env_files=tuple(used),
            env_doubts=tuple(env_file_doubts(files)),
            table=table,
            lines=lines,
        )
    placed = [place(problem, source, lines, parsed) for problem in problems]
    raise ConfigError(sorted(placed, key=lambda problem: (problem.line is None, problem.line or 0)))


def validate(
    table: dict[str, Any], overrides: Mapping[str, Any], source: Path, base: Path, environ: Mapping[str, str]
) -> tuple[AnySettings | None, EffectiveScope, list[Problem]]:
    """The settings of a table (None where it holds none), the scope, and every problem, not yet placed on lines.

    ``table`` is filled in on the way: its paths become absolute, and its runs get a name.
    """
    if not table:
        remedy = 'Begin with recipe = "rl" or "sft"; `loops-tui settings` lists what may follow'
        return None, "auto", [Problem("the config holds no settings", remedy=remedy)]
    if unusable := list(unusable_values(table, (*_PATH_KEYS, OUTPUT), (*_MAYBE_PATH_KEYS, *_NAMING_KEYS))):
        return None, "auto", unusable
    scope, scope_problem = _scope(table, environ)
    _make_paths_absolute(table, overrides, source.parent, base, local=scope == "local")
    _fill_name(table, source)
    settings: AnySettings | None = None
    kind = settings_type(table)
    try:
        settings = kind.model_validate(table)
    except ValidationError as error:
        problems = explain(error, model=kind)
    else:
        problems = list(problems_between_keys(settings, scope))
    if scope_problem is not None:
        problems.append(scope_problem)
    if scope != "local" and (settings is None or settings.compute.base_url is None):
        problems += _address_problem(environ.get("LOOPS_BASE_URL"))
    return settings, scope, problems


def place(problem: Problem, source: Path, lines: KeyLines, overrides: Mapping[str, Any]) -> Problem:
    """``problem`` with the file and line of its key; an override's problem belongs to the override, not to a line."""
    key = problem.key
    if key is None:
        return (
            problem if problem.file is not None else Problem(problem.text, source, None, None, problem.remedy)
        )
    for override in overrides:
        tables = (key, key.rpartition(".")[0])
        made = any(override.startswith(f"{table}.") and table not in lines for table in tables)
        if key == override or key.startswith(f"{override}.") or made:
            text, remedy = f"override {override}: {problem.text}", problem.remedy
            if remedy is None and " must be text in quotes" in problem.text:
                remedy = f"Quote it for the shell as well: --set '{override}=\"…\"'"
            return Problem(text, None, None, key, remedy)
    return Problem(problem.text, source, lines.line(key), key, problem.remedy)


def find_config(config: str | os.PathLike[str], base: Path) -> Path:
    """The absolute path of a config as it is named, there or not: in ``base``, or else among the bundled examples."""
    path = Path(os.path.expanduser(config))
    here = base / path
    if not os.path.lexists(here) and (bundled := bundled_path(path)) is not None:
        return bundled
    return Path(os.path.normpath(here))


def _source(named: Path) -> Path:
    """The file behind all links. Raises ConfigError where there is no end of them."""
    try:
        return named.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself; a NUL in the name
        reason = "its links lead in a circle" if named.is_symlink() else str(error)
        raise ConfigError(
            [
                Problem(
                    f"the config cannot be found: {reason}", file=named, remedy="Name a .toml or .json file"
                )
            ]
        ) from error


def _refuse_unwritable(source: Path, named: Path) -> None:
    """Raises ConfigError for a path that no store and no run directory could repeat."""
    try:
        f"{source}{named}".encode()
    except UnicodeEncodeError as error:
        text = "the path of the config is not UTF-8 text"
        raise ConfigError([Problem(text, named, remedy="Rename the file or directory")]) from error


def _scope(table: dict[str, Any], environ: Mapping[str, str]) -> tuple[EffectiveScope, Problem | None]:
    """The scope that the rest of loading reckons with; a wrong one in the config is reported by its validation."""
    compute = table.get("compute")
    configured = compute.get("scope") if isinstance(compute, dict) else None
    if configured in ("local", "serverless", "dedicated"):
        return configured, None
    try:
        return scope_of(None, environ.get("BASETEN_LOOPS_SCOPE")), None
    except ValueError as error:
        text = str(error)
        return "auto", Problem(text, remedy="Unset it, or set [compute] scope in the config")


def _address_problem(address: str | None) -> list[Problem]:
    try:
        web_address(address or None)
    except ValueError as error:
        remedy = "Unset it, or set [compute] base_url in the config"
        return [Problem(f"the environment variable LOOPS_BASE_URL {error}", remedy=remedy)]
    return []


def _make_paths_absolute(
    table: dict[str, Any], overrides: Mapping[str, Any], config_dir: Path, working_dir: Path, *, local: bool
) -> None:
    for key in _PATH_KEYS:
        base = working_dir if key in overrides else config_dir
        _change(table, key, lambda value, base=base: _absolute(value, base))
    for key in _MAYBE_PATH_KEYS:
        base = working_dir if key in overrides else config_dir
        hub_wins = key == "model.base_model" and not local

        def change(value: str, base: Path = base, hub_wins: bool = hub_wins) -> str:
            looks = value.startswith(("./", "../", "/", "~")) or value in {".", ".."}
            is_path = looks or (not hub_wins and os.path.isdir(base / value))
            return _absolute(value, base) if is_path else value

        _change(table, key, change)
    output = table.get("output")
    if "output" not in table or isinstance(output, dict):
        table.setdefault("output", {}).setdefault("output_dir", "runs")
        _change(table, "output.output_dir", lambda value: _absolute(value, working_dir))


def _absolute(value: str, base: Path) -> str:
    # os.path, not Path: a home that nobody has and a name too long for a file system are told later, as missing files.
    return os.path.normpath(os.path.join(base, os.path.expanduser(value))) if value else value


def _change(table: dict[str, Any], key: str, change: Any) -> None:
    *path, last = key.split(".")
    here: Any = table
    for part in path:
        here = here.get(part) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        return
    value = here.get(last)
    if isinstance(value, str):
        here[last] = change(value)
    elif isinstance(value, list):
        here[last] = [change(item) if isinstance(item, str) else item for item in value]


def _fill_name(table: dict[str, Any], source: Path) -> None:
    """The config's directory names its runs unless the config does; characters no name can hold become dashes."""
    output = table.get("output")
    if isinstance(output, dict) and output.get("name") is None:
        name = "".join(
            char if char.isascii() and (char.isalnum() or char in "._-") else "-"
            for char in source.parent.name
        )
        output["name"] = name.strip("._-")[:100] or "run"


def _without_none(value: Any) -> Any:
    """TOML has no null: a JSON config's nulls mean "not set"."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_none(inner) for inner in value if inner is not None]
    return value


def _one_line(value: Any) -> str:
    return " ".join(repr(value).split())
