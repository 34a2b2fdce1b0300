"""One run's session with Loops: its trainer and its paired sampler, through the SDK's async face alone.

The SDK breaks when sync and async calls mix on one client, or when two event loops share one, so a session lives
and dies on the loop that started it.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engine.loops.datums import TrainingDatum
from engine.loops.errors import LoopsUnavailable, SampleFailed, SaveFailed, explain, may_pass, sample_failure
from engine.loops.own_loop import OnOwnLoop
from engine.loops.policy_gradient import TrainResult, train_policy
from engine.loops.sampling import SamplingSettings, exact_completion, sampling_params
from engine.loops.saving import Saving
from engine.loops.sdk import ready_sdk
from engine.loops.serving import ServedPolicy, closed
from engine.policy.tokens import Completion, Sampler

#: The SDK bounds readiness, retries and polling by one number; a session's set-up gets this much, in seconds.
LOCAL_READY_SECONDS = 120.0
#: A publish that failed is made again after so many seconds each: the weights are the same, so nothing is done twice.
PUBLISH_AGAIN_SECONDS = (1.0, 5.0)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is created with. ``request_seconds`` bounds one training operation and one sample."""

    base_model: str
    lora_rank: int
    name: str
    scope: str = "default"  # the SDK's word: default | serverless | deployment
    seed: int | None = None
    max_seq_len: int | None = None
    replicas: int = 1
    spot: bool = False
    request_seconds: float = 1800.0
    sampler: bool = True  # whether a sampler is paired with the trainer


