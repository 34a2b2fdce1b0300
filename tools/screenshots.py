"""Pictures of every screen, taken from the real app on a store filled the same way every time.

``uv run python -m tools.screenshots [DIRECTORY] [--png]`` writes ``screenshots/*.svg`` at 120x40, and with ``--png`` a
PNG beside each (with ``rsvg-convert``). Other sizes are in the snapshots of tests/app/test_snapshots.py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from loops_tui.app import LoopsApp
from loops_tui.link import make_hosting, open_store
from tools.sample_store import fill, fill_leases

SIZES = {"120x40": (120, 40)}
WAIT_SECONDS = 30.0
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "tool_agent"


@dataclass(frozen=True, slots=True)
class Picture:
    """``steps`` are (keys to press, text to wait for) from the first screen on."""

    name: str
    steps: Sequence[tuple[str, str]]
    narrow_steps: Sequence[tuple[str, str]] | None = None  # where the way differs at 80 columns
    sandboxes: bool = False  # whether there are any
    config: bool = False  # whether the project has one of its own

    def way(self, columns: int) -> Sequence[tuple[str, str]]:
        return self.narrow_steps if self.narrow_steps is not None and columns < 110 else self.steps


_RUN = ("enter", "policy v15")
_GROUP = ("up up up up", "Attempts of group 120")
_NARROW_GROUP = ("up up up up", "▌   120")
_GROUPS = ("right_square_bracket", "[Groups]")
_ATTEMPTS = ("enter", "Attempts of group 120")
PICTURES = (
    Picture("runs", ()),
    Picture("run", (_RUN, _GROUP), (_RUN,)),
    Picture("run-groups", (_RUN, _GROUP), (_RUN, _GROUPS, _NARROW_GROUP)),
    Picture(
        "transcript",
        (_RUN, _GROUP, _ATTEMPTS, ("enter", "attempt 1 of 8")),
        (
            _RUN,
            _GROUPS,
            _NARROW_GROUP,
            _ATTEMPTS,
            ("enter", "attempt 1 of 8"),
        ),
    ),
    Picture(
        "tokens",
        (_RUN, _GROUP, _ATTEMPTS, ("enter", "attempt 1 of 8"), ("t", "shaded")),
        (
            _RUN,
            _GROUPS,
            _NARROW_GROUP,
            _ATTEMPTS,
            ("enter", "attempt 1 of 8"),
            ("t", "shaded"),
        ),
    ),
    Picture(
        "config",
        (
            ("2", "✓ train_local.toml"),
            ("f5", "Ready, with 1 warning"),
            ("enter", "esc Back"),
            ("down " * 31 + "end", "group_size"),
        ),
        (("2", "✓ train_local.toml"), ("enter", "[Editor]"), ("down " * 31 + "end", "group_size")),
        config=True,
    ),
    Picture("checkpoints", (("5", "step-000005"),)),
    Picture(
        "compare",
        (("down space down down space v", "learning_rate"),),
        (("down space down down space v", "difference"),),
    ),
    Picture("search", (("F", "Search"), ("n a m e s enter", "28 hits"))),
    Picture("help", (_RUN, ("question_mark", "Keys"))),
    Picture("stop", (_RUN, ("s", "Stop this run?"))),
    Picture("sandboxes", (("4", "14 in use"),), sandboxes=True),
    Picture("cleanup", (("4", "14 in use"), ("c", "Release 3 sandboxes?")), sandboxes=True),
)


def screen_text(app: LoopsApp) -> str:
    """Everything on the screen, as text."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def wait_for(pilot: Pilot[int], true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what!r} never appeared")
        await pilot.pause(0.02)


async def take(project: Path, picture: Picture, size: tuple[int, int]) -> str:
    """The picture as SVG."""
    app = LoopsApp(project, lambda: open_store(project), lambda: make_hosting(project))
    async with app.run_test(size=size) as pilot:
        await wait_for(pilot, lambda: "7 runs" in screen_text(app), "7 runs")
        for keys, text in picture.way(size[0]):
            await pilot.press(*keys.split())
            await wait_for(pilot, lambda text=text: text in screen_text(app), text)
        await pilot.pause(0.3)
        return app.export_screenshot(title="loops-tui")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Pictures of every screen, from the real app on a sample store."
    )
    parser.add_argument("directory", nargs="?", type=Path, default=Path("screenshots"))
    parser.add_argument("--png", action="store_true", help="a PNG beside each, with rsvg-convert")
    chosen = parser.parse_args()
    target: Path = chosen.directory
    target.mkdir(parents=True, exist_ok=True)
    os.environ.pop("NO_COLOR", None)
    converter = shutil.which("rsvg-convert") if chosen.png else None
    if chosen.png and converter is None:
        parser.error("rsvg-convert is not installed, so there can be no PNG")
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "agents"
        for label, size in SIZES.items():
            for picture in PICTURES:
                if picture.name == "run-groups" and size[0] >= 110:
                    continue  # everything is on the one screen there
                # A fresh store for each: ages and clocks then say the same in every picture.
                shutil.rmtree(project, ignore_errors=True)
                project.mkdir()
                sample = fill(project)
                if picture.config:
                    shutil.copytree(
                        EXAMPLE,
                        project / EXAMPLE.name,
                        ignore=shutil.ignore_patterns("__pycache__", "*blaxel*", "*async*"),
                    )
                if picture.sandboxes:
                    fill_leases(project, sample)
                svg = asyncio.run(take(project, picture, size))
                path = target / f"{picture.name}-{label}.svg"
                path.write_text(svg.replace("<text ", '<text xml:space="preserve" '), encoding="utf-8")
                if converter is not None:
                    subprocess.run([converter, str(path), "-o", str(path.with_suffix(".png"))], check=True)
                print(path)


if __name__ == "__main__":
    main()
