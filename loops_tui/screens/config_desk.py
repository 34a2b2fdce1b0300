"""The configs on the desk: what is open, what of it is not saved, what its text's problems are.

It outlives the screen's being looked at: leaving the screen loses nothing. Disk and parser are used in threads;
everything else happens on the screen's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loops_tui.screens.config_buffers import (
    NotSaved,
    OnDisk,
    Unopened,
    open_file,
    read_disk,
    save_file,
    stamp_of,
)
from loops_tui.screens.config_diff import counts
from loops_tui.screens.config_drafts import Draft, Drafts, digest
from loops_tui.screens.config_files import ConfigFile

if TYPE_CHECKING:
    from engine.config.linting import Linted

LINT_SECONDS = 0.3  # after the last key
DRAFT_SECONDS = 1.0  # after the first key that is not kept yet


class ChangedOutside(Exception):
    """The file is not what it was when it was opened: somebody has to say which text counts."""


@dataclass(slots=True, eq=False)
class Document:
    """One open config. ``text`` is what the editor holds, ``disk`` what the file held when last looked at."""

    file: ConfigFile
    text: str
    disk: OnDisk
    base: OnDisk  # what the text was made from
    linted: Linted | None = None
    restored_at: float | None = None  # Unix seconds of the draft that the text was restored from
    revision: int = 0
    kept: int = 0  # the revision that is in the draft
    linting: asyncio.TimerHandle | None = None
    unsaved: tuple[int, int] = (0, 0)  # lines of the text that the file has not, and the other way round

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def modified(self) -> bool:
        """Whether the text is not what the file held when it was opened or saved last."""
        return self.text != self.base.text or self.base.data is None

    @property
    def outside(self) -> Literal["changed", "gone"] | None:
        """What happened to the file behind the editor's back."""
        if self.disk.data == self.base.data:
            return None
        return "gone" if self.disk.data is None else "changed"