def on_loopback(url: str | None) -> bool:
    """Whether a URL names this machine."""
    host = urlsplit(url or "").hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class LoopsSession:
    """A connected run. Create with :meth:`start`, end with :meth:`close`."""

    def __init__(self, training: Any, settings: SessionSettings, url: str | None) -> None:
        self._training = training
        self._settings = settings
        self._url = url
        self._served = ServedPolicy()
        self._sampling_settings = SamplingSettings()
        self.loops_run_id: str = training.run_id

    @classmethod
    async def start(
        cls,
        settings: SessionSettings,
        *,
        url: str | None,
        api_key: str | None,
        created: Callable[[str], None] = lambda _: None,
    ) -> LoopsSession:
        """Provision trainer and paired sampler and wait until the trainer is ready.

        ``created`` is told the Loops run id as soon as it is known.

        Raises:
            LoopsUnavailable: with one sentence: wrong key, unknown model, nothing answers, never ready.
        """
        ready_sdk()
        from baseten.loops import ServiceClient

        def connect() -> Any:
            return ServiceClient(
                api_key=api_key, base_url=url, availability_model="spot" if settings.spot else None
            )

        try:
            service = await asyncio.to_thread(connect)
        except Exception as error:
            raise LoopsUnavailable(explain(error, "opening a session", url)) from error
        ready = LOCAL_READY_SECONDS if on_loopback(url) else 3600.0
        try:
            training = await service.create_lora_training_client_async(
                base_model=settings.base_model,
                rank=settings.lora_rank,
                replicas=settings.replicas,
                seed=settings.seed,
                max_seq_len=settings.max_seq_len,
                timeout=settings.request_seconds,
                # One knob for readiness and for how long one operation may be polled: never below the latter.
                ready_timeout=max(ready, settings.request_seconds),
                sampler_timeout=settings.request_seconds,
                with_sampler=settings.sampler,
                name=settings.name,
                scope=settings.scope,
            )
        except Exception as error:
            raise LoopsUnavailable(explain(error, f"creating a run of {settings.base_model}", url)) from error
        created(training.run_id)
        return cls(OnOwnLoop(training), settings, url)

    @property
    def version(self) -> int:
        """Optimizer steps of the weights that are published."""
        return self._served.version

    @property
    def trainer(self) -> Any:
        """The SDK's training client; only its async methods may be used."""
        return self._training

    @property
    def url(self) -> str | None:
        """Where Loops is, for messages."""
        return self._url

    @property
    def tokenizer_source(self) -> str:
        """Where the run's tokenizer is: a local directory, or a hub name (as the SDK's ``get_tokenizer`` reads it)."""
        checkpoint = self._training.base_checkpoint
        if checkpoint:
            return checkpoint.removeprefix("hf://").split("@", 1)[0]
        return self._settings.base_model

    def use_sampling(self, settings: SamplingSettings) -> None:
        """How :meth:`sample` samples from now on."""
        self._sampling_settings = settings

    async def publish(self, step: int, told: Callable[[str], None] = lambda _: None) -> int:
        """Hand the trainer's weights to the sampler; later samples use them. Returns the policy version ``step``.

        ``told`` gets a sentence for each time that it fails and is made again.

        Raises:
            LoopsUnavailable: the weights could not be published.
        """
        self._served.begin_publish()
        try:
            for again in (*PUBLISH_AGAIN_SECONDS, None):
                try:
                    sampling = await self._training.save_weights_and_get_sampling_client_async("default")
                    await self._served.serve(sampling, step)
                    break
                except Exception as error:
                    sentence = explain(error, "publishing weights", self._url)
                    if again is None or not may_pass(error):
                        raise LoopsUnavailable(sentence) from error
                    told(f"{sentence}; trying again in {again:g} s")
                    await asyncio.sleep(again)
        finally:
            self._served.end_publish()
        return step

    async def publish_loaded(self, name: str) -> None:
        """Have weights that were loaded without their optimizer sampled until the first ``publish``.

        Loops counts a policy's version in optimizer steps, and these weights have none: an ordinary publish would
        not be told from "no adapter yet", and the base model would be sampled. So the sampler is pinned to them by
        address.

        Raises:
            LoopsUnavailable: the weights could not be published.
        """
        try:
            publishing = await self._training.save_weights_for_sampler_async(name)
            path = (await publishing.result_async()).path
            # The SDK has no async face for this; nothing else uses the client yet.
            sampling = await asyncio.to_thread(self._training.create_sampling_client, path)
            await self._served.serve(sampling, self.version)
        except Exception as error:
            raise LoopsUnavailable(explain(error, "publishing weights", self._url)) from error

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        """Continue a prompt with the published policy (the ``Sampler`` of ``engine.policy.tokens``).

        Raises:
            SampleFailed: this call failed.
            LoopsUnavailable: no later call can succeed.
        """
        return (await self._continue(self._sampling_settings, prompt, max_tokens, seed, affinity_key))[0]

    async def sample_many(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        max_tokens: int,
        seed: int | None,
        affinity_key: str | None,
    ) -> list[Completion]:
        """As :meth:`sample`, ``count`` times in one call (the ``ManySampler`` of ``engine.policy.first_replies``)."""
        return await self._continue(
            self._sampling_settings, prompt, max_tokens, seed, affinity_key, count=count
        )

    def sampler_with(self, settings: SamplingSettings) -> Sampler:
        """The published policy, sampled in another way than in training."""
        return _OtherSampling(self, settings)

    async def _continue(
        self,
        settings: SamplingSettings,
        prompt: Sequence[int],
        max_tokens: int,
        seed: int | None,
        affinity_key: str | None,
        *,
        count: int = 1,
    ) -> list[Completion]:
        from baseten.loops import ModelInput

        async with self._served.calling() as client:
            try:
                response = await client.sdk.sample_async(
                    ModelInput.from_ints(list(prompt)),
                    num_samples=count,
                    sampling_params=sampling_params(settings, max_tokens, seed),
                    affinity_key=affinity_key,
                )
            except Exception as error:
                raise sample_failure(error, self._url) from error
            version = self._served.step_of(client, response.policy_version)
        if len(response.sequences) != count:
            raise SampleFailed(
                f"the sampler returned {len(response.sequences)} replies where {count} were asked for"
            )
        return [exact_completion(sequence, version) for sequence in response.sequences]

    async def prompt_logprobs(self, tokens: Sequence[int]) -> list[float | None] | None:
        """Logprobs of these tokens, but the first, under the published policy; None where Loops tells none.

        Raises LoopsError.
        """
        from baseten.loops import ModelInput

        async with self._served.calling() as client:
            try:
                logprobs = await client.sdk.compute_logprobs_async(ModelInput.from_ints(list(tokens)))
            except Exception as error:
                raise sample_failure(error, self._url) from error
        return None if all(value is None for value in logprobs) else list(logprobs)

    async def train(
        self,
        batches: Sequence[Sequence[TrainingDatum]],
        *,
        loss: str,
        loss_config: Mapping[str, Any] | None,
        adam: Mapping[str, float],
        behind: int | None = None,
    ) -> TrainResult:
        """One optimizer step over all batches, submitted together so that the trainer never waits for the client.

        ``loss`` of the result is the mean over datums; divergence metrics are the SDK's own ``rl_metrics``, for each
        age of a policy too where ``behind`` tells the version of the weights that are trained.

        Raises:
            LoopsUnavailable: the trainer refused or lost an operation. The step may or may not have been applied.
        """
        return await train_policy(
            self._training, self._url, batches, loss=loss, loss_config=loss_config, adam=adam, behind=behind
        )

    async def load(self, path: str, *, with_optimizer: bool) -> int:
        """Replace the trainer's weights by those of a checkpoint, and its optimizer and step too if asked for.

        Returns the optimizer steps that the trainer counts now. ``publish`` comes next.

        Raises:
            LoopsUnavailable: the checkpoint is gone or does not fit.
        """
        try:
            if with_optimizer:
                loading = await self._training.load_state_with_optimizer_async(path)
            else:
                loading = await self._training.load_state_async(path)
            return int((await loading.result_async()).step or 0)
        except Exception as error:
            raise LoopsUnavailable(explain(error, f"loading {path}", self._url)) from error

    async def save(self, name: str) -> Saving:
        """Have the trainer's state and its weights for sampling saved under ``name``, as they are now.

        The trainer carries out operations in the order of their submission, so whatever is submitted after this
        returns is not in the checkpoint. Await the result's ``paths`` for its end.

        Raises:
            SaveFailed: Loops did not take the requests.
        """
        try:
            state = await self._training.save_state_async(name)
            weights = await self._training.save_weights_for_sampler_async(name)
        except Exception as error:
            raise SaveFailed(explain(error, f"saving {name}", self._url)) from error
        return Saving(name, state, weights, self._url)

    async def saved_bytes(self, name: str) -> int | None:
        """The size of everything saved under ``name``, as Loops lists it; None where it does not say."""
        try:
            listed = await asyncio.to_thread(self._training.list_checkpoints)
        except Exception as error:
            raise SaveFailed(explain(error, "listing checkpoints", self._url)) from error
        return sum(entry.size_bytes for entry in listed if entry.checkpoint_id == name) or None

    async def close(self) -> None:
        """Close all clients; bounded, and never raises: a run's end is not the place to fail."""
        await self._served.close()
        await closed("training client", self._training.aclose())
        await closed("training client's thread", asyncio.to_thread(self._training.close))


class _OtherSampling:
    """A session's policy under sampling settings of its own."""

    def __init__(self, session: LoopsSession, settings: SamplingSettings) -> None:
        self._session, self._settings = session, settings

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        return (await self._session._continue(self._settings, prompt, max_tokens, seed, affinity_key))[0]
