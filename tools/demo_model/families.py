"""The list of task families, and how often a demonstration of each goes right."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from .families_config import config_set, get_key
from .families_csv import count_status, field, sum_col
from .families_edit import append_absent, make_file, rename, replace_word
from .families_lines import count_lines, end_line, longest, uniq
from .task import FileTask
from .words import WordSource

# Share of right demonstrations. A family whose command copies more words fails more often for that reason alone,
# so it is shown going right more often.
RIGHT_SHARE: dict[Callable[[WordSource], FileTask], float] = {
    config_set: 0.5,
    get_key: 0.45,
    count_status: 0.45,
    sum_col: 0.5,
    field: 0.5,
    append_absent: 0.35,
    make_file: 0.5,
    rename: 0.5,
    replace_word: 0.5,
    end_line: 0.4,
    longest: 0.4,
    uniq: 0.4,
    count_lines: 0.4,
}
FAMILIES = {make.__name__: make for make in RIGHT_SHARE}


def make_task(family: str, seed: str | int, held_out: bool = False) -> FileTask:
    """The same family, seed and word pool always give the same task."""
    rng = random.Random(f"{family}/{seed}")
    return dataclasses.replace(FAMILIES[family](WordSource(rng, held_out)), family=family)


def right_share(family: str) -> float:
    return RIGHT_SHARE[FAMILIES[family]]
