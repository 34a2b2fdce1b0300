"""Loops beside a run, as far as a screen needs it: acts that are written down, and answered as the test says."""

from __future__ import annotations

import threading
from pathlib import Path

from engine.hosting.account import Account
from engine.hosting.checkpoints import Deployed, Downloaded, PlannedDeployment
from engine.hosting.trying import Said, TrialAttempt, TrialSampling, WeightsAsked
from engine.loops.deploying import DeployChoice, deployment_request
from engine.loops.management import Deployment, InstanceType
from engine.store.rows import CheckpointRow, EvalRow, RunRow
from loops_tui.loops_ports import ActFailed, OpenTrial, Part, Told

WAIT_SECONDS = 60.0  # a bound, not a measure: the machine may be busy


class FakeLoops:
    """``goes`` is cleared to hold an act up until the test sets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.fail: ActFailed | None = None
        self.says = ""
        self.holds = Account([], [], [])
        self.goes = threading.Event()
        self.goes.set()

    def _act(self, *what: object, told: Told | None = None) -> None:
        self.asked.append(what)
        if told is not None and self.says:
            told(self.says)
        self.goes.wait(WAIT_SECONDS)
        if self.fail is not None:
            raise self.fail

    def deactivate(self, ref: str, told: Told) -> list[str]:
        self._act("deactivate", ref, told=told)
        return ["run-7f3c21" if ref.startswith("2026") else ref]

    def account(self) -> Account:
        self._act("account")
        return self.holds

    def refresh(self, run_id: str) -> list[CheckpointRow]:
        self._act("refresh", run_id)
        return []

    def evaluate(self, run_id: str, checkpoint: str | None, told: Told) -> EvalRow:
        self._act("evaluate", run_id, checkpoint, told=told)
        return EvalRow(
            run_id, checkpoint or "base", "checkpoint", "done", "asked", 0.0, mean=0.5, low=0.4, high=0.6
        )

    def download(self, run_id: str, checkpoint: str, part: Part, directory: Path, told: Told) -> Downloaded:
        self._act("download", run_id, checkpoint, part, directory, told=told)
        return Downloaded(directory, ("adapter.safetensors",), 1234, 1234)

    def remembered_choice(self, run: RunRow) -> DeployChoice:
        return DeployChoice(run.name, "")

    def plan_deployment(self, run_id: str, checkpoint: str, choice: DeployChoice) -> PlannedDeployment:
        self._act("plan", run_id, checkpoint, choice)
        body = deployment_request(["ckpt-1"], choice)
        return PlannedDeployment(
            run_id,
            checkpoint,
            "bt://x",
            "https://api.example/deploy",
            body,
            [InstanceType("h100", "H100", 1, "H100")],
        )

    def deploy(self, run_id: str, checkpoint: str, choice: DeployChoice) -> Deployed:
        self._act("deploy", run_id, checkpoint, choice)
        return Deployed(run_id, checkpoint, Deployment("model-1", "dep-1"))

    def open_trial(
        self, asked: WeightsAsked, *, system: str | None, with_sandboxes: bool, told: Told
    ) -> OpenTrial:
        self._act("try", asked.run, asked.checkpoint, system, with_sandboxes, told=told)
        return FakeTrial(self, told)


class FakeTrial:
    """Weights that answer with what they were told."""

    name = "fake weights"

    def __init__(self, loops: FakeLoops, told: Told) -> None:
        self._loops, self._told = loops, told

    def use(self, sampling: TrialSampling) -> None:
        self._loops.asked.append(("use", sampling))

    def forget(self) -> None:
        self._loops.asked.append(("forget",))

    def say(self, text: str) -> Said:
        self._loops._act("say", text)
        if text == "call":
            call = {"name": None, "arguments": '{"name": "shell"', "problem": "it is no JSON"}
            return Said("", None, 19, 21, truncated=False, tool_calls=[call])
        return Said(f"you said {text}", None, 4, 12, truncated=True)

    def attempt(self, task: int, told: Told) -> TrialAttempt:
        self._loops._act("attempt", task, told=told)
        turns = [
            {"role": "user", "content": "Sum \x1b[31mthem"},
            {"role": "assistant", "content": None, "tool_calls": [{"name": "shell", "arguments": "{}"}]},
        ]
        return TrialAttempt("sums", "done", 0.5, "completed", None, turns, {}, 1.5)

    def close(self) -> None:
        self._loops.asked.append(("close",))
        self._loops.goes.wait(120)
        # By a thread of its own, as by the engine: it has nothing of the app's context.
        keeper = threading.Thread(target=self._told, args=("Sampler sampler-1 is released",))
        keeper.start()
        keeper.join(120)