class Desk:
    """The open documents of one app. ``spawn`` runs a coroutine, ``later`` calls back, ``told`` hears of changes."""

    def __init__(
        self,
        project_dir: Path,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        told: Callable[[Document], None],
        trouble: Callable[[str], None],
        *,
        keeps_drafts: bool,
    ) -> None:
        self.documents: dict[Path, Document] = {}
        self._project_dir = project_dir
        self._drafts = Drafts(project_dir)
        self._keeps_drafts = keeps_drafts
        self._spawn = spawn
        self._told = told
        self._trouble = trouble
        self._troubled = False
        self._keeping: asyncio.TimerHandle | None = None

    # -- opening -----------------------------------------------------------------------------------------------

    async def open(self, file: ConfigFile) -> Document:
        """The document of a file, read if it is not open yet. Raises Unopened."""
        known = self.documents.get(file.path)
        if known is not None:
            return known
        text, disk = await asyncio.to_thread(open_file, file.path)
        document = self.documents.setdefault(file.path, Document(file, text, disk, disk))
        self._spawn(self._lint(document))
        return document

    async def restore(self) -> list[Document]:
        """Open what an earlier process left unsaved, as it was typed."""
        if not self._keeps_drafts:
            return []
        drafts = await asyncio.to_thread(self._drafts.left)
        restored = [document for draft in drafts if (document := await self._restore(draft)) is not None]
        return restored

    async def _restore(self, draft: Draft) -> Document | None:
        if draft.path in self.documents:
            return None
        try:
            text, disk = await asyncio.to_thread(open_file, draft.path)
        except Unopened:
            if await asyncio.to_thread(draft.path.exists):
                return None  # it cannot be edited now; the draft waits
            text, disk = "", OnDisk(None, None)
        if draft.text == text and disk.data is not None:
            await asyncio.to_thread(self._drafts.forget, draft.path)  # saved after all
            return None
        inside = draft.path.is_relative_to(self._project_dir)
        shown = draft.path.relative_to(self._project_dir).as_posix() if inside else draft.path.name
        document = Document(
            ConfigFile(draft.path, shown, False), draft.text, disk, disk, restored_at=draft.at
        )
        if digest(disk.data) != draft.base:
            # The file is another one than the draft began from: that must be decided, not overwritten.
            document.base = OnDisk(None if disk.data is None else b"", None)
        self.documents[draft.path] = document
        try:
            await asyncio.to_thread(self._drafts.adopt, draft)
        except OSError as error:
            self._say_once(error)
        self._spawn(self._lint(document))
        return document

    async def edited_elsewhere(self) -> dict[Path, int]:
        """Configs that another app on this project is editing, with its pid."""
        return await asyncio.to_thread(self._drafts.others)

    # -- typing ------------------------------------------------------------------------------------------------

    def typed(self, document: Document, text: str) -> None:
        """The editor holds another text now."""
        if text == document.text:
            return
        document.text = text
        document.revision += 1
        loop = asyncio.get_running_loop()
        if document.linting is not None:
            document.linting.cancel()
        document.linting = loop.call_later(LINT_SECONDS, lambda: self._spawn(self._lint(document)))
        if self._keeping is None and self._keeps_drafts:
            self._keeping = loop.call_later(DRAFT_SECONDS, self._keep_soon)

    async def look_now(self, document: Document) -> None:
        """Look at the text as it is at this moment, whatever was known of it before."""
        if document.linting is not None:
            document.linting.cancel()
        await self._lint(document)

    async def _lint(self, document: Document) -> None:
        from engine.config.linting import lint

        revision, text, saved = document.revision, document.text, document.disk.text

        def look() -> tuple[Linted, tuple[int, int]]:
            return lint(text, document.path, working_dir=self._project_dir), counts(saved, text)

        linted, unsaved = await asyncio.to_thread(look)
        if document.revision == revision:
            document.linted, document.unsaved = linted, unsaved
            self._told(document)

    def _keep_soon(self) -> None:
        self._keeping = None
        self._spawn(self._keep())

    async def _keep(self) -> None:
        for document in self._unchanged_again():
            await self._drop_draft(document)
        for document in self.unsaved():
            revision = document.revision
            if document.kept == revision:
                continue
            try:
                await asyncio.to_thread(
                    self._drafts.write, document.path, document.text, digest(document.base.data)
                )
            except OSError as error:
                self._say_once(error)
                return
            document.kept = revision

    def keep_now(self) -> None:
        """Write every draft that is due, on the caller's thread: the app is ending."""
        for timer in (self._keeping, *(document.linting for document in self.documents.values())):
            if timer is not None:
                timer.cancel()
        if not self._keeps_drafts:
            return
        for document in self._unchanged_again():
            self._drafts.drop(document.path)
        for document in self.unsaved():
            if document.kept != document.revision:
                try:
                    self._drafts.write(document.path, document.text, digest(document.base.data))
                except OSError as error:
                    self._say_once(error)
                    return

    def _unchanged_again(self) -> list[Document]:
        """Those whose text was taken back to the file's since a draft was written or due."""
        return [one for one in self.documents.values() if not one.modified and one.kept != one.revision]

    def _say_once(self, error: OSError) -> None:
        if not self._troubled:
            self._troubled = True
            self._trouble(f"unsaved text cannot be kept in .loops/drafts: {error.strerror or error}")

    def unsaved(self) -> list[Document]:
        """Documents whose text is not in their file."""
        return [
            document
            for document in self.documents.values()
            if document.modified and not document.file.bundled
        ]

    # -- the file ----------------------------------------------------------------------------------------------

    async def look(self) -> list[Document]:
        """Look whether files have changed; returns the documents whose text or state is another now."""
        changed: list[Document] = []
        for document in list(self.documents.values()):
            stamp = await asyncio.to_thread(stamp_of, document.path)
            if stamp == document.disk.stamp:
                continue
            try:
                now = await asyncio.to_thread(read_disk, document.path)
            except OSError:
                continue  # unreadable for the moment; saving will tell
            before, document.disk = document.disk, now
            if now.data == before.data:
                if document.base.data == now.data:
                    document.base = now
                continue
            if not document.modified and now.data is not None:
                await self._take(document)
            changed.append(document)
        return changed

    async def _take(self, document: Document) -> None:
        """Make the text what the file holds, where it can be edited and nobody has typed meanwhile."""
        revision = document.revision
        try:
            text, disk = await asyncio.to_thread(open_file, document.path)
        except Unopened:
            return
        if document.revision == revision:
            document.text, document.disk, document.base = text, disk, disk
            document.revision += 1
            self._spawn(self._lint(document))

    async def save(self, document: Document, *, over: bool = False) -> None:
        """Write the text to its file. ``over``: although the file has changed meanwhile.

        Raises ChangedOutside (nothing was written) or NotSaved.
        """
        text = document.text
        if not over:
            try:
                document.disk = await asyncio.to_thread(read_disk, document.path)
            except OSError as error:
                raise NotSaved(f"{document.file.name} was not saved: {error.strerror or error}") from error
            if document.outside == "changed":
                raise ChangedOutside
        disk = await asyncio.to_thread(save_file, document.path, text, document.base)
        document.disk = document.base = disk
        document.restored_at = None
        if document.text == text:
            await self._drop_draft(document)
        self._told(document)

    async def discard(self, document: Document) -> None:
        """Throw away what was typed: the text is the file's again. Raises Unopened."""
        document.text, disk = await asyncio.to_thread(open_file, document.path)
        document.disk = document.base = disk
        document.restored_at = None
        document.revision += 1
        await self._drop_draft(document)
        self._spawn(self._lint(document))

    def close(self, document: Document) -> None:
        """Take a document off the desk."""
        self.documents.pop(document.path, None)

    async def _drop_draft(self, document: Document) -> None:
        document.kept = document.revision
        if self._keeps_drafts:
            await asyncio.to_thread(self._drafts.drop, document.path)

    def drop_all(self) -> None:
        """Forget every draft of this process: the person said that they do not matter."""
        for document in list(self.documents.values()):
            self._drafts.drop(document.path)
            document.text, document.base = document.disk.text, document.disk
