"""Exit statuses of what was refused: 2 where it lies in what was asked for, 1 where in what was met."""

from __future__ import annotations

import pytest

from engine.hosting.checkpoint_lookup import CheckpointUnknown
from engine.hosting.errors import BadRequest, HostingError, ResumeRefused
from engine.store.errors import RunTaken, StoreError, UnknownCheckpoint, UnknownRun
from loops_tui.commands.output import BAD_INPUT, FAILED, UsageError, explain


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ResumeRefused("run r is running, in process 7 on box (app); only …"), BAD_INPUT),
        # The same, found out a moment later, when the store is asked to hand the run over.
        (RunTaken("run r is starting, in process 7 on box (app); only …"), BAD_INPUT),
        (UnknownRun("there is no run 'r'"), BAD_INPUT),
        (UnknownCheckpoint("run r has no such checkpoint"), BAD_INPUT),
        (CheckpointUnknown("Loops no longer has step-000001 of run r"), BAD_INPUT),
        (BadRequest("a model name is …"), BAD_INPUT),
        (UsageError("say which"), BAD_INPUT),
        (StoreError("store: the disk is full"), FAILED),
        (HostingError("nothing answers at Baseten"), FAILED),
    ],
)
def test_a_refusal_s_status(error: Exception, status: int) -> None:
    assert explain(error) == (str(error), status)
