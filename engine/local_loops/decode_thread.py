"""The thread that decodes.

Every live policy version has a lane with its own decoder. Waiting requests are admitted together between decode steps,
in the order of their arrival and up to a cap on live sequences. A newcomer to an idle lane is held for a few
milliseconds, so that the rest of its group is prefilled with it.

One thread, because a CPU back end has nothing to gain from two and everything to lose. Training has a thread of its own
(:mod:`.training_thread`) that leaves the arithmetic to another process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from engine.local_loops.compute.interface import Decoder, SequenceKey
from engine.local_loops.generation import Generation, GenerationFailed
from engine.local_loops.policies import Policy

log = logging.getLogger(__name__)

#: A newcomer waits until nothing has arrived for this long ...
SETTLE_SECONDS = 0.004
#: ... or until it has waited this long itself.
PATIENCE_SECONDS = 0.024

#: Decoders kept without sequences: they remember the prompts that the next turns of a conversation start with.
IDLE_DECODERS = 2


@dataclass(slots=True)
class DecodeStats:
    """Counters that show how requests share the thread."""

    decode_steps: int = 0
    tokens: int = 0
    requests: int = 0
    admissions: int = 0
    #: Sequences admitted while others were being decoded in the same lane.
    joined_running: int = 0
    aborted: int = 0
    live: int = 0
    peak_live: int = 0
    waiting: int = 0
    decode_seconds: float = 0.0


@dataclass(slots=True)
class _Lane:
    policy: Policy
    decoder: Decoder
    requests: dict[str, Generation] = field(default_factory=dict)


class DecodeThread:
    """Owns the thread. The public methods may be called from any other."""

    def __init__(self, *, max_live: int, slice_tokens: int, weights_cache_bytes: int) -> None:
        self._max_live = max_live
        self._slice_tokens = slice_tokens
        self._weights_cache_bytes = weights_cache_bytes
        self.stats = DecodeStats()
        self._changed = threading.Condition()
        self._arrivals: deque[Generation] = deque()
        self._last_arrival = 0.0
        #: Runs that were deactivated: what they still have here is refused.
        self._closed: dict[str, str] = {}
        self._stopping = False
        #: Policies with merged weights, least recently used first, and their decoders.
        self._recent: OrderedDict[Policy, None] = OrderedDict()
        self._lanes: dict[Policy, _Lane] = {}
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    # -- any thread ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End after the step in hand; unfinished requests are refused."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout)

    def generate(self, generation: Generation) -> None:
        """Queue a sampling request."""
        with self._changed:
            generation.arrived = self._last_arrival = time.monotonic()
            self._arrivals.append(generation)
            self.stats.requests += 1
            # An idle thread is woken by the first of a group; the others are seen when its hold is over.
            if len(self._arrivals) == 1:
                self._changed.notify()

    def cancel(self, generation: Generation) -> None:
        """Drop a request whose caller has gone."""
        with self._changed:
            generation.cancelled = True
            self._changed.notify()

    def close_owner(self, owner: str, reason: str) -> None:
        """Refuse what a run still has here, waiting or running, and whatever it sends later."""
        with self._changed:
            self._closed[owner] = reason
            self._changed.notify()

    # -- the thread itself ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait():
            started = time.perf_counter()
            self._turn()
            self.stats.decode_seconds += time.perf_counter() - started
        self._refuse_everything()

    def _wait(self) -> bool:
        """Wait for something to decode; False ends the thread."""
        with self._changed:
            while not self._stopping:
                if self._busy():
                    return True
                hold = self._hold_left() if self._arrivals else None
                if hold is not None and hold <= 0:
                    return True
                self._changed.wait(hold)
            return False

    def _busy(self) -> bool:
        return any(lane.requests for lane in self._lanes.values())

    def _hold_left(self) -> float:
        now = time.monotonic()
        settled = self._last_arrival + SETTLE_SECONDS - now
        patience = self._arrivals[0].arrived + PATIENCE_SECONDS - now
        return min(settled, patience)

    def _turn(self) -> None:
        self._drop_cancelled()
        self._admit()
        self.stats.live = self._live()
        self.stats.peak_live = max(self.stats.peak_live, self.stats.live)
        for lane in list(self._lanes.values()):
            if not lane.requests:
                continue
            try:
                self._step(lane)
            except Exception as error:
                log.exception("decoding %s failed", lane.policy.label)
                self._fail_lane(
                    lane, GenerationFailed(500, f"decoding failed: {type(error).__name__}: {error}")
                )
        self.stats.live = self._live()
        self._trim_idle()

    def _drop_cancelled(self) -> None:
        """Remove requests whose caller has gone, or whose run has been deactivated."""
        with self._changed:
            gone = [(item, why) for item in self._arrivals if (why := self._refusal(item)) is not None]
            if gone:
                kept = deque(item for item in self._arrivals if self._refusal(item) is None)
                self._arrivals = kept
        for lane in list(self._lanes.values()):
            for generation in list(lane.requests.values()):
                why = self._refusal(generation)
                if why is None:
                    continue
                name = generation.request.request_id
                lane.decoder.finish([SequenceKey(name, index) for index in range(generation.request.n)])
                del lane.requests[name]
                gone.append((generation, why))
        for generation, why in gone:
            self.stats.aborted += 1
            generation.finished(generation, why)

    def _refusal(self, generation: Generation) -> GenerationFailed | None:
        if generation.cancelled:
            return GenerationFailed(500, "the caller has gone")
        reason = self._closed.get(generation.owner or "")
        return GenerationFailed(422, reason) if reason is not None else None

    def _live(self) -> int:
        return sum(lane.decoder.live for lane in self._lanes.values())

    def _take_arrivals(self) -> list[Generation]:
        """The next requests to admit: in order, within the cap on sequences and the prompt tokens of one slice."""
        taken: list[Generation] = []
        live = self._live()
        room = self._max_live - live
        tokens = 0
        with self._changed:
            if self._arrivals and self._hold_left() > 0:
                return taken
            while self._arrivals:
                head = self._arrivals[0].request
                # A request larger than the cap, or a prompt larger than a slice, still has to run: alone.
                if head.n > room and (taken or live):
                    break
                # The same prompt again costs nothing: a decoder prefills it once.
                size = 0 if taken and head.prompt == taken[-1].request.prompt else len(head.prompt)
                if taken and tokens + size > self._slice_tokens:
                    break
                taken.append(self._arrivals.popleft())
                room -= head.n
                tokens += size
            self.stats.waiting = len(self._arrivals)
        return taken

    def _admit(self) -> None:
        by_policy: dict[Policy, list[Generation]] = {}
        for generation in self._take_arrivals():
            by_policy.setdefault(generation.policy, []).append(generation)
        for policy, generations in by_policy.items():
            try:
                self._admit_to(policy, generations)
            except Exception as error:
                log.exception("admitting to %s failed", policy.label)
                failure = GenerationFailed(500, f"prefill failed: {type(error).__name__}: {error}")
                lane = self._lanes.get(policy)
                if lane is not None:
                    self._fail_lane(lane, failure)
                for generation in generations:
                    generation.finished(generation, failure)

    def _admit_to(self, policy: Policy, generations: list[Generation]) -> None:
        lane = self._lanes.get(policy)
        if lane is None:
            lane = self._lanes[policy] = _Lane(policy, policy.backend.decoder(policy.weights()))
        elif lane.decoder.live:
            self.stats.joined_running += sum(generation.request.n for generation in generations)
        scores = lane.decoder.admit([generation.request for generation in generations])
        self.stats.admissions += 1
        self._recent[policy] = None
        self._recent.move_to_end(policy)
        for generation in generations:
            name = generation.request.request_id
            generation.prompt_scores = scores.get(name)
            if generation.max_tokens > 0:
                lane.requests[name] = generation
                continue
            lane.decoder.finish([SequenceKey(name, index) for index in range(generation.request.n)])
            generation.end_without_tokens()
            generation.finished(generation, None)

    def _step(self, lane: _Lane) -> None:
        drawn = lane.decoder.step()
        self.stats.decode_steps += 1
        self.stats.tokens += len(drawn)
        ended: list[SequenceKey] = []
        complete: list[Generation] = []
        for sampled in drawn:
            key = sampled.key
            generation = lane.requests[key.request_id]
            if generation.take(key.index, sampled.token, sampled.logprob):
                ended.append(key)
                if not generation.unfinished:
                    complete.append(generation)
        if ended:
            lane.decoder.finish(ended)
        for generation in complete:
            del lane.requests[generation.request.request_id]
            generation.finished(generation, None)

    def _fail_lane(self, lane: _Lane, failure: GenerationFailed) -> None:
        """Refuse what a lane has and drop its decoder, whose state nothing is known of any more."""
        self._lanes.pop(lane.policy, None)
        for generation in lane.requests.values():
            generation.finished(generation, failure)
        lane.requests.clear()

    def _trim_idle(self) -> None:
        """Free decoders and merged weights of idle policies, least recently used first; the last one always stays."""
        if len(self._recent) < 2:
            return
        idle = [
            policy
            for policy in self._recent
            if (lane := self._lanes.get(policy)) is None or not lane.requests
        ]
        total = sum(policy.merged_bytes for policy in idle)
        for position, policy in enumerate(idle[:-1]):
            if len(idle) - position > IDLE_DECODERS:
                self._lanes.pop(policy, None)
            if total > self._weights_cache_bytes:
                total -= policy.merged_bytes
                self._lanes.pop(policy, None)
                policy.forget()
                del self._recent[policy]

    def _refuse_everything(self) -> None:
        failure = GenerationFailed(503, "server is shutting down")
        for lane in list(self._lanes.values()):
            self._fail_lane(lane, failure)
        with self._changed:
            waiting = list(self._arrivals)
            self._arrivals.clear()
        for generation in waiting:
            generation.finished(generation, failure)
