"""Reads a config file's text into a table, with problems that name line and column."""

from __future__ import annotations

import errno
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from engine.config.bundled import bundled_configs
from engine.config.formats import DoubledKey, json_remedy, other_format, single_keys
from engine.config.positions import KeyLines, doubled_json_key, json_key_lines, toml_key_lines
from engine.config.problems import ConfigError, Problem, did_you_mean

_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_config(source: Path, named: Path, text: str | None = None) -> tuple[str, dict[str, Any], KeyLines]:
    """The text, the table and the lines of the keys of ``source``, which the caller named ``named``.

    ``text``: instead of what the file says. Raises ConfigError.
    """
    if text is None:
        text = _read_text(source, named)
    suffix = source.suffix.lower()
    if suffix == ".toml":
        return text, _parse_toml(text, named), toml_key_lines(text)
    if suffix == ".json":
        return text, _parse_json(text, named), json_key_lines(text)
    raise ConfigError(
        [Problem("a config is a .toml or a .json file", file=named, remedy="Rename it or name another file")]
    )


def _read_text(source: Path, named: Path) -> str:
    if os.path.isdir(source):
        inside = sorted(path.name for path in [*source.glob("*.toml"), *source.glob("*.json")])
        remedy = f"It holds {', '.join(inside[:5])}" if inside else "Name a .toml or .json file"
        raise ConfigError([Problem("this is a directory, not a config", file=named, remedy=remedy)])
    # A device or a pipe would be read for ever; where a shell gives a pipe a name (<(…)), the link leads nowhere.
    if any(os.path.exists(path) and not os.path.isfile(path) for path in (source, named)):
        raise ConfigError(
            [Problem("this is no regular file", file=named, remedy="Name a .toml or .json file")]
        )
    try:
        data = source.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(
            [Problem("there is no such file", file=named, remedy=_nearest_file(named))]
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        remedy = "Check who may read it" if error.errno == errno.EACCES else "Name a .toml or .json file"
        raise ConfigError([Problem(f"the config cannot be read: {reason}", named, remedy=remedy)]) from error
    if (other := other_format(data)) is not None:
        what, remedy = other
        raise ConfigError([Problem(f"the config {what}", named, 1, None, remedy)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        remedy = "Save it as UTF-8"
        raise ConfigError([Problem("the config is not UTF-8 text", named, line, None, remedy)]) from error


def _nearest_file(path: Path) -> str | None:
    if path.is_symlink():
        return f"It is a link to {path.readlink()}, which is missing"
    if not path.parent.is_dir():
        bundled = {"/".join(["examples", *config.parts[-2:]]): config for config in bundled_configs()}
        near = did_you_mean("/".join(path.parts[-3:]), bundled)
        return f"Did you mean {near}?" if near else f"There is no directory {path.parent}"
    try:
        files = sorted(os.listdir(path.parent))
    except OSError:  # a directory that may be entered and not read
        return None
    names = [name for name in files if name.lower().endswith((".toml", ".json"))]
    near = did_you_mean(path.name, names)
    if near:
        return f"Did you mean {near}?"
    return f"Configs there: {', '.join(names[:5])}" if names else "No config is there"


def _parse_toml(text: str, named: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        line: int | None = None
        where = ""
        if found := _AT.search(message):
            line = int(found[1]) if found[1] else text.count("\n") + 1
            where = f", column {found[2]}" if found[2] else ", at its end"
            message = message[: found.start()]
        remedy = _toml_remedy(text, line) or next(help for what, help in _TOLD if what in message)
        message = _TABLE.sub(lambda key: f"[{'.'.join(re.findall(_PART, key[0]))}]", message)
        sentence = f"this is not TOML (line {line}{where}): {message[:1].lower()}{message[1:]}"
        raise ConfigError([Problem(sentence, named, line, None, remedy)]) from error
    except RecursionError as error:
        raise ConfigError([Problem("the TOML is nested too deeply", named, remedy=_FLATTER)]) from error
    except ValueError as error:  # a number of thousands of digits
        text = f"this is not TOML that can be read: {error}"
        raise ConfigError([Problem(text, named, remedy=_SMALLER)]) from error


_FLATTER, _SMALLER = "No setting needs more than a few levels", "No setting needs so long a number"
#: What a line that is no TOML was probably meant to be, by how it looks, and what to write instead.
_MEANT: tuple[tuple[str, str], ...] = (
    (r"^(<{7}|={7}|>{7})", "Resolve the merge conflict"),
    (r"^\s*\{", "This looks like JSON: give the file a name that ends in .json"),
    (r"=\s*(True|False)\b", "TOML writes true and false"),
    (r"=\s*(null|None|nil)\b", "Leave the key out where it is not set"),
    (r"[\u201c\u201d\u2018\u2019]", "Use straight quotes"),
    (r",\s*\}", "No comma before the } of a table"),
    (r"=\s*\{[^}]*$", "A table in braces stands on one line: write it as a [table] of its own"),
    (r"^\s*\[[^\]]*$", "Close the bracket"),
    (r"=\s*[+-]?\d+,\d", "A number has a point, not a comma"),
    (r"=[^\"']*;", "A line ends without ;"),
    (r"=\s*\S+\s+[\w.-]+\s*=", "Write each key on a line of its own"),
    (r"^\s*[\w.-]+\s*(:|\s[^=]*$)", "TOML writes key = value, and [table] above its keys"),
    (r"(^|\s)//", "A comment begins with #"),
    (r"^\s*[\w.-]+\s*=\s*[A-Za-z_./~][^\"']*$", "Text needs quotes"),
    (r"=\s*[+-]?0\d", "A number begins with no 0"),
    (r"^\ufeff|\x00", "Save it as plain UTF-8 text"),
    (r"^[^#\"']*[^\x00-\x7f][^#=]*=", "A key with other letters than a to z needs quotes"),
)


#: What the parser says, and what helps where the line itself does not tell it.
_TOLD: tuple[tuple[str, str], ...] = (
    ("twice", "Put all keys of a table under one heading"),
    ("overwrite", "Remove one of the two"),
    ("mutate", "Write the inner keys in one place"),
    ("Illegal character", "Close the quote in the same line, or remove the character"),
    ("\\", "Write two backslashes, or quote the text with single quotes"),
    ("hex value", "Write two backslashes, or quote the text with single quotes"),
    ("Unterminated", "Close the quote"),
    ("Unclosed", "Close the bracket, and put commas between what stands in it"),
    ("", "TOML writes key = value, and [table] above its keys"),
)
_TABLE, _PART = re.compile(r"\((?:'[^']*',? ?)+\)"), r"'([^']*)'"


def _toml_remedy(text: str, line: int | None) -> str | None:
    lines = text.split("\n")
    if line is None or not 0 < line <= len(lines):
        return None
    said = re.sub(r"\s#[^\"']*$", "", lines[line - 1])  # without its comment, which may be worded anyhow
    return next((remedy for pattern, remedy in _MEANT if re.search(pattern, said)), None)


def _parse_json(text: str, named: Path) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=single_keys)
    except DoubledKey as error:
        key, line = doubled_json_key(text, error.key)
        sentence = f"the key {error.key!r} stands twice in one table"
        raise ConfigError([Problem(sentence, named, line, key, "Remove one of them")]) from error
    except json.JSONDecodeError as error:
        sentence = f"this is not JSON (line {error.lineno}, column {error.colno}): {error.msg}"
        raise ConfigError([Problem(sentence, named, error.lineno, None, _json_remedy(error))]) from error
    except RecursionError as error:
        raise ConfigError([Problem("the JSON is nested too deeply", named, remedy=_FLATTER)]) from error
    except ValueError as error:
        text = f"this is not JSON that can be read: {error}"
        raise ConfigError([Problem(text, named, remedy=_SMALLER)]) from error
    if not isinstance(value, dict):
        raise ConfigError([Problem("a JSON config is one object", named, 1, None, _JSON)])
    return value


_JSON = 'Write it as {"recipe": "rl", …}'


def _json_remedy(error: json.JSONDecodeError) -> str:
    if re.match(r"\s*(\[+[\w. -]+\]|[\w.-]+\s*=)", error.doc):
        return "This looks like TOML: give the file a name that ends in .toml"
    return json_remedy(error, _JSON)
