"""A run's pulse: heartbeats, and the commands of other processes, from a thread that no busy loop can hold up."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from engine.hosting.stillness import Stillness
from engine.recipes.control import RunControl
from engine.store.errors import StoreError
from engine.store.recorder import RunRecorder
from engine.store.rows import CommandRow, CommandState, RunRow, RunState
from engine.store.store import Store

log = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
LOOK_SECONDS = 0.2
_JOIN_SECONDS = 15.0


class Pulse:
    """Runs from ``start`` to ``stop``. ``lost`` is called once where another host has taken the run over.

    Made on the engine's loop, which it watches: a loop that stands still is told of in the run's log.
    """

    def __init__(
        self,
        store: Store,
        recorder: RunRecorder,
        host_id: str,
        control: RunControl,
        lost: Callable[[str], None],
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._run_id = recorder.run_id
        self._host_id = host_id
        self._control = control
        self._lost = lost
        self._stillness = Stillness()
        self._end = threading.Event()
        self._reader = store.reader()
        self._seen: int | None = None
        self._wishes = control.wishes
        self._failing = False
        self._answers: queue.SimpleQueue[tuple[CommandRow, bool, str]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._beat, name=f"pulse {self._run_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, bounded."""
        self._end.set()
        self._thread.join(_JOIN_SECONDS)
        try:
            self._tell_answers()
        except StoreError as error:
            log.warning("%s", error)

    def _beat(self) -> None:
        next_beat = 0.0
        while not self._end.is_set():
            try:
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + BEAT_SECONDS
                    self._store.heartbeat(self._host_id)
                if (still := self._stillness.look()) is not None:
                    self._recorder.log("warning", "host", still)
                self._look()
                self._tell_answers()
                self._failing = False
            except StoreError as error:
                # The store's own listener ends the run if this lasts; here it is only said once.
                if not self._failing:
                    log.warning("%s", error)
                self._failing = True
            self._end.wait(LOOK_SECONDS)

    def _look(self) -> None:
        version = self._reader.data_version()
        wishes = self._control.wishes
        if version == self._seen and wishes == self._wishes:
            return
        run = self._reader.get_run(self._run_id)
        if run is None:
            return
        if run.host_id != self._host_id:
            self._lost(f"another host took run {self._run_id} over")
            self._end.set()
            return
        if run.state is RunState.INTERRUPTED:
            # This process slept (a laptop's lid) and was taken for dead meanwhile; it is not.
            state = self._recorder.state or RunState.STARTING
            if self._store.reassert(self._run_id, self._host_id, state):
                self._recorder.run(state=state)  # run.json says interrupted as well
            self._recorder.log("warning", "host", "this host was taken for dead and goes on")
            return
        commands = self._reader.commands(self._run_id, 20)
        if any(command.state is CommandState.QUEUED for command in commands):
            for command in self._store.take_commands(self._run_id):
                self._carry_out(command, run)
        self._show(run)
        self._seen, self._wishes = version, wishes

    def _carry_out(self, command: CommandRow, run: RunRow) -> None:
        control, step = self._control, min(run.step + 1, run.max_steps)
        state, answer = CommandState.DONE, ""
        match command.kind:
            case "pause" if control.stopping:
                state, answer = CommandState.REFUSED, "the run is stopping already"
            case "pause":
                control.pause("command")
                answer = "paused; attempts in flight go on"
            case "resume" if not control.paused:
                state, answer = CommandState.REFUSED, "the run is not paused"
            case "resume":
                control.resume("command")
                answer = "resumed"
            case "stop":
                control.stop_after_step("command")
                answer = "stopping after the step in hand"
            case "abort":
                control.abort("command")
                answer = "aborting"
            case "save":
                # Answered again, with the checkpoint's name, once Loops has it.
                state, answer = CommandState.ACCEPTED, f"a checkpoint is saved after step {step}"
                control.save(lambda done, text: self._answers.put((command, done, text)))
            case "evaluate" if run.recipe == "rl" and not control.stopping:
                state, answer = CommandState.ACCEPTED, f"the weights are evaluated after step {step}"
                control.evaluate(lambda done, text: self._answers.put((command, done, text)))
            case "evaluate" if control.stopping:
                state, answer = CommandState.REFUSED, "the run is stopping already"
            case _:
                state, answer = CommandState.REFUSED, f"this run cannot {command.kind}"
        self._store.answer(command.command_id, state, answer)
        self._recorder.log("info", "host", f"{command.kind} was asked for: {answer}")

    def _tell_answers(self) -> None:
        """Pass on what the recipe said of commands that take it a while; from this thread, for it may not wait."""
        while not self._answers.empty():
            command, done, text = self._answers.get_nowait()
            self._store.answer(command.command_id, CommandState.DONE if done else CommandState.FAILED, text)

    def _show(self, run: RunRow) -> None:
        """Keep the run's state true to what was asked of it; the recipe only knows starting and running."""
        paused, stopping, _ = self._control.wishes
        shown = run.state
        if stopping and run.state in (RunState.STARTING, RunState.RUNNING, RunState.PAUSED):
            shown = RunState.STOPPING
        elif paused and run.state is RunState.RUNNING:
            shown = RunState.PAUSED
        elif run.state is RunState.PAUSED and not paused:
            shown = RunState.RUNNING
        if shown is not run.state:
            self._recorder.run(state=shown)
