"""Tasks that change a file, make one, or give one another name."""

from __future__ import annotations

from .task import FileTask, file_equals, shell, write_file
from .words import WordSource


def rename(source: WordSource) -> FileTask:
    rng = source.rng
    extension = rng.choice([".txt", ".md", ".log", ".csv"])
    old = source.file_name([extension])
    new = source.file_name([extension], old)
    text = "\n".join(source.words(3))
    instruction = rng.choice(
        [
            f"Rename {old} to {new}.",
            f"Give {old} the new name {new}.",
            f"The file {old} must be called {new}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={old: text + "\n"},
        check=f"[ ! -e {old} ] && {file_equals(new, text)}",
        right=(shell(f"mv {old} {new}"),),
        traps=(shell(f"cp {old} {new}"), shell(f"cp {old} {new}"), shell(f"mv {new} {old}")),
        final=f"Renamed {old} to {new}.",
    )


def append_absent(source: WordSource) -> FileTask:
    """The line is often there already, and then a plain append spoils the file."""
    rng = source.rng
    path = source.file_name([".txt", ".md"])
    words = source.words(5)
    lines = words[: rng.randint(3, 4)]
    line = rng.choice(lines) if rng.random() < 0.7 else words[4]
    instruction = rng.choice(
        [
            f"Add the line {line} to {path} only if it is not there.",
            f"Make sure that {path} has the line {line} exactly once.",
            f"Append {line} to {path} unless it is already in it.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: "\n".join(lines) + "\n"},
        check=file_equals(path, "\n".join(lines if line in lines else [*lines, line])),
        right=(shell(f"grep -qx {line} {path} || echo {line} >> {path}"),),
        traps=(shell(f"echo {line} >> {path}"), shell(f"echo {line} > {path}")),
        final=f"The line {line} is in {path}.",
        look=path,
        output=path,
    )


def make_file(source: WordSource) -> FileTask:
    rng = source.rng
    path = source.file_name([".txt", ".md"])
    words = source.words(rng.randint(2, 3))
    listed = ", ".join(words)
    instruction = rng.choice(
        [
            f"Create {path} with the lines {listed}.",
            f"Make a file {path} with one line each for {listed}.",
            f"Write the lines {listed} to a new file {path}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={},
        check=file_equals(path, "\n".join(words)),
        right=(write_file(path, "\n".join(words) + "\n"),),
        traps=(write_file(path, listed + "\n"), write_file(path, " ".join(words) + "\n")),
        final=f"Created {path}.",
        output=path,
    )


def replace_word(source: WordSource) -> FileTask:
    """The word stands twice on one line: without `g`, `sed` changes only the first of the two."""
    rng = source.rng
    path = source.file_name([".txt", ".md"])
    old, new, *rest = source.words(5)
    lines = [f"{old} {rest[0]} {old}", f"{rest[1]} {old}", rest[2]]
    rng.shuffle(lines)
    text = "\n".join(lines)
    instruction = rng.choice(
        [
            f"Replace every {old} with {new} in {path}.",
            f"In {path}, change each {old} to {new}.",
            f"Swap all uses of {old} in {path} for {new}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: text + "\n"},
        check=file_equals(path, text.replace(old, new)),
        right=(shell(f"sed -i 's/{old}/{new}/g' {path}"),),
        traps=(shell(f"sed -i 's/{old}/{new}/' {path}"), shell(f"sed 's/{old}/{new}/g' {path}")),
        final=f"Replaced {old} with {new}.",
        look=path,
        output=path,
    )
