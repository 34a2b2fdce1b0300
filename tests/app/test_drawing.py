"""Lines, tables' columns, sparks, bars and plots: pure functions."""

from __future__ import annotations

from rich.cells import cell_len

from loops_tui.theme import Tone
from loops_tui.widgets.line_plot import (
    CURSOR,
    Series,
    can_be_log,
    nice_bounds,
    nice_end,
    plot_lines,
    smoothed,
)
from loops_tui.widgets.spans import clip, pad, plain, spread, text_of, width_of
from loops_tui.widgets.spark import spark
from loops_tui.widgets.stack_plot import stack_lines
from loops_tui.widgets.step_bar import share_legend, share_shade, step_bar
from loops_tui.widgets.virtual_table import Column, fit
from loops_tui.widgets.wrapping import wrap, wrap_spans


def test_a_line_is_clipped_by_cells_with_an_ellipsis() -> None:
    assert text_of(clip(plain("abcdef"), 4)) == "abc…"
    assert text_of(clip(plain("abcd"), 4)) == "abcd"
    wide = clip(plain("漢字漢字"), 5)
    assert width_of(wide) <= 5
    assert text_of(clip((("ab", Tone.DIM), ("cdef", Tone.GOOD)), 4)) == "abc…"
    assert clip(plain("abc"), 0) == ()


def test_padding_fills_exactly() -> None:
    assert text_of(pad(plain("ab"), 5)) == "ab   "
    assert text_of(pad(plain("ab"), 5, right=True)) == "   ab"
    assert width_of(pad(plain("漢"), 5)) == 5


def test_the_right_part_of_a_line_outlives_the_left() -> None:
    assert text_of(spread(plain("left side"), plain("right"), 12)) == "left … right"
    assert width_of(spread(plain("a"), plain("b"), 30)) == 30


def test_columns_give_way_by_importance_and_share_what_is_left() -> None:
    columns = [
        Column("a", "a", 10, flex=1),
        Column("b", "b", 10, drop=1),
        Column("c", "c", 10, drop=2),
        Column("d", "d", 4),
    ]
    assert [column.key for _, column, _ in fit(columns, 80)] == ["a", "b", "c", "d"]
    assert [column.key for _, column, _ in fit(columns, 30)] == ["a", "b", "d"]
    assert [column.key for _, column, _ in fit(columns, 17)] == ["a", "d"]
    assert sum(width for _, _, width in fit(columns, 80)) == 80 - 3 * 2
    assert [column.key for _, column, _ in fit(columns, 3)] == ["a", "d"]


def test_a_flexible_column_stops_at_its_most() -> None:
    chosen = fit([Column("a", "a", 5, flex=1, most=8), Column("b", "b", 5, flex=1)], 50)
    assert [width for _, _, width in chosen] == [8, 40]


def test_sparks_show_the_whole_course() -> None:
    assert spark([0, 1], 8, 0, 1) == "▁█"
    assert len(spark([value / 100 for value in range(100)], 10)) == 10
    assert spark([], 5) == ""
    assert spark([3, 3, 3], 5) == "▄▄▄"


def test_a_step_bar_is_always_full_and_shows_every_state() -> None:
    for counts in ({"done": 1, "sampling": 63}, {"done": 64}, {"queued": 64}, {"grading": 1, "queued": 63}):
        bar = text_of(step_bar(counts, 64, 20))
        assert len(bar) == 20
        for name, char in (("done", "█"), ("grading", "▓"), ("sampling", "░")):
            assert (char in bar) == bool(counts.get(name))


def test_a_legend_takes_the_lines_it_needs() -> None:
    shares = {"rollout": 0.6, "train": 0.3, "publish": 0.1}
    assert len(share_legend(shares, 80)) == 1
    assert all(width_of(line) <= 20 for line in share_legend(shares, 20))


def test_plots_fit_their_frame() -> None:
    points = [(float(step), step / 20) for step in range(1, 21)]
    lines = plot_lines([Series(points)], 60, 12, x_max=40)
    assert len(lines) == 12
    assert all(width_of(line) <= 60 for line in lines)
    assert text_of(lines[-1]).strip().endswith("40")
    assert plot_lines([], 60, 12) == []
    assert plot_lines([Series(points)], 5, 2) == []
    assert plot_lines([Series([(1.0, float("nan"))])], 60, 12) == []


def test_a_new_point_changes_few_cells_of_a_plot() -> None:
    points = [(float(step), step / 40) for step in range(1, 31)]
    before = plot_lines([Series(points[:-1])], 60, 12, x_max=nice_end(29, 200))
    after = plot_lines([Series(points)], 60, 12, x_max=nice_end(30, 200))
    differ = sum(a != b for one, other in zip(before, after, strict=True)
                 for a, b in zip(text_of(one).ljust(60), text_of(other).ljust(60), strict=True))  # fmt: skip
    assert 0 < differ <= 4


