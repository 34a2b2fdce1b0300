"""Leaving the app while text is not saved: what becomes of it is asked, and nothing is lost without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from loops_tui.lease_words import counted
from loops_tui.screens.config_buffers import NotSaved
from loops_tui.screens.config_desk import ChangedOutside, Desk, Document
from loops_tui.screens.config_drafts import Drafts
from loops_tui.widgets.confirm import LISTED, Ask, Choice
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp


class Unsaved(Ask):
    """What becomes of texts that are not saved."""


async def tell_left(app: LoopsApp) -> None:
    """Say, when the app is opened, that an earlier one left text unsaved."""
    left = await asyncio.to_thread(Drafts(app.project_dir.resolve()).left)
    if left:
        names = ", ".join(safe(draft.path.name, 40) for draft in left[:LISTED])
        app.notify(
            f"{names}: what was typed and not saved is kept; 2 restores it",
            title="Not saved last time",
            markup=False,
        )


def settle_unsaved(app: LoopsApp, desk: Desk, then: Callable[[], None]) -> None:
    """Ask what becomes of unsaved texts and go on with ``then``; go on at once where there are none."""
    unsaved = desk.unsaved()
    if not unsaved or isinstance(app.screen, Unsaved):  # asked twice: they stay as drafts
        then()
        return

    def answered(answer: str | None) -> None:
        if answer == "save":
            app.spawn(_save_all(app, desk, unsaved, then))
        elif answer == "keep":
            then()
        elif answer == "drop":
            desk.drop_all()
            then()

    names = [f"  {safe(document.file.shown, 56)}" for document in unsaved[:LISTED]]
    if len(unsaved) > LISTED:
        names.append(f"  and {len(unsaved) - LISTED} more")
    app.push_screen(
        Unsaved(
            f"{counted(len(unsaved), 'config')} {'is' if len(unsaved) == 1 else 'are'} not saved",
            names,
            [
                Choice("stay", "Stay", "escape"),
                Choice("save", "Save, then leave", "s"),
                Choice("keep", "Leave; it is restored when the app is opened again", "k"),
                Choice("drop", "Drop what was typed, then leave", "x", grave=True),
            ],
        ),
        answered,
    )


async def _save_all(app: LoopsApp, desk: Desk, unsaved: Sequence[Document], then: Callable[[], None]) -> None:
    for document in unsaved:
        try:
            await desk.save(document)
        except ChangedOutside:
            why = (
                f"{document.file.name} has changed on the disk: decide on the Config screen which text counts"
            )
        except NotSaved as error:
            why = str(error)
        else:
            continue
        app.notify(safe(why, 600), title="Not saved", severity="error", markup=False)
        return
    then()
