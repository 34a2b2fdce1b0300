"""Tasks on `key=value` files. The trap is a second key that ends in the wanted one (`admin_port` beside `port`)."""

from __future__ import annotations

from .task import FileTask, file_equals, shell, write_file
from .words import KEY_PREFIXES, KEYS, WordSource

_EXTENSIONS = [".conf", ".conf", ".cfg", ".env"]


def config_set(source: WordSource) -> FileTask:
    rng = source.rng
    path = source.file_name(_EXTENSIONS)
    keys = rng.sample(KEYS, rng.randint(3, 4))
    key = keys[0]

    def value() -> str:
        return source.number() if rng.random() < 0.6 else source.word()

    rows = [(name, value()) for name in keys]
    has_twin = rng.random() < 0.6
    if has_twin:
        rows.append((f"{rng.choice(KEY_PREFIXES)}_{key}", value()))
    rng.shuffle(rows)
    new = value()
    before = "".join(f"{name}={old}\n" for name, old in rows)
    after = "\n".join(f"{name}={new if name == key else old}" for name, old in rows)
    instruction = rng.choice(
        [
            f"In {path}, change the {key} to {new}. Leave the other settings exactly as they are.",
            f"Set {key} to {new} in {path}.",
            f"Change the value of {key} to {new} in {path} and keep the rest.",
            f"In {path}, set {key} to {new}.",
        ]
    )
    append, overwrite = shell(f"echo {key}={new} >> {path}"), write_file(path, f"{key}={new}\n")
    loose = shell(f"sed -i 's/{key}=.*/{key}={new}/' {path}")
    return FileTask(
        instruction=instruction,
        files={path: before},
        check=file_equals(path, after),
        right=(shell(f"sed -i 's/^{key}=.*/{key}={new}/' {path}"),),
        traps=(loose, loose, append) if has_twin else (append, append, overwrite),
        final=f"Set {key} to {new}.",
        look=path,
        output=path,
    )


def get_key(source: WordSource) -> FileTask:
    rng = source.rng
    path, out = source.file_name(_EXTENSIONS), source.file_name([".txt"])
    keys = rng.sample(KEYS, rng.randint(2, 3))
    key = keys[0]
    rows = [(name, source.word() if rng.random() < 0.6 else source.number()) for name in keys]
    twin = (f"{rng.choice(KEY_PREFIXES)}_{key}", source.word())
    value = rows[0][1]
    rows.append(twin)
    rng.shuffle(rows)
    instruction = rng.choice(
        [
            f"Write the value of {key} in {path} to {out}.",
            f"Read {key} from {path} and save its value in {out}.",
            f"Put the value of {key} from {path} into {out}.",
        ]
    )
    return FileTask(
        instruction=instruction,
        files={path: "".join(f"{name}={text}\n" for name, text in rows)},
        check=file_equals(out, value),
        right=(shell(f"grep '^{key}=' {path} | cut -d= -f2 > {out}"), write_file(out, f"{value}\n")),
        traps=(
            shell(f"grep {key} {path} | cut -d= -f2 > {out}"),
            shell(f"grep '^{key}=' {path} > {out}"),
            write_file(out, f"{twin[1]}\n"),
        ),
        final=f"Wrote the value of {key} to {out}.",
        look=path,
        output=out,
    )
