"""Tasks that read lines of a text file and save what was asked for in another one."""

from __future__ import annotations

from .task import FileTask, file_equals, shell
from .words import WordSource


def end_line(source: WordSource) -> FileTask:
    """Both variants, first and last: a single one would teach only `head` or only `tail`."""
    rng = source.rng
    path = source.file_name([".txt", ".log", ".md"])
    out = source.file_name([".txt"], path)
    lines = source.words(rng.randint(3, 6))
    last = rng.random() < 0.5
    end = "last" if last else "first"
    instruction = rng.choice(
        [
            f"Write the {end} line of {path} to {out}.",
            f"Put the {end} line of {path} into {out}.",
            f"Save only the {end} line of {path} in {out}.",
        ]
    )
    good, bad = ("tail", "head") if last else ("head", "tail")
    return FileTask(
        instruction=instruction,
        files={path: "\n".join(lines) + "\n"},
        check=file_equals(out, lines[-1] if last else lines[0]),
        right=(shell(f"{good} -n 1 {path} > {out}"),),
        traps=(
            shell(f"{bad} -n 1 {path} > {out}"),
            shell(f"{good} {path} > {out}"),
            shell(f"{good} -n 2 {path} > {out}"),
        ),
        final=f"Wrote the {end} line to {out}.",
        look=path,
        output=out,
    )


def longest(source: WordSource) -> FileTask:
    rng = source.rng
    path = source.file_name([".txt", ".log"])
    out = source.file_name([".txt"], path)
    while True:
        lines = [" ".join(source.words(rng.randint(1, 3))) for _ in range(rng.randint(3, 4))]
        best = max(lines, key=len)
        unique = sum(len(line) == len(best) for line in lines) == 1
        if unique and best not in (sorted(lines)[-1], lines[-1]):
            break
    instruction = rng.choice(
        [
            f"Write the longest line of {path} to {out}.",
            f"Find the longest line in {path} and save it in {out}.",
            f"Put the longest line of {path} into {out}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: "\n".join(lines) + "\n"},
        check=file_equals(out, best),
        right=(shell(f"awk 'length>m{{m=length;l=$0}}END{{print l}}' {path} > {out}"),),
        traps=(shell(f"sort {path} | tail -n 1 > {out}"), shell(f"tail -n 1 {path} > {out}")),
        final=f"Wrote the longest line to {out}.",
        look=path,
        output=out,
    )


def uniq(source: WordSource) -> FileTask:
    """Repeated lines that are not neighbours: `uniq` alone leaves them, `sort` alone keeps them."""
    rng = source.rng
    path = source.file_name([".txt", ".log"])
    out = source.file_name([".txt"], path)
    words = source.words(3)
    lines = words + [rng.choice(words) for _ in range(2)]
    while True:
        rng.shuffle(lines)
        runs = [line for i, line in enumerate(lines) if i == 0 or lines[i - 1] != line]
        if len(runs) > 3:
            break
    instruction = rng.choice(
        [
            f"Write the sorted lines of {path} without duplicates to {out}.",
            f"Sort {path}, drop repeated lines and save to {out}.",
            f"Put the sorted unique lines of {path} into {out}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: "\n".join(lines) + "\n"},
        check=file_equals(out, "\n".join(sorted(set(lines)))),
        right=(shell(f"sort -u {path} > {out}"), shell(f"sort {path} | uniq > {out}")),
        traps=(shell(f"sort {path} > {out}"), shell(f"uniq {path} > {out}")),
        final=f"Wrote the sorted lines to {out}.",
        look=path,
        output=out,
    )


def count_lines(source: WordSource) -> FileTask:
    """Only the number is wanted: `wc -l FILE` prints the name too."""
    rng = source.rng
    path = source.file_name([".txt", ".log", ".md"])
    out = source.file_name([".txt"], path)
    # Two words on some lines, so that counting words instead is wrong.
    lines = [" ".join(source.words(rng.randint(1, 2))) for _ in range(rng.randint(2, 5))]
    if all(" " not in line for line in lines):
        lines[0] += " " + source.word()
    instruction = rng.choice(
        [
            f"Count the lines of {path} and write only the number to {out}.",
            f"Write the number of lines in {path} to {out}.",
            f"How many lines has {path}? Put the number into {out}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: "\n".join(lines) + "\n"},
        check=file_equals(out, str(len(lines))),
        right=(shell(f"wc -l < {path} > {out}"),),
        traps=(
            shell(f"wc -l {path} > {out}"),
            shell(f"wc -l {path} > {out}"),
            shell(f"wc -w < {path} > {out}"),
        ),
        final=f"Wrote the number to {out}.",
        look=path,
        output=out,
    )
