"""A large import does not make the collector walk over all objects, and leaves it as it was."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from engine.importing import uncollected

LOADED = """
import gc
from engine.sandboxes.blaxel.sdk import load
began = []
gc.callbacks.append(lambda phase, info: began.append(info["generation"]) if phase == "start" else None)
load()
print(max(began, default=-1), gc.isenabled())
"""


def test_the_collector_is_on_again_afterwards() -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    seen: list[bool] = []

    def broken() -> None:
        with uncollected():
            seen.append(gc.isenabled())
            raise ImportError

    with pytest.raises(ImportError):
        broken()
    assert seen == [False]
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nobody_walks_over_all_objects_while_the_blaxel_sdk_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    oldest, on = done.stdout.split() or ["", done.stderr]
    assert oldest in ("-1", "0", "1")  # 2 walks over everything
    assert on == "True"


WITHOUT = """
import sys
from engine.loops.sdk import ready_sdk
ready_sdk()
from baseten.loops import ServiceClient, TrainingClient, training_client
assert not {"wandb", "baseten.client"} & set(sys.modules), "it is imported"
stand_in = training_client.wandb
import wandb
assert wandb is not stand_in and wandb.__file__, "whoever wants it gets the stand-in"
assert stand_in.init is wandb.init, "the SDK's own use of it fails"
stand_in = training_client._checkpoint_download
from baseten.loops import _checkpoint_download
assert _checkpoint_download is not stand_in, "whoever wants it gets the stand-in"
assert stand_in.download is _checkpoint_download.download, "the SDK's own use of it fails"
"""


def test_the_sdk_is_imported_without_what_is_not_used_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
