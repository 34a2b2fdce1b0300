"""Every ``loops-tui …`` of the README, the documents and the examples really runs.

One that the documents print and that no case here runs fails, so a new one needs its case. Other commands are in
``test_other_commands.py``.
"""

from __future__ import annotations

import re
import shlex
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.store.rows import RunState
from tests.docs.commands import ROOT, commands
from tests.docs.conftest import EXAMPLE, MODEL, SMALL, Desk
from tests.terminal.session import WAIT_SECONDS, Session

PRINTED = commands(of_the_program=True)
_ON_AN_EXAMPLE = re.compile(r"loops-tui (check|run) (examples/\S+\.toml)( .*)?")
type Case = Callable[[Desk], None]
CASES: dict[str, Case] = {}

pytestmark = [
    pytest.mark.skipif(len(PRINTED) < 2, reason="the documents are not here"),
    pytest.mark.timeout(300),  # a bound, not a measure: the machine may be busy
]


def test_every_command_has_a_case_and_every_case_a_command() -> None:
    uncovered = {
        command: places
        for command, places in PRINTED.items()
        if command not in CASES and not _ON_AN_EXAMPLE.fullmatch(command)
    }
    assert uncovered == {}
    assert CASES.keys() - PRINTED.keys() == set()


def case(*printed: str) -> Callable[[Case], Case]:
    def add(one: Case) -> Case:
        CASES.update(dict.fromkeys((f"loops-tui {text}".strip() for text in printed), one))
        return one

    return add


def sets(overrides: tuple[str, ...]) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


# -- any bundled example ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted(filter(_ON_AN_EXAMPLE.fullmatch, PRINTED)))
def test_on_an_example(command: str, desk: Desk) -> None:
    """Made small; what it needs of Baseten and Blaxel is served here."""
    match = _ON_AN_EXAMPLE.fullmatch(command)
    assert match is not None
    config = tomllib.loads((ROOT / match[2]).read_text())
    arguments = shlex.split((match[3] or "").replace("=RUN", f"={desk.run_id}"))
    small = ["training.max_steps=1"]
    if config["recipe"] == "rl":
        small += ["training.group_size=4", "training.groups_per_step=1", "sampling.max_tokens=64"]
        small += [
            "training.max_consecutive_unusable_groups=3"
        ]  # each is a whole group of attempts, for nothing
        if "max_turns" in config["runtime"]["config"].get("options", {}):
            small.append("runtime.config.options.max_turns=3")
        small += ["eval.at_start=false", "eval.at_end=false"] if "eval" in config else []
    else:
        small += ["training.batch_size=8", "training.warmup_steps=0"]
        small += [f"data.{name}={_first_rows(desk, match[2], name)}" for name in ("train", "validation")]
    if "model.from_checkpoint" in command:
        small.append("model.lora_rank=8")  # as the run has it whose weights these are
    environ: dict[str, str] = {}
    if config["compute"]["scope"] == "local" and config["model"]["base_model"] not in shipped_models():
        small += ["model.base_model=loops-demo-1m", "model.max_seq_len=1024"]  # a person's own directory
    if config["compute"]["scope"] != "local":
        assert config["model"]["base_model"] == MODEL
        environ |= desk.project.remote()
        small += [f"model.tokenizer={shipped_models()['loops-demo-1m']}", "model.renderer=qwen3"]
        small.append("model.max_seq_len=1024")
    sandbox = config.get("runtime", {}).get("config", {}).get("sandbox", {})
    if sandbox.get("provider") == "blaxel":
        environ |= desk.project.sandboxes()
    said = desk(match[1], match[2], *arguments, *sets(tuple(small)), "--json", environ=environ)
    if match[1] == "check":
        assert said.value["ok"], said.out
        assert "no sandbox or Loops trainer launched" in said.value["lines"][-1]
        return
    if said.value["status"] != "done":  # it really tried: the untrained model just never succeeds
        assert "groups in a row taught nothing" in said.value["error"]
    assert said.value["leases"] == {"live": 0, "lost": 0}


