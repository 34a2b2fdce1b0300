"""``python -m loops_tui``: the same as the ``loops-tui`` command."""

from __future__ import annotations

from loops_tui.entry import main

if __name__ == "__main__":
    main()
