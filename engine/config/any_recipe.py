"""The recipes a config can be for, and the rules that hold for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.config.problems import Problem
from engine.config.sections import ComputeSettings, ModelSettings
from engine.config.settings import EffectiveScope, Settings, rule_problems
from engine.config.sft import SftSettings, sft_rule_problems

type AnySettings = Settings | SftSettings

RECIPES: dict[str, type[Settings] | type[SftSettings]] = {"rl": Settings, "sft": SftSettings}


def settings_type(table: Mapping[str, Any]) -> type[Settings] | type[SftSettings]:
    """What a config's table is validated as: its recipe's settings, or RL's where it names none that there is."""
    recipe = table.get("recipe")
    return RECIPES.get(recipe, Settings) if isinstance(recipe, str) else Settings


def problems_between_keys(settings: AnySettings, scope: EffectiveScope) -> Iterator[Problem]:
    """What no single key shows: keys that contradict each other, or that do nothing where the run goes."""
    if isinstance(settings, SftSettings):
        yield from sft_rule_problems(settings)
    else:
        yield from rule_problems(settings)
    yield from _template_problems(settings.model)
    yield from _budget_problems(settings, scope)
    yield from _compute_problems(settings.compute, scope)


#: What a chat template is given by whoever renders with it.
_GIVEN_TO_TEMPLATES = frozenset({"messages", "tools", "add_generation_prompt", "tokenize", "chat_template"})


def _template_problems(model: ModelSettings) -> Iterator[Problem]:
    """Arguments of the chat template that would mean something else than they say."""
    table = "model.renderer_chat_template_kwargs"
    for name, value in model.renderer_chat_template_kwargs.items():
        if name in _GIVEN_TO_TEMPLATES:
            yield Problem(
                f"[{table}] {name} is given to the chat template by the engine itself",
                key=f"{table}.{name}",
                remedy="Remove it",
            )
        elif isinstance(value, str) and value.casefold() in ("true", "false"):
            yield Problem(
                f"[{table}] {name} is the text {value!r}, and a chat template takes any text for true",
                key=f"{table}.{name}",
                remedy=f"Write {value.casefold()}, without quotes",
            )


def _budget_problems(settings: AnySettings, scope: EffectiveScope) -> Iterator[Problem]:
    """Bounds that nothing would ever be counted against."""
    budget, given = settings.budget, settings.prices.model_dump(exclude={"currency"}, exclude_none=True)
    if budget.max_cost is not None and not given:
        yield Problem(
            "[budget] max_cost is set, but no price is: nothing could be counted",
            key="budget.max_cost",
            remedy="Give what you pay in [prices], such as sandbox_gb_hour, or use max_hours or max_tokens",
        )
    elif budget.max_cost is not None and scope != "local" and not given.keys() & _prices_of(settings, scope):
        where = "not known to be dedicated" if scope == "auto" else scope
        yield Problem(
            f"[budget] max_cost is set, but this run is {where}, and no price that applies there is given: nothing "
            "could be counted",
            key="budget.max_cost",
            remedy=f"Give {' or '.join(sorted(_prices_of(settings, scope)))} in [prices]",
        )
    if budget.max_tokens is not None and isinstance(settings, SftSettings):
        yield Problem(
            "[budget] max_tokens bounds the tokens of model calls, and fine-tuning makes none",
            key="budget.max_tokens",
            remedy="Remove it, and bound the run with [training] max_steps or [budget] max_hours",
        )
    if budget.max_sandbox_hours is not None and not _has_sandboxes(settings):
        yield Problem(
            "[budget] max_sandbox_hours is set, but this run has no sandboxes",
            key="budget.max_sandbox_hours",
            remedy="Remove it, or give each attempt a sandbox with [runtime.config.sandbox]"
            if isinstance(settings, Settings)
            else "Remove it, and bound the run with [training] max_steps or [budget] max_hours",
        )


def _has_sandboxes(settings: AnySettings) -> bool:
    return isinstance(settings, Settings) and settings.runtime.config.sandbox is not None


def uncounted_costs(settings: AnySettings, scope: EffectiveScope) -> Iterator[Problem]:
    """What a bound on the cost leaves out, because only some of the prices are given."""
    if settings.budget.max_cost is None:
        return
    if scope == "local":
        if not _has_sandboxes(settings):
            yield Problem(
                "[budget] max_cost bounds nothing here: a local run has no trainer and no sampler that cost",
                key="budget.max_cost",
                remedy="Bound it with max_hours, or leave it for runs on Baseten",
            )
        elif settings.prices.sandbox_gb_hour is None:
            yield Problem(
                "[budget] max_cost bounds nothing here: of a local run only the sandboxes can cost, and [prices] has "
                "no sandbox_gb_hour",
                key="budget.max_cost",
                remedy="Give it where they do, or bound the run with max_hours or max_sandbox_hours",
            )
        return
    missing = sorted(name for name in _prices_of(settings, scope) if getattr(settings.prices, name) is None)
    if missing:
        yield Problem(
            f"[budget] max_cost counts only part of the cost: [prices] has no {', no '.join(missing)}",
            key="budget.max_cost",
            remedy="Give the prices that are missing, 0 for what costs nothing",
        )


def _prices_of(settings: AnySettings, scope: EffectiveScope) -> set[str]:
    """The prices that a run's cost is made of."""
    if scope == "dedicated":
        prices = {"trainer_hour"} | ({"sampler_hour"} if isinstance(settings, Settings) else set())
    else:
        prices = {"trained_million"}
        if isinstance(settings, Settings):
            prices |= {"prompt_million", "sampled_million"}
    if _has_sandboxes(settings):
        prices.add("sandbox_gb_hour")
    return prices


def _compute_problems(compute: ComputeSettings, scope: EffectiveScope) -> Iterator[Problem]:
    if scope != "dedicated":
        where = {
            "local": "this run is local",
            "serverless": "a serverless run shares a pool",
            "auto": "this config does not say [compute] scope = 'dedicated'",
        }[scope]
        for key in ("replicas", "spot"):
            if getattr(compute, key) is not None:
                yield Problem(
                    f"[compute] {key} sizes a dedicated deployment, and {where}",
                    key=f"compute.{key}",
                    remedy=f"Remove {key}, or set [compute] scope = 'dedicated'",
                )
    if scope == "local" and compute.base_url is not None:
        yield Problem(
            "[compute] base_url names a Loops service, but a local run starts its own server",
            key="compute.base_url",
            remedy="Remove base_url; to use a server that already runs, set scope = 'dedicated' and BASETEN_API_KEY "
            "to its key",
        )
