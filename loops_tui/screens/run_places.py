"""The Run screen's panes: which are shown, which one has the focus, what stands beside the plot."""

from __future__ import annotations

from typing import cast

from engine.store.rows import AttemptRow, GroupRow
from loops_tui.screens.run_controls import RunControls
from loops_tui.screens.run_keys import IN_TAB, SIDES, SUPERVISED_SIDES, SUPERVISED_TABS, TABS
from loops_tui.screens.run_tables import Bin
from loops_tui.widgets.tab_line import TabLine
from loops_tui.widgets.virtual_table import VirtualTable


class RunPlaces(RunControls):
    """A run's panes: all at once where there is room, in tabs where there is not, one of them large where wanted."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self._tab = "overview"
        self._side = SIDES[0]
        self._zoomed = False
        self.add_class("-tab-overview")  # from the start: a class that changes lays everything out anew

    def show_rows(self) -> None:
        """Show what was read, in the panes that are in sight."""
        raise NotImplementedError

    @property
    def groups(self) -> VirtualTable[GroupRow]:
        return cast("VirtualTable[GroupRow]", self.query_one("#groups", VirtualTable))

    @property
    def attempts(self) -> VirtualTable[AttemptRow]:
        return cast("VirtualTable[AttemptRow]", self.query_one("#attempts", VirtualTable))

    @property
    def rewards(self) -> VirtualTable[Bin]:
        return cast("VirtualTable[Bin]", self.query_one("#rewards", VirtualTable))

    @property
    def supervised(self) -> bool:
        """Whether the run is fine-tuning: it has data in place of groups, attempts and rewards."""
        return self.has_class("-supervised")

    @property
    def tabbed(self) -> bool:
        """Whether panes are shown one at a time."""
        return self.is_compact or self._zoomed

    @property
    def tabs(self) -> dict[str, str]:
        return SUPERVISED_TABS if self.supervised else TABS

    def become_supervised(self) -> None:
        """Lay out the panes of fine-tuning; a run's recipe is known with its first row."""
        self.add_class("-supervised")
        self.query_one(TabLine).offer(self.tabs)
        if self.focused is None or not self.focused.display or self.focused in (self.groups, self.attempts):
            self.curve.focus()

    def choose_tab(self, tab: str) -> None:
        self._tab = tab
        for name in TABS:
            if self.has_class(f"-tab-{name}") != (name == tab):
                self.set_class(name == tab, f"-tab-{name}")
        self.query_one(TabLine).write(tab)
        if self.tabbed:
            self._focus_tab()
        elif self.focused is None:
            (self.curve if self.supervised else self.groups).focus()
        self.call_after_refresh(self.show_rows)

    def _focus_tab(self) -> None:
        places = {"overview": self.curve, "groups": self.groups, "attempts": self.attempts}
        places.get(self._tab, self.log_view).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        """After a change of size: the focus belongs in a pane that is shown."""
        if self.tabbed and (self.focused is None or self.focused.id not in IN_TAB[self._tab]):
            self._focus_tab()
        elif self.focused is None:  # there was no room for any
            (self.curve if self.supervised else self.groups).focus()
        self.show_rows()

    def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        self.choose_tab(event.tab)

    def action_tab(self, by: int) -> None:
        names = list(self.tabs)
        self.choose_tab(names[(names.index(self._tab) + by) % len(names)])

    def action_zoom(self) -> None:
        self._zoomed = not self._zoomed
        focused = self.focused
        self.set_class(self._zoomed, "-zoom")
        tab = focused.id if focused is not None and focused.id in TABS else "overview"
        self.choose_tab(tab if self._zoomed else self._tab)
        if focused is not None:
            focused.focus()
        self.refresh_bindings()

    def show_overview(self) -> None:
        if self.tabbed and self._tab != "overview":
            self.choose_tab("overview")

    def action_side(self) -> None:
        sides = SUPERVISED_SIDES if self.supervised else SIDES
        self._side = sides[(sides.index(self._side) + 1) % len(sides)]
        self.set_class(self._side == "rewards", "-side-rewards")
        self.show_overview()
        if self._side == "rewards":
            self.rewards.focus()
        elif self.focused is self.rewards or self.focused is None:
            self.curve.focus()
        self.app.poke()
        self.call_after_refresh(self.show_rows)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "tab":
            return self.tabbed
        if action == "zoom":
            return not self.is_compact
        return super().check_action(action, parameters)
