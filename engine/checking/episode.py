"""Finds the episode class that a config names, and its tasks and options."""

from __future__ import annotations

import difflib
import inspect
import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from engine.config.explain import words_of
from engine.config.loading import LoadedConfig
from engine.config.modules import ProjectModules
from engine.config.problems import ConfigError, Problem, did_you_mean
from engine.config.user_errors import at_the_keyboard, message_of, raised

if TYPE_CHECKING:
    from engine.episodes import Episode

_KEY = "runtime.config.episode"
_OPTIONS = "runtime.config.options"
_ARGUMENTS = {"setup": "setup", "run": "sample", "grade": "grading"}
_GRADE_GROUP = "Define @classmethod async def grade_group(cls, attempts)"


@dataclass(frozen=True, slots=True)
class LoadedEpisode:
    """An episode class that can be run, and the types it is bound to."""

    cls: type[Episode[Any, Any]]
    task_type: Any
    options: Any  # of the episode's options type; None where it takes none

    @property
    def name(self) -> str:
        return self.cls.__name__


def load_episode(config: LoadedConfig, modules: ProjectModules) -> LoadedEpisode:
    """Import the episode and validate its options; raises ConfigError."""
    from engine.episodes.contract import type_arguments
    from engine.episodes.cookbook import answer_for_cookbook

    answer_for_cookbook()
    named = config.rl.runtime.config.episode
    module_name, _, class_name = named.partition(":")
    if module_name.endswith(".py"):
        remedy = f"Write '{module_name.removesuffix('.py')}:{class_name}'"
        _raise(config, f"the episode {named!r} names a file where a module belongs", remedy)
    try:
        module = modules.load(module_name)
    except ConfigError as error:
        raise ConfigError([_at_episode(config, problem) for problem in error.problems]) from error
    try:
        found = getattr(module, class_name, None)
    except Exception as error:  # a module may have a __getattr__ of its own
        text = f"the module {module_name!r} raised {raised(error)}{_raised_at(error, config.directory)}"
        remedy = f"Define {class_name} in it"
        raise ConfigError([config.problem(_KEY, text, remedy)]) from error
    if found is None:
        _raise(config, *_no_such_class(module, module_name, class_name))
    cls = _checked_class(config, found, named)
    task_type, options_type = type_arguments(cls)
    _check_type(config, task_type, f"the task type of {cls.__name__}", "Episode[MyTask, None]")
    _check_type(config, options_type, f"the options type of {cls.__name__}", "Episode[MyTask, MyOptions]")
    return LoadedEpisode(cls, task_type, _options(config, options_type, cls.__name__))


def asks_for_sandbox(cls: type[Episode[Any, Any]]) -> str | None:
    """The method of an episode that asks for a sandbox in its own lines, if one does."""
    for method in ("setup", "run", "grade"):
        code = getattr(inspect.unwrap(getattr(cls, method)), "__code__", None)
        if code is not None and not {"require_sandbox", "require_execution_sandbox"}.isdisjoint(
            code.co_names
        ):
            return method
    return None


def _at_episode(config: LoadedConfig, problem: Problem) -> Problem:
    """An import's problem: at the user's file where that is known, otherwise at the config's line."""
    if problem.file is not None:
        return Problem(problem.text, problem.file, problem.line, _KEY, problem.remedy)
    return config.problem(_KEY, problem.text, problem.remedy)


def _raise(config: LoadedConfig, text: str, remedy: str | None = None, *, key: str = _KEY) -> None:
    raise ConfigError([config.problem(key, text, remedy)])


def _no_such_class(module: Any, module_name: str, class_name: str) -> tuple[str, str | None]:
    from engine.episodes import Episode

    episodes = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Episode) and value is not Episode
    ]
    meant = did_you_mean(class_name, episodes) or (episodes[0] if len(episodes) == 1 else None)
    remedy = f"Did you mean '{module_name}:{meant}'?" if meant else None
    if remedy is None:
        remedy = f"Episodes there: {', '.join(episodes)}" if episodes else "It defines no Episode"
    return f"the module {module_name!r} has no class {class_name!r}", remedy


def _checked_class(config: LoadedConfig, found: Any, named: str) -> type[Episode[Any, Any]]:
    from engine.episodes import Episode
    from engine.episodes.contract import compares, grades

    if not isinstance(found, type):
        _raise(config, f"{named!r} is no class, but a value of type {type(found).__name__}", "Name the class")
    if found is Episode:
        _raise(
            config, f"{named!r} is the class that episodes are derived from", "Name the one that you wrote"
        )
    if not issubclass(found, Episode):
        remedy = "Derive it from engine.episodes.Episode"
        # An installed cookbook brings an Episode of its own, which this engine cannot run.
        if any(base.__module__.startswith("loops_cookbook") for base in found.__mro__):
            remedy = "Import Episode from engine.episodes instead of the installed loops_cookbook"
        _raise(config, f"{named!r} is no Episode", remedy)
    problems = _declaration_problems(config, found)
    if problems:
        raise ConfigError(problems)
    # A class that compares its group's attempts need not grade each of them.
    methods = ("run", "grade", "setup") if grades(found) or not compares(found) else ("run", "setup")
    for method in methods:
        problem = _method_problem(config, found, method)
        if problem is not None:
            problems.append(problem)
    try:
        inspect.signature(found).bind("task", "options")
    except TypeError as error:
        problems.append(
            config.problem(
                _KEY,
                f"{found.__name__}() cannot be made with (task, options): {error}",
                "Define __init__(self, task, options)",
            )
        )
    problems += _unset_fields(config, found)
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        problems.append(config.problem(_KEY, f"{found.__name__} is abstract: it lacks {missing}"))
    if problems:
        raise ConfigError(problems)
    return found


