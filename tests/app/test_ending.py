"""The app is left at any moment without an error of its own, also while a screen is being opened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.app.conftest import make_app


@pytest.mark.parametrize(
    ("key", "turns"), [("2", 4), ("2", 8), ("2", 25), ("3", 4), ("4", 4), ("5", 4)], ids=str
)
async def test_left_while_a_screen_opens(project: Path, key: str, turns: int) -> None:
    (project / "train.toml").write_text('recipe = "rl"\n')
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        app.simulate_key(key)
        for _ in range(turns):
            await asyncio.sleep(0)
    assert app.crash is None


async def test_a_defect_still_ends_the_app(project: Path) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("a defect")

    app = make_app(project)

    async def lead() -> None:
        async with app.run_test() as pilot:
            app.spawn(broken())
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        await lead()
    assert app.crash == "ZeroDivisionError: a defect"