def test_an_axis_ends_where_the_run_does_or_at_a_round_number() -> None:
    assert nice_end(20, 40) == 40
    assert nice_end(3, 10) == 10
    assert nice_end(30, 1000) == nice_end(37, 1000) == 40
    assert nice_end(41, 1000) == 80
    assert nice_end(150, None) == 200
    assert nice_end(995, None) == 2000


def test_marks_and_the_cursor_are_in_their_columns() -> None:
    line, held = Series([(1.0, 0.0), (10.0, 1.0)]), Series([(1.0, 1.0)], Tone.ACCENT, "◆")
    rows = [text_of(row) for row in plot_lines([line, held], 40, 8, cursor=10.0)]
    assert rows[0].index("◆") == rows[0].index("┤") + 1
    assert all(row.endswith(CURSOR) for row in rows[1:-1])


def test_a_logarithmic_axis_is_labelled_in_values() -> None:
    points = [(1.0, 0.0), (2.0, 1e-8), (3.0, 1e-2)]
    rows = [text_of(row) for row in plot_lines([Series(points)], 60, 10, log=True)]
    assert rows[0].strip().startswith("0.01")
    assert rows[-2].strip().startswith("1e-9")
    assert can_be_log([Series(points)])
    assert not can_be_log([Series([(1.0, -1.0)])])
    assert not can_be_log([Series([(1.0, 0.0)])])


def test_smoothing_is_the_mean_of_the_last_points() -> None:
    points = [(1.0, 0.0), (2.0, 1.0), (3.0, float("nan")), (4.0, 2.0)]
    assert smoothed(points, 2) == [(1.0, 0.0), (2.0, 0.5), (3.0, 1.0), (4.0, 2.0)]


def test_a_stack_shows_every_part_and_fills_the_whole() -> None:
    columns = [(float(step), {"sampling": 0.9, "training": 0.09, "idle": 0.01}) for step in range(1, 11)]
    names = ("sampling", "training", "idle")
    lines = stack_lines(columns, names, 50, 10)
    assert len(lines) == 10
    assert all(width_of(line) <= 50 for line in lines)
    area = [text_of(line)[6:] for line in lines[:-1]]
    for place in range(3):
        assert any(share_shade(place)[0] in row for row in area)
    assert " " not in "".join(area)
    counts = stack_lines([(1.0, {"a": 2.0}), (2.0, {"a": 4.0})], ("a",), 50, 9, shares=False)
    assert text_of(counts[0]).count("█") < text_of(counts[-2]).count("█")
    assert stack_lines([], names, 50, 10) == []


def test_rewards_are_plotted_between_nought_and_one() -> None:
    assert nice_bounds([0.2, 0.7]) == (0.0, 1.0)
    low, high = nice_bounds([-3.0, 12.0])
    assert low <= -3.0 <= 12.0 <= high
    assert nice_bounds([5.0, 5.0]) == (4.5, 5.5)


def test_wrapping_never_exceeds_the_width_and_loses_nothing() -> None:
    for text in (
        "a few words that are wrapped between words",
        "x" * 100,
        "漢字" * 40,
        "mixed 漢字 and words " * 5,
    ):
        for width in (1, 7, 20):
            pieces = list(wrap(text, width))
            assert all(cell_len(piece) <= max(width, 2) for piece in pieces)
            assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert list(wrap("", 10)) == [""]


def test_wrapped_spans_keep_their_tones() -> None:
    spans = [("abc", Tone.GOOD), ("defgh", Tone.BAD), ("漢字", Tone.DIM)]
    lines = list(wrap_spans(spans, 4))
    assert all(width_of(line) <= 4 for line in lines)
    joined = [(char, tone) for line in lines for text, tone in line for char in text]
    assert joined == [(char, tone) for text, tone in spans for char in text]


def test_a_path_and_a_dotted_key_are_broken_behind_their_parts() -> None:
    assert list(wrap("runtime.config.agent_timeout_seconds", 34)) == [
        "runtime.config.",
        "agent_timeout_seconds",
    ]
    assert list(wrap("/data/ann/agents/tool_agent/tasks.jsonl", 30)) == [
        "/data/ann/agents/tool_agent/",
        "tasks.jsonl",
    ]
    assert list(wrap("0.123456789", 8)) == ["0.123456", "789"]
    assert list(wrap("x" * 20, 8)) == ["x" * 8, "x" * 8, "x" * 4]