def _unset_fields(config: LoadedConfig, cls: type[Episode[Any, Any]]) -> list[Problem]:
    """An __init__ that leaves the episode without its task."""
    written = getattr(inspect.unwrap(cls.__init__), "__code__", None)
    names = written.co_names if written is not None else ()
    if written is None or "__init__" in names or "task" in names:
        return []
    text = f"{cls.__name__}.__init__() never calls that of Episode, so there is no self.task"
    return [config.problem(_KEY, text, "Begin it with super().__init__(task, options)")]


def _declaration_problems(config: LoadedConfig, cls: type[Episode[Any, Any]]) -> list[Problem]:
    """What a class says of itself that no run could follow."""
    name, retries, problems = cls.__name__, cls.grading_retries, []
    compare = inspect.getattr_static(cls, "grade_group")
    if not isinstance(compare, classmethod) or not inspect.iscoroutinefunction(compare.__func__):
        text = f"{name}.grade_group() must be a class method and 'async def'"
        problems.append(config.problem(_KEY, text, _GRADE_GROUP))
    else:
        try:
            inspect.signature(cls.grade_group).bind("attempts")
        except TypeError as error:
            text = f"{name}.grade_group() must take one argument: {error}"
            problems.append(config.problem(_KEY, text, _GRADE_GROUP))
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        text = f"{name}.grading_retries must be a whole number from 0 on, not {retries!r}"
        problems.append(config.problem(_KEY, text, "Write grading_retries = 2, or leave it out"))
    for attribute in vars(cls):
        meant = difflib.get_close_matches(attribute, ("grading_retries", "model_access"), n=1, cutoff=0.85)
        if meant and meant != [attribute]:
            text = f"{name} sets {attribute}, which means nothing"
            problems.append(config.problem(_KEY, text, f"Did you mean {meant[0]!r}?"))
    if cls.model_access != "direct":
        text = f"{name}.model_access is {str(cls.model_access)!r}, which is not available in this version"
        problems.append(config.problem(_KEY, text, "Reach the model through sample.model ('direct')"))
    return problems


def _method_problem(config: LoadedConfig, cls: Any, method: str) -> Problem | None:
    from engine.episodes import Episode

    defined, name = getattr(cls, method), f"{cls.__name__}.{method}()"
    remedy = f"Define async def {method}(self, {_ARGUMENTS[method]})"
    if defined is getattr(Episode, method):
        return (
            None
            if method == "setup"
            else config.problem(_KEY, f"{cls.__name__} defines no {method}()", remedy)
        )
    if inspect.isasyncgenfunction(defined):
        return config.problem(_KEY, f"{name} holds a 'yield', so nothing awaits it", "Use 'return' alone")
    if not inspect.iscoroutinefunction(defined):
        return config.problem(_KEY, f"{name} must be 'async def'", remedy)
    try:
        inspect.signature(defined).bind("self", "argument")
    except TypeError as error:
        return config.problem(_KEY, f"{name} must take one argument: {error}", remedy)
    return None


def _check_type(config: LoadedConfig, bound: Any, what: str, example: str) -> None:
    if bound is None:
        return
    try:
        TypeAdapter(bound).rebuild(raise_errors=True)  # a name in it that is nowhere defined
    except Exception as error:  # pydantic raises several kinds for a type it cannot validate
        said = (
            message_of(error).partition(" For further information")[0].partition(" Set `arbitrary_types")[0]
        )
        text, remedy = (
            f"{what} cannot be validated: {said[:200]}",
            f"Make it a pydantic model, as in {example}",
        )
        raise ConfigError([config.problem(_KEY, text, remedy)]) from error


def _options(config: LoadedConfig, options_type: Any, class_name: str) -> Any:
    given = config.rl.runtime.config.options
    if options_type in (None, NoneType):
        if given:
            _raise(config, f"{class_name} takes no options", "Remove [runtime.config.options]", key=_OPTIONS)
        return None
    try:
        return TypeAdapter(options_type).validate_python(given)
    except ValidationError as error:
        raise ConfigError(_options_problems(config, error, options_type, class_name)) from error
    except BaseException as error:  # a validator of the user's options may raise anything
        if at_the_keyboard(error):
            raise
        where = _raised_at(error, config.directory)
        text = f"the options of {class_name} were refused: {raised(error)}{where}"
        raise ConfigError([config.problem(_OPTIONS, text, "Mend the options, or their validator")]) from error


def _options_problems(
    config: LoadedConfig, error: ValidationError, options_type: Any, class_name: str
) -> list[Problem]:
    fields = getattr(options_type, "model_fields", {})
    problems: list[Problem] = []
    for detail in error.errors(include_url=False):
        name = ".".join(str(part) for part in detail["loc"])
        key = f"{_OPTIONS}.{name}" if name else _OPTIONS
        if detail["type"] == "missing":
            problems.append(config.problem(key, f"{class_name} needs the option {name!r}", "Add it"))
        elif detail["type"] == "extra_forbidden":
            meant = did_you_mean(name, fields)
            remedy = f"Did you mean {meant!r}?" if meant else f"Options: {', '.join(fields) or 'none'}"
            problems.append(config.problem(key, f"{class_name} has no option {name!r}", remedy))
        else:
            what = f"the option {name!r} is" if name else "the options are"
            problems.append(config.problem(key, f"{what} not valid: {words_of(detail)}"))
    return problems


def _raised_at(error: BaseException, directory: Path) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(directory):
            return f" ({os.path.relpath(frame.filename, directory)}, line {frame.lineno})"
    return ""
