"""What a run will be billed for is said before it starts, and what bounds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import LoadedConfig
from engine.config.billing import billed

SANDBOX = '[runtime.config.sandbox]\nprovider = "blaxel"\n'
BUDGET = "[budget]\nmax_hours = 2\n"


@pytest.mark.parametrize(
    ("compute", "more", "said"),
    [
        ('scope = "local"', "", []),
        ('scope = "local"', SANDBOX, ["Sandboxes of 2048 MiB on Blaxel", "No [budget] bounds"]),
        ('scope = "serverless"', BUDGET, ["(serverless): tokens are billed"]),
        ('scope = "dedicated"', BUDGET, ["until it is deactivated, for keep_run leaves it up"]),
        ('scope = "dedicated"\nkeep_run = false', BUDGET, ["until the run ends"]),
        (
            'scope = "dedicated"\nreplicas = 2\nspot = true',
            "",
            ["with 2 trainer replicas, on spot capacity", "No [budget] bounds"],
        ),
        ("", BUDGET, ["where Loops chooses"]),
    ],
)
def test_it_is_said_what_bills_until_when(
    write: Callable[..., Path], load: Callable[..., LoadedConfig], compute: str, more: str, said: list[str]
) -> None:
    loaded = load(write(('scope = "local"', compute), more=more))
    told = billed(loaded.settings, loaded.scope)
    assert len(told) == len(said)
    assert all(words in sentence for words, sentence in zip(said, told, strict=True))
