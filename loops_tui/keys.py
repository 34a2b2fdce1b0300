"""Keys that work everywhere. A screen's own keys stand with the screen.

Every binding has an id, so that a keymap can move it, and a tooltip, from which the help is made.
"""

from __future__ import annotations

from textual.binding import Binding, BindingType

APP_BINDINGS: list[BindingType] = [
    Binding("1", "go_runs", "Runs", show=False, id="app.runs", tooltip="Every run of this project"),
    Binding(
        "2",
        "go_config",
        "Config",
        show=False,
        id="app.config",
        tooltip="Configs: edit, check, run; the examples",
    ),
    Binding("3", "go_run", "Run", show=False, id="app.run", tooltip="The run looked at last"),
    Binding(
        "4",
        "go_sandboxes",
        "Sandboxes",
        show=False,
        id="app.sandboxes",
        tooltip="Every sandbox that may exist; what was left behind",
    ),
    Binding(
        "5",
        "go_checkpoints",
        "Checkpoints",
        show=False,
        id="app.checkpoints",
        tooltip="Every checkpoint, how it did, and which runs still bill",
    ),
    Binding("q", "leave", "Quit", id="app.quit", tooltip="Leave; asks where a run lives in this app"),
    Binding(
        "F",
        "go_search",
        "Find",
        id="app.search",
        tooltip="Find words in the transcripts of this run, or of the whole project",
    ),
    Binding(
        "question_mark", "help", "Help", id="app.help", tooltip="All keys of this screen", key_display="?"
    ),
    Binding(
        "ctrl+p",
        "command_palette",
        "Commands",
        show=False,
        id="app.palette",
        tooltip="Find a command by name",
    ),
    Binding(
        "ctrl+c",
        "interrupt",
        "Interrupt",
        show=False,
        id="app.interrupt",
        priority=True,
        tooltip="Copy the selection; else stop runs of this app after their step and leave; twice: by force",
    ),
]
