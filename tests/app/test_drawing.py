"""Lines, tables' columns, sparks, bars and plots: pure functions."""

from __future__ import annotations

from rich.cells import cell_len

from loops_tui.theme import Tone
from loops_tui.widgets.line_plot import nice_bounds, plot_lines
from loops_tui.widgets.spans import clip, pad, plain, spread, text_of, width_of
from loops_tui.widgets.spark import spark
from loops_tui.widgets.step_bar import share_legend, step_bar
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
    lines = plot_lines(points, 60, 12, x_max=40)
    assert len(lines) == 12
    assert all(width_of(line) <= 60 for line in lines)
    assert text_of(lines[-1]).strip().endswith("40")
    assert plot_lines([], 60, 12) == []
    assert plot_lines(points, 5, 2) == []
    assert plot_lines([(1.0, float("nan"))], 60, 12) == []


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
