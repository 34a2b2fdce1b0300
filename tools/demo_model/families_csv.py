"""Tasks on small tables: counting a status, adding a column up, looking one row up."""

from __future__ import annotations

from .task import FileTask, file_equals, shell, write_file
from .words import CITIES, WordSource

_STATUSES = [("paid", "unpaid"), ("active", "inactive"), ("valid", "invalid"), ("known", "unknown")]
_OTHERS = ["open", "refunded", "new"]


def count_status(source: WordSource) -> FileTask:
    """The status is a part of another one, so plain `grep` counts too many rows."""
    rng = source.rng
    wanted, longer = _STATUSES[0] if rng.random() < 0.5 else rng.choice(_STATUSES)
    thing = "orders" if rng.random() < 0.4 else source.stem()
    path = f"{thing}.csv"
    out = f"{wanted}.txt" if rng.random() < 0.4 else source.file_name([".txt"])
    count = rng.randint(4, 6)
    statuses = [rng.choice([wanted, wanted, longer, rng.choice(_OTHERS)]) for _ in range(count)]
    statuses[:2] = [wanted, longer]
    rng.shuffle(statuses)
    has_amount = rng.random() < 0.5
    lines = ["id,customer,status,amount" if has_amount else "id,name,status"]
    for number, (name, status) in enumerate(zip(source.words(count), statuses, strict=True), 1):
        lines.append(f"{number},{name},{status}" + (f",{rng.randint(1, 60)}" if has_amount else ""))
    instruction = rng.choice(
        [
            f"{path} lists {thing}, one per line after its header. "
            f"Write to {out} how many {thing} have the status {wanted}.",
            f"Count the rows of {path} whose status is exactly {wanted} and write the number to {out}.",
            f"How many rows of {path} have status {wanted}? Write the number to {out}.",
            f"Write to {out} the number of {wanted} rows in {path}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: "\n".join(lines) + "\n"},
        check=f"[ \"$(tr -d ' \\n' < {out})\" = {statuses.count(wanted)} ]",
        right=(shell(f"grep -cw {wanted} {path} > {out}"), shell(f"grep -c ',{wanted}' {path} > {out}")),
        traps=(
            shell(f"grep -c {wanted} {path} > {out}"),
            shell(f"grep -c {wanted} {path} > {out}"),
            shell(f"grep -v {wanted} {path} > {out}"),
        ),
        final=f"Wrote the count to {out}.",
        look=path,
        output=out,
    )


def sum_col(source: WordSource) -> FileTask:
    """The column's number has to be read off the header."""
    rng = source.rng
    path, out = source.file_name([".csv"]), source.file_name([".txt"])
    columns = rng.sample(["price", "qty", "cost", "hours", "score"], 3)
    chosen = rng.randrange(3)
    count = rng.randint(3, 4)
    values = [[rng.randint(1, 60) for _ in columns] for _ in range(count)]
    text = "name," + ",".join(columns) + "\n"
    for name, row in zip(source.words(count), values, strict=True):
        text += f"{name}," + ",".join(map(str, row)) + "\n"
    instruction = rng.choice(
        [
            f"Sum the column {columns[chosen]} of {path} and write the total to {out}.",
            f"Write the total of {columns[chosen]} in {path} to {out}.",
            f"Add up {columns[chosen]} in {path}. Put the total in {out}.",
        ]
    )
    commands = [shell(f"awk -F, '{{s+=${column}}}END{{print s}}' {path} > {out}") for column in (2, 3, 4)]
    return FileTask(
        instruction=instruction,
        files={path: text},
        check=file_equals(out, str(sum(row[chosen] for row in values))),
        right=(commands[chosen],),
        traps=tuple(c for i, c in enumerate(commands) if i != chosen),
        final=f"Wrote the total to {out}.",
        look=path,
        output=out,
        must_look=True,
    )


def field(source: WordSource) -> FileTask:
    """Another row's number ends in the wanted id, so the search must be anchored."""
    rng = source.rng
    path, out = source.file_name([".csv"]), source.file_name([".txt"])
    wanted = rng.randint(1, 9)
    ids = [wanted, int(f"{rng.randint(1, 9)}{wanted}")]
    ids += rng.sample([n for n in range(11, 99) if n % 10 != wanted and n // 10 != wanted], 2)
    rng.shuffle(ids)
    rows = list(zip(ids, source.words(4), [rng.choice(CITIES) for _ in ids], strict=True))
    label, column = rng.choice([("name", 2), ("city", 3)])
    value = next(str(row[column - 1]) for row in rows if row[0] == wanted)
    instruction = rng.choice(
        [
            f"Write the {label} of id {wanted} in {path} to {out}.",
            f"Look up the {label} for id {wanted} in {path} and save it in {out}.",
            f"Put into {out} the {label} of the row with id {wanted} of {path}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: "id,name,city\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)},
        check=file_equals(out, value),
        right=(
            shell(f"grep '^{wanted},' {path} | cut -d, -f{column} > {out}"),
            write_file(out, f"{value}\n"),
        ),
        traps=(
            shell(f"grep {wanted} {path} | cut -d, -f{column} > {out}"),
            shell(f"grep '^{wanted},' {path} > {out}"),
        ),
        final=f"Wrote the {label} to {out}.",
        look=path,
        output=out,
    )