def _first_rows(desk: Desk, config: str, name: str) -> Path:
    """A few of an example's rows, for the time it takes to render them all."""
    rows = (ROOT / config).with_name(f"{name}.jsonl").read_text().splitlines()[:16]
    few = desk.project.directory / f"{name}.jsonl"
    few.write_text("\n".join(rows) + "\n")
    return few


# -- runs ------------------------------------------------------------------------------------------------------------


@case("check CONFIG", "check")
def _check(desk: Desk) -> None:
    said = desk.succeeds("check", EXAMPLE)
    assert "Estimate, from what" in said.out
    assert said.out.rstrip().endswith("no sandbox or Loops trainer launched.")


@case("run CONFIG [--detach]")
def _run(desk: Desk) -> None:
    value = desk.succeeds("run", EXAMPLE, "--detach", *sets(SMALL), "--json").value
    assert "RUN" in desk.succeeds("runs").out
    said = desk.succeeds("watch", value["run"])
    assert f"Run {value['run']} is done" in said.out


@case("run --resume RUN", "run --resume RUN [--set …] [--detach]")
def _resume(desk: Desk) -> None:
    steps = desk.project.row().step + 1
    more = ("--set", f"training.max_steps={steps}")
    value = desk.succeeds("run", "--resume", desk.run_id, *more, "--json").value
    assert (value["run"], value["status"], value["steps"]) == (desk.run_id, "done", steps)
    more = ("--set", f"training.max_steps={steps + 1}", "--detach")
    assert desk.succeeds("run", "--resume", desk.run_id, *more, "--json").value["run"] == desk.run_id
    desk.succeeds("watch", desk.run_id)
    assert desk.project.row().step == steps + 1


@case("runs")
def _runs(desk: Desk) -> None:
    assert desk.run_id in desk.succeeds("runs").out


@case("runs --account")
def _account(desk: Desk) -> None:
    said = desk.succeeds("runs", "--account", environ=desk.project.remote())
    assert str(desk.project.row().loops_run_id) in said.out


@case("pause", "resume")
def _pause(desk: Desk) -> None:
    live = desk.project.live()
    assert "paused" in desk.succeeds("pause", live).out
    assert "resumed" in desk.succeeds("resume", live).out


@case("checkpoints RUN save", "checkpoints RUN [save]")
def _checkpoints(desk: Desk) -> None:
    assert "step-000001" in desk.succeeds("checkpoints", desk.run_id).out
    live = desk.project.live()
    assert "step-" in desk.succeeds("checkpoints", live, "save").out


@case("stop", "watch", "watch [RUN]")
def _stop(desk: Desk) -> None:
    live = desk.project.live()
    assert "stopping after the step in hand" in desk.succeeds("stop", live).out
    assert f"Run {live} is stopped" in desk.succeeds("watch", status=3).out  # the newest, where none is named
    assert desk.project.row(live).state is RunState.STOPPED
    assert f"Run {desk.run_id} is done" in desk.succeeds("watch", desk.run_id).out


@case("abort RUN")
def _abort(desk: Desk) -> None:
    live = desk.project.live()
    assert "aborting" in desk.succeeds("abort", live).out
    desk.succeeds("watch", live, status=3)
    assert desk.project.row(live).state is RunState.ABORTED


@case("export RUN", "export RUN [DIR]")
def _export(desk: Desk) -> None:
    desk.succeeds("export", desk.run_id, "exported")
    assert (desk.project.directory / "exported" / "steps.jsonl").is_file()
    desk.succeeds("export", desk.run_id)


# -- weights ---------------------------------------------------------------------------------------------------------


@case("checkpoints RUN download NAME DIR")
def _download(desk: Desk, directory: str = "downloaded") -> None:
    desk.succeeds("checkpoints", desk.run_id, "download", "step-000001", directory)
    assert (desk.project.directory / directory / "adapter_model.safetensors").is_file()
    desk.succeeds("checkpoints", desk.run_id, "download", "last", f"{directory}-all", "--part", "trainer")


