"""What a config may say and hardly means, or does not mean knowingly: warnings, each with what would be usual."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config.any_recipe import AnySettings, uncounted_costs
from engine.config.losses import loss_config_doubts
from engine.config.problems import Problem
from engine.config.settings import EffectiveScope, Settings

#: Learning rates beyond these train nothing, or ruin the adapter within a few steps; usual ones are 1e-5 to 5e-3.
LEAST_RATE, LARGEST_RATE = 1e-7, 0.01


def config_doubts(settings: AnySettings, scope: EffectiveScope) -> Iterator[Problem]:
    """The warnings that follow from the settings alone."""
    yield from uncounted_costs(settings, scope)
    yield from _learning_rate(settings.training.learning_rate)
    if settings.compute.spot and settings.output.checkpoint_every is None:
        yield Problem(
            "[compute] spot capacity can be taken away, and without [output] checkpoint_every nothing is saved before "
            "the run ends",
            key="compute.spot",
            remedy="Set checkpoint_every to the steps that you can afford to lose",
        )
    if isinstance(settings, Settings):
        yield from _off_policy(settings)
        yield from _biased_sampling(settings)
        yield from loss_config_doubts(settings.training.loss, settings.training.loss_config)
        yield from _evaluation(settings)
        sandbox = settings.runtime.config.sandbox
        if "providers" in settings.model_fields_set and (sandbox is None or sandbox.provider != "blaxel"):
            yield Problem(
                "[providers.blaxel] does nothing here: no sandbox of this run is Blaxel's",
                key="providers.blaxel",
                remedy='Remove it, or set [runtime.config.sandbox] provider = "blaxel"',
            )


def _learning_rate(rate: float) -> Iterator[Problem]:
    if LEAST_RATE <= rate <= LARGEST_RATE:
        return
    does = "ruins most models within a few steps" if rate > LARGEST_RATE else "hardly changes a model"
    yield Problem(
        f"[training] learning_rate = {rate:g} {does}",
        key="training.learning_rate",
        remedy="An adapter's usual rate is about 1e-4, of a model of a million parameters 3e-3",
    )


def _off_policy(settings: Settings) -> Iterator[Problem]:
    k = settings.max_steps_off_policy
    if k > 0 and settings.training.loss == "importance_sampling":
        yield Problem(
            f"[training] loss 'importance_sampling' is not clipped, and samples may be {k} update{'s' * (k > 1)} old: a "
            "ratio far from 1 can ruin the policy",
            key="training.loss",
            remedy='Use loss = "cispo" or "ppo"',
        )


def _biased_sampling(settings: Settings) -> Iterator[Problem]:
    """The trainer scores every token at temperature 1 over the whole vocabulary; other samplers bias the ratio."""
    sampling = settings.sampling
    for key, biased, neutral in (
        ("temperature", sampling.temperature != 1.0, "1.0"),
        ("top_p", sampling.top_p < 1.0, "1.0"),
        ("top_k", sampling.top_k > 0, "-1"),
    ):
        if biased:
            yield Problem(
                f"[sampling] {key} = {getattr(sampling, key)} biases the training: the trainer scores tokens under the "
                "unchanged distribution, so the ratio of sampler and trainer is not 1 on fresh samples",
                key=f"sampling.{key}",
                remedy=f"Train with {key} = {neutral}",
            )


def _evaluation(settings: Settings) -> Iterator[Problem]:
    held_out = settings.eval
    if held_out is None:
        return
    if held_out.temperature == 0 and held_out.attempts_per_task > 1:
        yield Problem(
            f"[eval] attempts_per_task is {held_out.attempts_per_task}, and at temperature 0 the attempts at a task say the "
            "same",
            key="eval.attempts_per_task",
            remedy="Make 1 attempt each, or set a temperature above 0",
        )
    every = held_out.every_steps
    if every is not None and every > settings.training.max_steps:
        yield Problem(
            f"[eval] every_steps is {every}, and [training] max_steps is {settings.training.max_steps}: nothing is "
            "evaluated in between",
            key="eval.every_steps",
            remedy="Set it to max_steps or less, or leave it out",
        )
