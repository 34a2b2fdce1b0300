"""``run`` and ``serve`` with a real server and a real, small run."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from engine.store import Store
from engine.store.rows import RunState
from tests.cli.conftest import Call
from tests.cli.test_commands import SCRIPT
from tests.hosting.stand_ins import make_project


@pytest.mark.timeout(300)
def test_a_real_run_from_end_to_end(call: Call, project_dir: Path) -> None:
    make_project(project_dir).close()
    said = call(
        "run",
        "direct/train.toml",
        "--json",
        "--set",
        "training.max_steps=1",
        "--set",
        "training.group_size=4",
    )
    assert said.status == 0, said.err
    value = said.value
    assert (value["status"], value["steps"], value["error"]) == ("done", 1, None)
    assert value["loops_run_id"]
    assert 0 <= value["reward"]["first"] <= 1
    assert "step 1/1" in said.err
    run_dir = Path(value["run_dir"])
    assert json.loads((run_dir / "run.json").read_text())["state"] == "done"
    steps = [json.loads(line) for line in (run_dir / "steps.jsonl").read_text().splitlines()]
    assert len(steps) == 1
    rollouts = (run_dir / "rollouts.jsonl").read_text().splitlines()
    assert len(rollouts) == len(list((run_dir / "transcripts").iterdir()))
    with Store.open(project_dir) as store:
        assert store.reader().run(value["loops_run_id"]).state is RunState.DONE
        assert store.reader().checks(str(project_dir / "direct" / "train.toml"))[0].ok
    refused = call("run", "--resume", value["run"], "--set", "training.group_size=8", "--json")
    assert refused.status == 2
    assert "training.group_size = 8 (it was 4)" in refused.value["error"]
    resumed = call("run", "--resume", value["run"], "--set", "training.max_steps=2", "--json")
    assert resumed.status == 0, resumed.err
    assert (resumed.value["run"], resumed.value["run_dir"]) == (value["run"], value["run_dir"])
    assert (resumed.value["status"], resumed.value["steps"]) == ("done", 2)
    assert "step 2/2" in resumed.err
    assert "step 1/1" not in resumed.err  # what it said before is not said again
    assert len((run_dir / "steps.jsonl").read_text().splitlines()) == 2


def test_run_takes_a_config_or_a_run(call: Call) -> None:
    for words in ((), ("train.toml", "--resume", "20261129")):
        said = call("run", *words, "--json")
        assert said.status == 2
        assert said.value["error"] == "name either a config or, with --resume, a run that has ended"


def test_serving_until_a_signal(project_dir: Path) -> None:
    server = subprocess.Popen(
        [SCRIPT, "serve", "--json", "--dir", "mine"],
        cwd=project_dir,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    said = json.loads(server.stdout.readline())
    assert said.keys() == {"url", "key", "model"}
    question = urllib.request.Request(
        f"{said['url']}/v1/loops/capabilities", headers={"Authorization": f"Api-Key {said['key']}"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(question, timeout=60) as answer:
        assert answer.status == 200
    taken = subprocess.run(
        [SCRIPT, "serve", "--json", "--dir", "other", "--port", said["url"].rsplit(":", 1)[1]],
        cwd=project_dir, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert taken.returncode == 1
    assert "cannot listen" in taken.stderr
    assert "error" in json.loads(taken.stdout)
    for path in [project_dir / "mine", *(project_dir / "mine").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    server.send_signal(signal.SIGTERM)
    assert server.wait(120) == 143
    server.communicate()
