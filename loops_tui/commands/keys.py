"""``keys``: every key of the application, by the id that a keymap names."""

from __future__ import annotations

from loops_tui.commands.output import BAD_INPUT, DONE, Output, columns


def keys(out: Output) -> int:
    """List the bindings, as they come and as the user's keymap has them. Exit status 2 where that has problems."""
    from loops_tui.keymap import all_bindings, keymap_path, load_keymap

    keymap = load_keymap(keymap_path())
    bindings = all_bindings()
    out.value(
        {
            "keymap": str(keymap.path),
            "problems": keymap.problems,
            "bindings": [
                {
                    "id": bound.id,
                    "keys": list(keymap.changes.get(bound.id, bound.keys)),
                    "default": list(bound.keys),
                    "meaning": bound.meaning,
                }
                for bound in bindings
            ],
        }
    )
    if not out.as_json:
        rows = [["ID", "KEYS", "MEANING"]]
        for bound in bindings:
            chosen = keymap.changes.get(bound.id)
            was = "" if chosen is None else f"  (as it comes: {' '.join(bound.keys)})"
            rows.append([bound.id, " ".join(chosen or bound.keys), bound.meaning + was])
        for line in columns(rows):
            out.line(line)
    out.note(f'Keys of your own go into {keymap.path}, a line each: run.stop = "S"')
    for problem in keymap.problems:
        out.error(problem)
    return BAD_INPUT if keymap.problems else DONE
