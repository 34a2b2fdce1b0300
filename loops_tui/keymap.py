"""The keys as a person wants them: ``keymap.toml`` in the user's configuration directory.

    run.stop = "S"
    app.quit = ["q", "ctrl+q"]

Each name is a binding's id, as ``loops-tui keys`` lists them. An entry that cannot be used is told of in one sentence
and leaves that binding as it was; the app starts all the same.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key, key_to_character

FILE = "keymap.toml"
_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "meta", "hyper"})
_NAMED = frozenset(str(key.value) for key in Keys) | frozenset(
    _character_to_key(chr(code)) for code in range(0x21, 0x7F)
)


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding's id, its keys in Textual's names, what it means, and the class it belongs to (None: the app)."""

    id: str
    keys: tuple[str, ...]
    meaning: str
    owner: type[DOMNode] | None


@dataclass(slots=True)
class Keymap:
    """What a keymap file says: ``changes`` from ids to keys, and a sentence for each entry that was left out."""

    path: Path
    changes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # Bindings that share a key with a changed one.
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def for_textual(self) -> dict[str, str]:
        """As ``App.set_keymap`` takes it. Textual forgets whatever else was on the key of a binding that moves, so
        those are named as well."""
        return {name: ",".join(keys) for name, keys in {**self.kept, **self.changes}.items()}


def keymap_path() -> Path:
    """Where the user's keymap lies."""
    import platformdirs

    return Path(platformdirs.user_config_dir("loops-tui", appauthor=False)) / FILE


def all_bindings() -> list[Bound]:
    """Every binding with an id, of the app and of all its screens and widgets. Imports them all."""
    from loops_tui import screens, widgets
    from loops_tui.keys import APP_BINDINGS

    found = {bound.id: bound for bound in _bounds(APP_BINDINGS, None)}
    for package in (screens, widgets):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and issubclass(kind, DOMNode) and kind.__module__ == module.name:
                    for bound in _bounds(kind.__dict__.get("BINDINGS", ()), kind):
                        found.setdefault(bound.id, bound)
    return list(found.values())


def _bounds(bindings: Iterable[BindingType], owner: type[DOMNode] | None) -> Iterator[Bound]:
    for binding in bindings:
        if isinstance(binding, Binding) and binding.id:
            keys = tuple(_long(key.strip()) for key in binding.key.split(","))
            yield Bound(binding.id, keys, binding.tooltip or binding.description, owner)


def load_keymap(path: Path) -> Keymap:
    """Read and check a keymap file. Never raises; a file that is not there changes nothing."""
    keymap = Keymap(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return keymap
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        keymap.problems.append(f"{path} cannot be read ({reason}); the keys are as they come")
        return keymap
    try:
        entries = dict(_flat(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        keymap.problems.append(f"{path} is no TOML ({error}); the keys are as they come")
        return keymap
    if entries:
        _take(keymap, entries, {bound.id: bound for bound in all_bindings()})
    return keymap


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``run.stop = …`` is the same as ``[run]`` with ``stop = …``, and as the quoted name."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _take(keymap: Keymap, entries: Mapping[str, Any], known: Mapping[str, Bound]) -> None:
    name = keymap.path.name
    for binding_id, value in entries.items():
        if binding_id not in known:
            close = get_close_matches(binding_id, known, 1)
            hint = f", did you mean {close[0]}?" if close else "; `loops-tui keys` lists them"
            keymap.problems.append(f"{name}: there is no binding {binding_id!r}{hint}")
            continue
        keys = _keys(value)
        wrong = [key for key in keys if not _is_key(key)]
        if not keys or wrong:
            what = repr(wrong[0]) if wrong else repr(value)
            keymap.problems.append(
                f"{name}: {binding_id}: {what} names no key; it stays {_said(known[binding_id])}"
            )
            continue
        keymap.changes[binding_id] = keys
    while (clash := _clash(keymap.changes, known)) is not None:
        binding_id, key, other = clash
        del keymap.changes[binding_id]
        keymap.problems.append(
            f"{name}: {binding_id} cannot be {key!r}, the key of {other}; it stays {_said(known[binding_id])}"
        )
    moved = [known[binding_id] for binding_id in keymap.changes]
    keymap.kept = {
        bound.id: bound.keys
        for bound in known.values()
        if any(bound.owner is other.owner and set(bound.keys) & set(other.keys) for other in moved)
    }


def _said(bound: Bound) -> str:
    return " ".join(bound.keys)


def _keys(value: Any) -> tuple[str, ...]:
    parts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(part, str) for part in parts):
        return ()
    # A comma alone is the key, not what stands between two.
    named = [
        key.strip() or key for part in parts for key in (part.split(",") if part.strip(", ") else [part])
    ]
    return tuple(dict.fromkeys(_long(key) for key in named if key))


def _long(key: str) -> str:
    """``?`` as Textual calls it: ``question_mark``."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    return "+".join([*modifiers, _character_to_key(last) if len(last) == 1 else last])


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+")
    if any(modifier not in _MODIFIERS for modifier in modifiers):
        return False
    return len(last) == 1 or last in _NAMED or key in _NAMED or key_to_character(last) is not None


def _clash(changes: Mapping[str, tuple[str, ...]], known: Mapping[str, Bound]) -> tuple[str, str, str] | None:
    """The first changed binding whose key another one has that is asked before or after it: (id, key, the other)."""
    for binding_id, keys in changes.items():
        for other in known.values():
            if other.id == binding_id or not _meet(known[binding_id].owner, other.owner):
                continue
            both = set(keys) & set(changes.get(other.id, other.keys))
            before = set(known[binding_id].keys) & set(other.keys)  # they got along as they come
            if both - before:
                return binding_id, min(both - before), other.id
    return None


def _meet(one: type[DOMNode] | None, other: type[DOMNode] | None) -> bool:
    """Whether a key may reach both: the app and anything, a class and its own, a screen and a widget it is made of."""
    if one is None or other is None or issubclass(one, other) or issubclass(other, one):
        return True
    return (
        other in vars(sys.modules[one.__module__]).values()
        or one in vars(sys.modules[other.__module__]).values()
    )
