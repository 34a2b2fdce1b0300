"""The places of the Run screen, and its keys: those that matter most first: the line of keys shows as many as there is room for."""

from __future__ import annotations

from textual.binding import Binding, BindingType

# Where there is not room for all panes: the tabs, and which pane can have the focus in each.
TABS = {"overview": "Overview", "groups": "Groups", "attempts": "Attempts", "log": "Log"}
IN_TAB = {
    "overview": ("plot", "side", "rewards", "log"),
    "groups": ("groups",),
    "attempts": ("attempts",),
    "log": ("log",),
}
SIDES = ("step", "rewards", "health", "run")
# Fine-tuning has data in place of groups, attempts and rewards.
SUPERVISED_TABS = {"overview": "Overview", "log": "Log"}
SUPERVISED_SIDES = ("step", "data", "health", "run")

RUN_BINDINGS: list[BindingType] = [
    Binding("enter", "open", "Open", id="run.open", tooltip="A group's attempts; an attempt's transcript"),
    Binding(
        "left_square_bracket", "tab(-1)", "Tab", show=False, id="run.tab_before", tooltip="The tab before"
    ),
    Binding(
        "right_square_bracket", "tab(1)", "Tab", key_display="[ ]", id="run.tab_after", tooltip="The next tab"
    ),
    Binding("space", "hold", "Hold view", id="run.hold", tooltip="Hold the view still; the run goes on"),
    Binding("f", "follow", "Newest", id="run.follow", tooltip="Follow the newest group again"),
    Binding("v", "curve(1)", "Plot", id="run.curve", tooltip="Plot the next figure"),
    Binding("V", "curve(-1)", "Plot before", show=False, id="run.curve_before", tooltip="Plot the figure before"),
    Binding("m", "metric", "Metric", id="run.metric", tooltip="Plot any metric of the run, found by a few letters"),
    Binding("i", "side", "Beside", id="run.side",
            tooltip="Beside the plot: the step, the rewards (or the data), the run's health, the run"),
    Binding("w", "smooth", "Smooth", show=False, id="run.smooth", tooltip="Smooth the curve: not, over 5 or 20 steps"),
    Binding("L", "log_scale", "Log scale", show=False, id="run.log_scale",
            tooltip="Powers of ten on the plot's axis, or not"),
    Binding("e", "evaluations", "Held-out", show=False, id="run.evaluations",
            tooltip="The groups of an evaluation; again: of an older one, then of training"),
    Binding("z", "zoom", "Zoom", id="run.zoom", tooltip="The pane in focus as large as the screen, and back"),
    Binding("slash", "search", "Search log", show=False, id="run.search", tooltip="Find a text in the log"),
    Binding("full_stop", "match(1)", "Next match", show=False, id="run.match_after", tooltip="The next match in the log"),
    Binding("comma", "match(-1)", "Match before", show=False, id="run.match_before",
            tooltip="The match before in the log"),
    Binding("l", "level", "Log level", show=False, id="run.level", tooltip="The log: all, from warnings on, errors"),
    Binding("P", "pause", "Pause", id="run.pause", tooltip="Ask the run to pause; asks first"),
    Binding("P", "resume", "Go on", id="run.resume", tooltip="Ask a paused run to go on; asks first"),
    Binding("s", "stop", "Stop", id="run.stop", tooltip="End the run after the step in hand; asks first"),
    Binding("A", "abort", "Abort", id="run.abort", tooltip="End the run now; asks first"),
    Binding("c", "save_checkpoint", "Checkpoint", id="run.save",
            tooltip="Ask the run to save a checkpoint after the step in hand"),
    Binding("R", "resume_run", "Resume", id="run.resume_ended",
            tooltip="Go on from its last checkpoint, in this app; asks first"),
    Binding("escape", "back", "Back", id="run.back", tooltip="Out of what was chosen; back to the runs"),
]  # fmt: skip
