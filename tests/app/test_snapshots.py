"""How every screen looks at three sizes. After a change that is meant:

``uv run pytest tests/app/test_snapshots.py --snapshot-update``, then look at what it wrote before committing it.

Everything that differs from one moment or machine to another stands still: the clock, the process's number, paths.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.store import hosts, queries
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.link import open_store
from tests.app.conftest import FakeHosting, until
from tools.sample_store import fill, fill_leases
from tools.screenshots import EXAMPLE, PICTURES, screen_text

NOW = 1_795_962_901.0  # a Sunday afternoon in November
SHOWN = "/home/you/agents"
PID = 4711
SIZES = ((80, 24), (120, 40), (200, 60))
SCREENS = ("runs", "run", "transcript", "config", "sandboxes", "checkpoints", "compare", "search")


@pytest.fixture(scope="module")
def still() -> Iterator[pytest.MonkeyPatch]:
    """The world, standing still."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "LOOPS_TUI_THEME", "TMUX"):
        patch.delenv(name, raising=False)
    time.tzset()
    patch.setattr(time, "time", lambda: NOW)
    patch.setattr(time, "perf_counter", lambda: 0.0)
    for module in (hosts, queries):
        patch.setattr(module, "is_alive", lambda host, now: host.hostname != "elsewhere")
    yield patch
    patch.undo()
    time.tzset()


@pytest.fixture(scope="module")
def project(still: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample project as somebody's home has it."""
    root = tmp_path_factory.mktemp("snapshots") / "agents"
    root.mkdir()
    fill_leases(root, fill(root))
    with Store.open(root) as store:
        for table, column in (("runs", "config_path"), ("runs", "run_dir"), ("log", "text")):
            sql = f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
            store.submit(lambda connection, sql=sql: connection.execute(sql, (str(root), SHOWN))).result(120)
        store.submit(lambda connection: connection.execute("UPDATE hosts SET pid = ?", (PID,))).result(120)
    shutil.copytree(
        EXAMPLE, root / EXAMPLE.name, ignore=shutil.ignore_patterns("__pycache__", "*blaxel*", "*async*")
    )
    for file in root.rglob("*"):
        if file.is_file() and ".loops" not in file.parts:
            os.utime(file, (NOW, NOW))
    return root


def way_to(name: str, columns: int) -> Sequence[tuple[str, str]]:
    if name == "config":  # a check takes the engine; how its report looks is tested with the screen
        return (("2", "train_local.toml"), ("enter", "recipe ="))
    if name == "run":  # as it opens: where a table is scrolled to depends on the way there
        columns = 0
    return next(picture for picture in PICTURES if picture.name == name).way(columns)


async def settled(pilot: Pilot[int], app: LoopsApp) -> None:
    """Wait until a look and the next ones see the same: a pane may scroll once it knows its size."""
    looks: list[str] = []

    def still() -> bool:
        looks.append(screen_text(app))
        return len(looks) > 10 and len(set(looks[-10:])) == 1

    await until(pilot, still, "the screen stands still")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_looks_as_it_did(
    project: Path, screen: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    app = LoopsApp(project, lambda: open_store(project), FakeHosting)

    async def go(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "7 runs" in screen_text(app), "the runs are shown")
        await settled(pilot, app)
        for keys, text in way_to(screen, size[0]):
            await pilot.press(*keys.split())
            await until(pilot, lambda text=text: text in screen_text(app), f"{text} is shown")
            await settled(pilot, app)

    assert snap_compare(app, terminal_size=size, run_before=go)
