"""``leases`` and ``cleanup``: with rows alone, and with real sandboxes of runs that were killed."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.sandboxes.local.inside import landlock
from engine.store import Store
from engine.store.leases import LeaseJournal
from engine.store.rows import LeaseRow, LeaseState, RunState
from loops_tui.commands import cleanup as commands
from tests.cli.conftest import Call
from tests.cli.holding import HELD
from tests.hosting.stand_ins import make_project
from tests.sandboxes.traces import traces
from tests.store.conftest import make_host, make_run

RUN, OTHER = "20261129-143501-k3f9", "20261129-150000-b2c4"
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("loops-tui")


def lease(name: str, run_id: str | None = RUN, **changes: Any) -> LeaseRow:
    values: dict[str, Any] = {
        "group_id": 4, "attempt": 2, "host_id": "host-1", "state": LeaseState.ACTIVE, "created_at": time.time() - 90,
        "ttl_seconds": 600.0, **changes,
    }  # fmt: skip
    return LeaseRow(name, "local", "bubblewrap", run_id, **values)


def put(store: Store, *rows: LeaseRow) -> None:
    async def add() -> None:
        journal = LeaseJournal(store)
        for row in rows:
            await journal.add(row)

    asyncio.run(add())


def states(store: Store) -> dict[str, LeaseState]:
    return {row.name: row.state for row in store.reader().leases()}


@pytest.fixture
def store(project_dir: Path) -> Iterator[Store]:
    """Two runs of this project: one that lives, in this process, and one that was interrupted."""
    with Store.open(project_dir) as opened:
        for run_id, name in ((RUN, "demo"), (OTHER, "other")):
            opened.create_run(
                make_run(project_dir, run_id, name=name, run_dir=str(project_dir / "runs" / name / run_id))
            )
        opened.claim(RUN, make_host(), RunState.RUNNING)
        opened.claim(OTHER, make_host("host-2", pid=2**22 + 1), RunState.RUNNING)
        opened.reconcile()
        yield opened


# -- leases --------------------------------------------------------------------------------------------------------


def test_no_store_no_leases_and_none_made(call: Call, project_dir: Path) -> None:
    said = call("leases", "--json")
    assert (said.status, said.value) == (0, [])
    said = call("cleanup", "--json")
    assert (said.status, said.value["released"], said.value["ok"]) == (0, [], True)
    assert call("cleanup", "x.toml").status == 2
    assert list(project_dir.iterdir()) == []


def test_leases_as_table_and_json(call: Call, store: Store) -> None:
    put(
        store,
        lease("ltui-held"),
        lease("ltui-left", OTHER, host_id="host-2", state=LeaseState.LOST, last_error="503 \x1b[2J", tries=6),
        lease("ltui-gone", state=LeaseState.RELEASED, released_at=time.time()),
    )
    said = call("leases")
    assert said.status == 0
    header, held, left = said.out.splitlines()
    assert header.split() == [
        "NAME",
        "STATE",
        "PROVIDER",
        "ISOLATION",
        "RUN",
        "ATTEMPT",
        "AGE",
        "TTL",
        "LEFT",
        "OWNER",
    ]
    assert held.split()[:7] == ["ltui-held", "active", "local", "bubblewrap", RUN, "g4", "#2"]
    assert f"alive: headless {os.getpid()}" in held
    assert (left.split()[1], left.split()[-1]) == ("lost", "dead")
    assert "1 sandbox held by nobody alive: `loops-tui cleanup` releases them" in said.err
    rows = {row["name"]: row for row in call("leases", "--json", "--all").value}
    assert set(rows) == {"ltui-held", "ltui-left", "ltui-gone"}
    assert rows["ltui-held"]["owner_alive"] is True
    assert rows["ltui-held"]["owner"]["pid"] == os.getpid()
    assert (rows["ltui-left"]["state"], rows["ltui-left"]["owner"]) == ("lost", None)
    assert [row["name"] for row in call("leases", OTHER[:13], "--json").value] == ["ltui-left"]
    assert call("leases", "nobody").status == 2


def test_runs_and_watch_tell_what_is_left(call: Call, store: Store) -> None:
    put(store, lease("ltui-a"), lease("ltui-b", OTHER), lease("ltui-c", OTHER, state=LeaseState.LOST))
    said = call("runs")
    assert said.out.splitlines()[0].split()[4] == "SANDBOXES"
    assert (
        f"Run {OTHER} (interrupted) left 2 sandboxes behind: `loops-tui cleanup {OTHER}` releases them"
        in said.err
    )
    assert RUN not in said.err
    values = {value["run"]: value["leases"] for value in call("runs", "--json").value}
    assert values == {RUN: {"live": 1, "lost": 0}, OTHER: {"live": 1, "lost": 1}}
    said = call("watch", OTHER)
    assert said.status == 3
    assert f"`loops-tui cleanup {OTHER}`" in said.err


# -- what cleanup is asked for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "released", "held"),
    [
        ((), {"ltui-left"}, {"ltui-held"}),
        ((RUN,), set(), {"ltui-held"}),
        ((OTHER,), {"ltui-left"}, set()),
        (("--state-dir", f"runs/other/{OTHER}/state"), {"ltui-left"}, set()),
        (("--state-dir", f"runs/other/{OTHER}"), {"ltui-left"}, set()),
        (("train.toml",), {"ltui-left"}, {"ltui-held"}),  # not loadable: the runs that were started from it
        (("train.toml", "--state-dir", f"runs/demo/{RUN}/state"), set(), {"ltui-held"}),
    ],
)
def test_what_is_meant(
    call: Call, store: Store, arguments: tuple[str, ...], released: set[str], held: set[str]
) -> None:
    put(store, lease("ltui-held"), lease("ltui-left", OTHER, host_id="host-2"))
    before = states(store)
    plan = call("cleanup", *arguments, "--dry-run", "--json")
    assert plan.status == 0
    assert {row["name"] for row in plan.value["released"]} == released
    assert {row["name"] for row in plan.value["held"]} == held
    assert states(store) == before
    done = call("cleanup", *arguments, "--json")
    assert done.status == 0
    assert {row["name"] for row in done.value["already_gone"]} == released  # there never was a sandbox
    assert states(store) == {**before, **dict.fromkeys(released, LeaseState.RELEASED)}
    again = call("cleanup", *arguments)
    assert again.status == 0
    assert again.out.startswith("Nothing of ")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nobody",), "there is no run 'nobody'"),
        (("missing.toml",), "missing.toml"),
        (("--state-dir", "elsewhere/state"), "belongs to no run of this project"),
        (("--state-dir", "runs"), "belongs to no run of this project"),
        ((OTHER, "--state-dir", f"runs/demo/{RUN}/state"), "which is none of"),
    ],
)
def test_what_cannot_be_meant(call: Call, store: Store, arguments: tuple[str, ...], why: str) -> None:
    put(store, lease("ltui-left", OTHER, host_id="host-2"))
    said = call("cleanup", *arguments, "--json")
    assert said.status == 2
    assert why in said.value["error"]
    assert states(store) == {"ltui-left": LeaseState.ACTIVE}


def test_what_cannot_be_released_is_a_failure(call: Call, store: Store) -> None:
    row = lease("ltui-left", OTHER, host_id="host-2")
    row.provider = "elsewhere"
    put(store, row)
    said = call("cleanup")
    assert said.status == 1
    assert said.out.startswith("Could not release 1 sandbox\n  ltui-left")
    assert "elsewhere" in said.out
    assert call("cleanup", "--json").value["ok"] is False


@pytest.mark.parametrize(("answer", "status"), [("n\n", 3), ("", 3), ("y\n", 0)])
def test_a_person_is_asked_first(
    call: Call, store: Store, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    put(store, lease("ltui-left", OTHER, host_id="host-2"))
    monkeypatch.setattr(commands, "_must_ask", lambda *_, **__: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    said = call("cleanup")
    assert said.status == status
    assert "ltui-left" in said.err
    assert "[y/N]" in said.err
    assert states(store)["ltui-left"] is (LeaseState.RELEASED if status == 0 else LeaseState.ACTIVE)


# -- runs that were killed -------------------------------------------------------------------------------------------


class Held:
    """A run in a process of its own that holds sandboxes."""

    def __init__(self, project_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.holding", "run", "direct/train.toml", "--json"],
            cwd=project_dir,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.run_id = ""

    def wait_holding(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("holding "):
                self.run_id = line.split()[1]
                return self.run_id
        raise AssertionError("it ended without holding anything")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def hold(project_dir: Path) -> Iterator[list[Held]]:
    """Two runs of one project that hold sandboxes."""
    if shutil.which("bwrap") is None and landlock.abi_version() == 0:
        pytest.skip("nothing isolates sandboxes on this machine")
    make_project(project_dir).close()
    held = [Held(project_dir) for _ in range(2)]
    try:
        for one in held:
            one.wait_holding()
        yield held
    finally:
        for one in held:
            one.process.kill()
            one.process.communicate(timeout=60)


def test_of_two_runs_one_is_killed(call: Call, project_dir: Path, hold: list[Held]) -> None:
    killed, living = hold
    killed.kill()
    rows = call("leases", "--json").value
    owners = {row["run"]: row["owner_alive"] for row in rows}
    assert (len(rows), owners) == (2 * HELD, {killed.run_id: False, living.run_id: True})
    assert {(row["state"], row["isolation"]) for row in rows} == {("active", rows[0]["isolation"])}
    assert "left 3 sandboxes behind" in call("runs").err

    plan = call("cleanup", "direct/train.toml", "--dry-run", "--json").value
    names = {row["name"] for row in plan["released"]}
    assert names == {row["name"] for row in rows if row["run"] == killed.run_id}
    assert len(plan["held"]) == HELD
    assert {row["name"] for row in call("leases", "--json").value} == {row["name"] for row in rows}
    assert {entry.name for entry in (project_dir / ".loops" / "sandboxes").iterdir()} == {
        row["name"] for row in rows
    }

    run_dir = next(v["run_dir"] for v in call("runs", "--json").value if v["run"] == killed.run_id)
    done = subprocess.run(
        [SCRIPT, "cleanup", "direct/train.toml", "--state-dir", f"{run_dir}/state"],
        cwd=project_dir,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Released 3 sandboxes" in done.stdout
    assert all(name in done.stdout for name in names)
    left = traces(project_dir)
    assert [trace for trace in left if any(name in trace for name in names)] == []
    assert left != []

    value = call("cleanup", "--json").value
    assert (value["released"], value["already_gone"], len(value["held"])) == ([], [], HELD)
    assert {row["run"] for row in call("leases", "--json").value} == {living.run_id}
    living.process.send_signal(signal.SIGINT)
    out, _ = living.process.communicate(timeout=60)
    assert living.process.returncode == 130
    ended = json.loads(out)
    assert (ended["run"], ended["leases"]) == (living.run_id, {"live": 0, "lost": 0})
    assert traces(project_dir) == []
    assert {row["state"] for row in call("leases", "--all", "--json").value} == {"released"}
    assert call("cleanup").out.startswith("Nothing of this project was left behind")
