"""Which line of a config holds a key. Parsers keep the values and forget the lines, so the text is scanned again."""

from __future__ import annotations

import re
from contextlib import suppress

_SPACE = " \t"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class KeyLines:
    """Lines of dotted keys; one that is not found answers with the first inside it, or the nearest table around it."""

    def __init__(self, lines: dict[str, int]) -> None:
        self._lines = lines

    def line(self, key: str | None) -> int | None:
        """The 1-based line of ``key``, of the table that holds it, or None."""
        if key and key not in self._lines:  # a table that only its inner tables name
            inner = [line for known, line in self._lines.items() if known.startswith(f"{key}.")]
            if inner:
                return min(inner)
        parts = key.split(".") if key else []
        while parts:
            found = self._lines.get(".".join(parts))
            if found is not None:
                return found
            parts.pop()
        return None

    def at(self, line: int) -> str | None:
        """The dotted key or table that ``line`` (1-based) belongs to: the one that begins on it, or the last above."""
        found, found_line = None, 0
        for key, begins in self._lines.items():  # later and deeper keys stand later
            if found_line <= begins <= line:
                found, found_line = key, begins
        return found

    def __contains__(self, key: str) -> bool:
        return key in self._lines


def toml_key_lines(text: str) -> KeyLines:
    """Scan TOML; of a text that no parser would accept, what could be found."""
    scan = _TomlScan(text)
    with suppress(RecursionError):  # thousands of brackets, which the parser refuses as well
        scan.run()
    return KeyLines(scan.lines)


def json_key_lines(text: str) -> KeyLines:
    """Scan JSON; of a text that no parser would accept, what could be found."""
    return KeyLines(_JsonScan(text).run())


def doubled_json_key(text: str, name: str) -> tuple[str, int | None]:
    """The dotted key and the line where a key ``name`` stands again in the object that has it already."""
    scan = _JsonScan(text)
    scan.run()
    return next(((key, line) for key, line in scan.again if key.rpartition(".")[2] == name), (name, None))


class _TomlScan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.lines: dict[str, int] = {}

    def run(self) -> None:
        table: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n":
                self._step()
            elif char == "#":
                self._skip_comment()
            elif char == "[":
                line = self.line
                while self.at < len(self.text) and self.text[self.at] == "[":
                    self._step()
                table = self._key()
                self.lines.setdefault(".".join(table), line)
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self._step()
            else:
                before = self.at
                line = self.line
                key = [*table, *self._key()]
                for end in range(len(table) + 1, len(key) + 1):
                    self.lines.setdefault(".".join(key[:end]), line)
                self._value(key)
                if self.at == before:  # text that no parser would have accepted: go on all the same
                    self._step()

    def _step(self) -> None:
        if self.text[self.at] == "\n":
            self.line += 1
        self.at += 1

    def _skip_comment(self) -> None:
        while self.at < len(self.text) and self.text[self.at] != "\n":
            self._step()

    def _key(self) -> list[str]:
        """A dotted key up to its ``=`` or ``]``."""
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "\"'":
                parts.append(self._string())
            elif match := _BARE.match(self.text, self.at):
                parts.append(match.group())
                self.at = match.end()
            elif char in " \t.":
                self._step()
            else:
                if char == "=":
                    self._step()
                break
        return parts

    def _string(self) -> str:
        quote = self.text[self.at]
        mark = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        for _ in mark:
            self._step()
        begin = self.at
        while self.at < len(self.text) and not self.text.startswith(mark, self.at):
            if (
                len(mark) == 1 and self.text[self.at] == "\n"
            ):  # a text being typed: its quote is not closed yet
                break
            if quote == '"' and self.text[self.at] == "\\":
                self._step()
            if self.at < len(self.text):
                self._step()
        content = self.text[begin : self.at]
        while self.text.startswith(quote, self.at):  # a multi-line string may end in four or five quotes
            self._step()
        return content

    def _value(self, key: list[str]) -> None:
        """Skip one value; keys of inline tables are noted on the way."""
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self._step()
        if self.at >= len(self.text):
            return
        char = self.text[self.at]
        if char in "\"'":
            self._string()
        elif char == "[":
            self._step()
            self._items(key, "]")
        elif char == "{":
            self._step()
            self._items(key, "}")
        else:
            while self.at < len(self.text) and self.text[self.at] not in "\n,]}#":
                self._step()

    def _items(self, key: list[str], close: str) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == close:
                self._step()
                return
            if char in " \t\r\n,":
                self._step()
            elif char == "#":
                self._skip_comment()
            elif close == "]":
                before = self.at
                self._value(key)
                if self.at == before:
                    self._step()
            else:
                before, line = self.at, self.line
                inner = [*key, *self._key()]
                self.lines.setdefault(".".join(inner), line)
                self._value(inner)
                if self.at == before:
                    self._step()


class _JsonScan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.lines: dict[str, int] = {}
        self.again: list[tuple[str, int]] = []  # keys that were there before

    def run(self) -> dict[str, int]:
        path: list[str | None] = []  # one entry a nesting level: the key being read, None inside a list
        expect_key = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\n":
                self.line += 1
                self.at += 1
            elif char == "{":
                path.append("")
                expect_key = True
                self.at += 1
            elif char == "[":
                path.append(None)
                expect_key = False
                self.at += 1
            elif char in "}]":
                if path:
                    path.pop()
                expect_key = False
                self.at += 1
            elif char == ",":
                expect_key = bool(path) and path[-1] is not None
                self.at += 1
            elif char == '"':
                word = self._string()
                if expect_key and path:
                    path[-1] = word
                    key = ".".join(part for part in path if part)
                    if key in self.lines:
                        self.again.append((key, self.line))
                    self.lines.setdefault(key, self.line)
                    expect_key = False
            else:
                self.at += 1
        return self.lines

    def _string(self) -> str:
        self.at += 1
        begin = self.at
        while self.at < len(self.text) and self.text[self.at] != '"':
            self.at += 2 if self.text[self.at] == "\\" else 1
        content = self.text[begin : self.at]
        self.at += 1
        return content
