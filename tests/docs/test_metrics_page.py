"""Every number that a run tells is explained."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE, ENGINE = ROOT / "docs" / "metrics.md", ROOT / "engine"
#: What real runs of the bundled examples told, names of tasks and reasons included.
TOLD = [
    "reward/mean", "reward/min", "reward/max", "reward/group_std_mean", "reward/mean_with_unusable",
    "reward/task/add_once", "reward/part/tests", "discard/groups/no_variance", "discard/groups/too_many_losses",
    "discard/attempts", "discard/attempts/infrastructure", "rollout/retries", "rollout/turns", "rollout/calls",
    "rollout/termination_reason/completed", "rollout/timed_out", "rollout/truncated", "tokens/sampled",
    "tokens/prompt", "tokens/trained", "tokens/sampled_per_second", "tokens/segments_per_attempt",
    "tokens/sampled_per_attempt", "time/step", "time/rollout", "time/train", "time/publish", "time/share/train",
    "time/attempt_share/provisioning", "loss", "train/kl/k3", "train/clip_fraction", "optim/grad_norm",
    "optim/learning_rate", "optim/train-sample-div/kl_sample_train_k3", "optim/train-sample-div/entropy",
    "groups/trained", "groups/finished", "loss/validation", "learning_rate", "epoch", "rows", "tokens/total",
    "time/validate", "eval/mean", "time/held_publish", "slots/busy", "lag/mean", "lag/max", "lag/groups/1",
    "lag/1/kl_sample_train_k3", "canary/changed",
]  # fmt: skip


#: How the names of metrics begin, where the code that makes them writes them out.
_WRITTEN = re.compile(
    r"(canary|discard|eval|groups|lag|loss|optim|reward|rollout|slots|time|tokens|train)/[\w@./§-]*"
)

needs_page = pytest.mark.skipif(not PAGE.is_file(), reason="the documents are not here")


def named_on_the_page() -> list[str]:
    cells = re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def pattern(name: str, open_part: str) -> str:
    """A name whose open parts stand for anything."""
    return ".+".join(re.escape(part) for part in re.split(open_part, name))


def explained(metric: str) -> bool:
    return any(re.fullmatch(pattern(name, r"<[^>]+>|…|\*"), metric) for name in named_on_the_page())


def written() -> dict[str, str]:
    """Each name of a metric that the engine's code holds, § for what is filled in → a file that holds it."""
    found: dict[str, str] = {}
    for file in sorted([*(ENGINE / "recipes").rglob("*.py"), *(ENGINE / "loops").rglob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "§" for part in node.values]
                text = "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if _WRITTEN.fullmatch(text):
                found.setdefault(f"{text}§" if text[-1] in "/@" else text, file.name)
    return found


@needs_page
@pytest.mark.parametrize("metric", TOLD)
def test_the_metric_is_explained(metric: str) -> None:
    assert explained(metric)


@needs_page
def test_every_name_that_the_code_writes_is_explained() -> None:
    names = written()
    assert len(names) > 40
    page = named_on_the_page()

    def on_the_page(name: str) -> bool:  # or one that it can become
        return explained(name) or any(re.fullmatch(pattern(name, "§"), other) for other in page)

    assert {name: file for name, file in names.items() if not on_the_page(name)} == {}
