"""What a config may say and hardly means is a warning at its line, in the editor and in a check."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config.linting import lint
from tests.config.conftest import CONFIG

DOUBTFUL = {
    "a rate that ruins": ("max_steps = 3", "max_steps = 3\nlearning_rate = 0.3", "0.3 ruins most models"),
    "a rate that does nothing": ("max_steps = 3", "max_steps = 3\nlearning_rate = 1e-9", "hardly changes"),
    "a bound that is meant as a distance": (
        "max_steps = 3",
        "max_steps = 3\nloss_config = { clip_low_threshold = 0.2, clip_high_threshold = 0.28 }",
        "Did you mean 1.28?",
    ),
    "a lower bound that cuts fresh samples": (
        "max_steps = 3",
        "max_steps = 3\nloss_config = { clip_low_threshold = 1.1 }",
        "below 1, such as 0.8",
    ),
    "capacity that goes, and nothing saved": ('"local"', '"dedicated"\nspot = true', "checkpoint_every"),
    "evaluations after the end": (
        '"local"\n',
        '"local"\n[eval]\ntasks = "tasks.jsonl"\nevery_steps = 4\n',
        "nothing is evaluated in between",
    ),
    "greedy attempts at the same": (
        '"local"\n',
        '"local"\n[eval]\ntasks = "tasks.jsonl"\ntemperature = 0\nattempts_per_task = 4\n',
        "at temperature 0 the attempts at a task say the same",
    ),
    "unclipped and an update old": (
        "max_steps = 3",
        'max_steps = 3\nmode = "async"\nloss = "importance_sampling"',
        "may be 1 update old: a ratio",
    ),
    "a temperature that biases": (
        "max_tokens = 32",
        "max_tokens = 32\ntemperature = 0.7",
        "biases the training",
    ),
    "limits of sandboxes that there are not": (
        '"local"\n',
        '"local"\n[providers.blaxel]\nmax_live = 3\n',
        "no sandbox of this run is Blaxel's",
    ),
    "a cost of a local run": (
        '"local"\n',
        '"local"\n[prices]\ntrainer_hour = 1.0\n[budget]\nmax_cost = 3.0\n',
        "bounds nothing here",
    ),
    "a cost of local sandboxes without a price": (
        '"local"\n',
        '"local"\n[runtime.config.sandbox]\nprovider = "local"\n[prices]\ntrainer_hour = 1.0\n[budget]\nmax_cost = 3.0\n',
        "[prices] has no sandbox_gb_hour",
    ),
}
PLAIN = {
    "usual clipping": "max_steps = 3\nloss_config = { clip_low_threshold = 0.8, clip_high_threshold = 1.28 }",
    "no clipping below": "max_steps = 3\nloss_config = { clip_low_threshold = 0 }",
    "usual rates": "max_steps = 3\nlearning_rate = 0.003",
}


def warnings(text: str, where: Path) -> list[str]:
    (where / "tasks.jsonl").write_text("{}\n")
    (where / "my_episode.py").write_text("")
    linted = lint(text, where / "train.toml", working_dir=where, environ={})
    assert linted.settings is not None, linted.findings
    assert all(finding.line is not None and finding.remedy for finding in linted.findings)
    return [str(finding) for finding in linted.findings if finding.severity == "warning"]


@pytest.mark.parametrize(("old", "new", "said"), DOUBTFUL.values(), ids=DOUBTFUL.keys())
def test_it_is_doubted_once(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in CONFIG
    [warning] = warnings(CONFIG.replace(old, new), tmp_path)
    assert said in warning


@pytest.mark.parametrize("new", PLAIN.values(), ids=PLAIN.keys())
def test_what_is_usual_is_not(tmp_path: Path, new: str) -> None:
    assert warnings(CONFIG.replace("max_steps = 3", new), tmp_path) == []
