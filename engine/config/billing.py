"""What of a run costs money, said before it starts."""

from __future__ import annotations

from engine.config.any_recipe import AnySettings
from engine.config.settings import EffectiveScope, Settings


def billed(settings: AnySettings, scope: EffectiveScope) -> list[str]:
    """What others bill of a run of these settings, a sentence each; nothing for a run on this machine."""
    told: list[str] = []
    if scope != "local":
        told.append(_model(settings, scope))
    sandbox = settings.runtime.config.sandbox if isinstance(settings, Settings) else None
    if sandbox is not None and sandbox.provider != "local":
        told.append(
            f"Sandboxes of {sandbox.memory_mb} MiB on {sandbox.provider.title()}: their time is billed."
        )
    if told and not settings.budget.model_dump(exclude_none=True):
        told.append("No [budget] bounds what it takes.")
    return told


def _model(settings: AnySettings, scope: EffectiveScope) -> str:
    model, compute = settings.model.base_model, settings.compute
    if scope == "serverless":
        return f"{model} on Baseten (serverless): tokens are billed."
    until = (
        "the run ends"
        if not compute.keep_run
        else "it is deactivated, for keep_run leaves it up after the run"
    )
    if scope == "auto":
        return (
            f"{model} on Baseten, where Loops chooses: serverless bills tokens, a dedicated deployment its time until "
            f"{until}."
        )
    replicas = f" with {compute.replicas} trainer replicas" if (compute.replicas or 1) > 1 else ""
    spot = ", on spot capacity" if compute.spot else ""
    return f"{model} on a dedicated deployment of Baseten{replicas}{spot}: it bills from its start until {until}."