@case("checkpoints RUN deploy NAME")
def _deploy(desk: Desk) -> None:
    value = desk.succeeds("checkpoints", desk.run_id, "deploy", "last", "--dry-run", "--json").value
    assert value["body"]["checkpoint_ids"]


@case("evaluate RUN --base", "evaluate RUN [--checkpoint NAME or --base]")
def _evaluate(desk: Desk) -> None:
    value = desk.succeeds("evaluate", desk.run_id, "--base", "--json").value
    assert (value["target"], value["graded"]) == ("base", value["tasks"])
    assert "95 %" in desk.succeeds("evaluate", desk.run_id, "--checkpoint", "step-000001").out


@case("try RUN[@CHECKPOINT] [--task N]")
def _try(desk: Desk) -> None:
    value = desk.succeeds("try", f"{desk.run_id}@step-000001", "--json", typed="Name the game.\n").value
    assert value["turns"][0]["content"] == "Name the game."
    assert "reward" in desk.succeeds("try", f"{desk.run_id}@base", "--task", "0").out
    desk.succeeds("try", "--base", EXAMPLE, "--max-tokens", "4", typed="Hello.\n")


@case("deactivate RUN")
def _deactivate(desk: Desk) -> None:
    said = desk.succeeds("deactivate", desk.run_id)
    assert str(desk.project.row().loops_run_id) in said.out


# -- sandboxes -------------------------------------------------------------------------------------------------------


@case("leases [RUN] [--all]")
def _leases(desk: Desk) -> None:
    desk.succeeds("leases")
    assert desk.succeeds("leases", desk.run_id, "--all", "--json").value == []


@case("cleanup", "cleanup --dry-run", "cleanup [RUN or CONFIG] [--state-dir DIR] [--dry-run]")
def _cleanup(desk: Desk) -> None:
    run_dir = Path(desk.project.row().run_dir)
    environ = desk.project.sandboxes()  # sandboxes of the examples may be there
    desk.succeeds("cleanup", environ=environ)
    for more in ((desk.run_id,), (EXAMPLE,), ("--state-dir", str(run_dir)), ("--dry-run",)):
        desk.succeeds("cleanup", *more, environ=environ)


# -- the rest --------------------------------------------------------------------------------------------------------


@case("settings", "settings [KEY]", "settings KEY")
def _settings(desk: Desk) -> None:
    assert "group_size" in desk.succeeds("settings").out
    assert "Attempts at one task" in desk.succeeds("settings", "training.group_size").out


@case("keys")
def _keys(desk: Desk) -> None:
    assert "run.stop" in desk.succeeds("keys").out


@case("serve")
def _serve(desk: Desk) -> None:
    assert desk.project.remote()["LOOPS_BASE_URL"].startswith("http://127.0.0.1:")


def _program(desk: Desk, *arguments: str) -> Session:
    return Session(desk.project.directory, arguments=["-m", "loops_tui", *arguments])


@case("", "DIR", "[DIR]")
def _open(desk: Desk) -> None:
    for arguments in ((), (".", "--readonly", "--ascii", "--no-mouse", "--on-hangup", "drain")):
        with _program(desk, *arguments) as session:
            session.until(desk.run_id[:8])
            session.press(b"q")
            assert session.end() == 0


@case("demo", "demo [--headless]")
def _demo(desk: Desk) -> None:
    with _program(desk, "demo", "--dir", "demo") as session:
        session.until("running")
        session.signal(signal.SIGTERM)
        assert session.process.wait(WAIT_SECONDS) == 128 + signal.SIGTERM


@pytest.mark.parametrize("one", dict.fromkeys(CASES.values()), ids=lambda one: one.__name__.strip("_"))
def test_it_runs(one: Case, desk: Desk) -> None:
    one(desk)
