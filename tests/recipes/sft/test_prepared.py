"""Training files, prepared: every row is there once or refused with its line, and memory does not grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.config.local_models import model_directory, shipped_models
from engine.config.sft import SftTrainingSettings
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.recipes.sft.prepared import KEPT, PreparationStopped, PreparedData, prepare
from engine.recipes.sft.schedule import batches_of_epoch, learning_rate, steps_of_run

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")


@pytest.fixture(scope="module")
def renderer() -> PolicyRenderer:
    return load_renderer(
        model_name="loops-demo-1m",
        tokenizer_source=str(model_directory("loops-demo-1m")),
        renderer="default",
    )


def chat(answer: str) -> str:
    return json.dumps(
        {"messages": [{"role": "user", "content": "Say."}, {"role": "assistant", "content": answer}]}
    )


def test_rows_become_samples_and_bad_ones_are_listed_with_their_lines(
    tmp_path: Path, renderer: PolicyRenderer
) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(f"\ufeff{chat('a')}\n\n{{broken\n{chat('b')}\n")
    two.write_text(f'{chat("word " * 300)}\n{{"input_ids": [5, 6, 7], "weights": [0, 0, 1]}}')
    seen: list[int] = []
    data = prepare([one, two], renderer, 64, tmp_path / "cache", progress=seen.append)
    assert (len(data), data.summary.rows, data.summary.refused_rows) == (3, 5, 2)
    assert data.summary.refused == {"malformed": 1, "too_long": 1}
    assert [(Path(row.file).name, row.line, row.reason) for row in data.summary.shown] == [
        ("one.jsonl", 3, "malformed"),
        ("two.jsonl", 1, "too_long"),
    ]
    assert [(Path(file).name, line) for file, line in map(data.origin, range(3))] == [
        ("one.jsonl", 1),
        ("one.jsonl", 4),
        ("two.jsonl", 2),
    ]
    assert data.sample(2).tokens == [5, 6, 7]
    assert data.sample(0).weights.count(1.0) == data.sample(0).trained > 0
    assert data.summary.tokens == sum(data.lengths)
    assert seen == [5]
    listed = [json.loads(line) for line in (data.directory / "refused.jsonl").read_text().splitlines()]
    assert [row["line"] for row in listed] == [3, 1]


def test_the_same_files_are_rendered_once(
    tmp_path: Path, renderer: PolicyRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(chat("a"))
    first = prepare([file], renderer, 64, tmp_path / "cache")
    monkeypatch.setattr("engine.recipes.sft.prepared._write", None)
    assert prepare([file], renderer, 64, tmp_path / "cache").directory == first.directory
    monkeypatch.undo()
    file.write_text(chat("b"))
    assert prepare([file], renderer, 64, tmp_path / "cache").directory != first.directory
    assert prepare([file], renderer, 65, tmp_path / "cache").directory != first.directory
    for number in range(KEPT + 2):
        file.write_text(chat(str(number)))
        prepare([file], renderer, 64, tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == KEPT


def test_a_set_that_is_not_whole_is_made_anew(tmp_path: Path, renderer: PolicyRenderer) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(chat("a"))
    made = prepare([file], renderer, 64, tmp_path / "cache")
    tokens = made.sample(0).tokens
    with (made.directory / "tokens.bin").open("ab") as stream:
        stream.truncate(4)
    with pytest.raises(ValueError, match="not whole"):
        PreparedData(made.directory)
    assert prepare([file], renderer, 64, tmp_path / "cache").sample(0).tokens == tokens


def test_preparing_can_be_stopped_and_leaves_nothing(tmp_path: Path, renderer: PolicyRenderer) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(chat(str(number)) for number in range(2000)))
    with pytest.raises(PreparationStopped):
        prepare([file], renderer, 64, tmp_path / "cache", stopped=lambda: True)
    assert list((tmp_path / "cache").iterdir()) == []


_MEASURE = """
import resource, sys
from pathlib import Path
from engine.config.local_models import model_directory
from engine.policy.rendering import load_renderer
from engine.recipes.sft.prepared import prepare
renderer = load_renderer(
    model_name="m", tokenizer_source=str(model_directory("loops-demo-1m")), renderer="default"
)
prepare([Path(sys.argv[2])], renderer, 64, Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = prepare([Path(sys.argv[3])], renderer, 64, Path(sys.argv[1]))
print(len(data), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Two and a half thousand rows of which each is refused for its length: 40 MB of text, and none of it stays."""
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    small.write_text(chat("a"))
    row = json.dumps({"input_ids": [7] * 2700, "weights": [0] * 2699 + [1]}) + "\n"
    with large.open("w") as stream:
        for _ in range(2500):
            stream.write(row)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(tmp_path / "cache"), str(small), str(large)],
        capture_output=True, text=True, check=True, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"}, timeout=240,
    )  # fmt: skip
    samples, grown = map(int, done.stdout.split())
    assert samples == 0
    unit = 1024 if sys.platform == "linux" else 1
    assert grown * unit < 16 * 1024 * 1024 < large.stat().st_size


def settings(**values: object) -> SftTrainingSettings:
    return SftTrainingSettings.model_validate(values)


@pytest.mark.parametrize("shape", [{"batch_size": 7}, {"batch_tokens": 50}])
def test_every_sample_is_in_one_batch_of_each_epoch_and_a_resume_goes_on_where_it_was(
    shape: dict[str, int],
) -> None:
    lengths = np.random.default_rng(0).integers(5, 80, 100).astype(np.int32)
    training = settings(epochs=2, seed=3, **shape)
    epochs = [list(batches_of_epoch(epoch, lengths, training)) for epoch in range(2)]
    for batches in epochs:
        trained = np.concatenate([batch.indices for batch in batches])
        assert sorted(trained) == list(range(100))
    assert [list(batch.indices) for batch in epochs[0]] != [list(batch.indices) for batch in epochs[1]]
    middle = epochs[0][3]
    again = list(batches_of_epoch(0, lengths, training, start=middle.start))
    assert [list(batch.indices) for batch in again] == [list(batch.indices) for batch in epochs[0][3:]]
    assert steps_of_run(lengths, training) == sum(len(batches) for batches in epochs)
    if "batch_tokens" in shape:
        assert all(len(b.indices) == 1 or sum(lengths[b.indices]) <= 50 for b in epochs[0])
    assert steps_of_run(lengths, settings(epochs=2, max_steps=4, **shape)) == 4


def test_files_in_order_without_shuffling() -> None:
    batches = list(batches_of_epoch(1, np.ones(5, np.int32), settings(shuffle=False, batch_size=2)))
    assert [list(batch.indices) for batch in batches] == [[0, 1], [2, 3], [4]]


def test_the_learning_rate_of_each_schedule() -> None:
    def rates(**values: object) -> list[float]:
        training = settings(learning_rate=0.8, **values)
        return [round(learning_rate(step, 6, training), 6) for step in range(1, 7)]

    assert rates(schedule="constant", warmup_steps=3) == [0.2, 0.4, 0.6, 0.8, 0.8, 0.8]
    assert rates(schedule="linear", warmup_steps=2) == pytest.approx([0.266667, 0.533333, 0.8, 0.6, 0.4, 0.2])
    assert rates(schedule="linear", min_learning_rate=0.2) == pytest.approx([0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
    cosine = rates(schedule="cosine")
    assert cosine[0] == 0.8
    assert cosine[3] == pytest.approx(0.4)
    assert cosine == sorted(cosine, reverse=True)
