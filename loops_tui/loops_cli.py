"""The commands about Loops runs and their weights: checkpoints, deactivate, evaluate, try, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loops_tui.commands.arguments import Json, Run, Set, end
from loops_tui.commands.output import Output

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal either.")]


def checkpoints(  # noqa: PLR0917  # typer passes them by name
    run: Run,
    action: Annotated[
        str | None,
        typer.Argument(metavar="[save|download|deploy]", help="Without one: list them."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The checkpoint: its name, its step, or last."),
    ] = None,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Where a download goes.")] = None,
    part: Annotated[
        str,
        typer.Option(
            "--part",
            metavar="sampler|trainer",
            help="What is downloaded: the adapter, or the trainer's state with its optimizer.",
        ),
    ] = "sampler",
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask Loops which there still are.")] = False,
    model_name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="deploy: the model's name on Baseten.")
    ] = None,
    instance_type: Annotated[
        str | None, typer.Option("--instance-type", metavar="ID", help="deploy: the kind of machine.")
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret",
            metavar="NAME",
            help="deploy: name of the workspace secret with the Hugging Face token.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="deploy: show the request, send nothing.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """List a run's checkpoints, save one, download one, or have one served (which bills)."""
    from loops_tui.commands import checkpoints as commands

    out = Output(as_json)
    deploy = commands.DeployOptions(model_name, instance_type, secret, dry_run=dry_run, assume_yes=yes)
    asked = commands.Asked(run, action, name, directory, part=part, refresh=refresh, deploy=deploy)
    end(out, lambda: commands.checkpoints(asked, out))


def deactivate(run: Run, yes: Yes = False, as_json: Json = False) -> None:
    """End the Loops runs behind a run, so that nothing of it bills; checkpoints stay."""
    from loops_tui.commands import deactivate as commands

    out = Output(as_json)
    end(out, lambda: commands.deactivate(run, out, assume_yes=yes))


def export(
    run: Run,
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Default: the run's own directory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's directory anew from the store."""
    from loops_tui.commands import export as commands

    out = Output(as_json)
    end(out, lambda: commands.export(run, directory, out))


def evaluate(  # noqa: PLR0917  # typer passes them by name
    run: Run,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="NAME", help="A checkpoint: its name, its step, or last."),
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="The base model that the run began with.")] = False,
    only_list: Annotated[bool, typer.Option("--list", help="Evaluate nothing, show what there is.")] = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Attempt the held-out tasks with a run's weights; nothing of it trains."""
    from loops_tui.commands import evaluate as commands

    out = Output(as_json)
    end(
        out,
        lambda: commands.evaluate(
            run, out, checkpoint=checkpoint, base=base, overrides=overrides or (), only_list=only_list
        ),
    )


def try_weights(  # noqa: PLR0917  # typer passes them by name
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN[@CHECKPOINT]]", help="A run's last checkpoint, another one, or RUN@base."
        ),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="CONFIG", help="The base model of a config instead.")
    ] = None,
    task: Annotated[
        int | None, typer.Option("--task", metavar="N", help="Attempt task number N (from 0).")
    ] = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="--task counts the held-out tasks of [eval].")
    ] = False,
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="A system message.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, max=5, help="0 is greedy.")
    ] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", min=0.000001, max=1)] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=-1)] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1)] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="The same seed, the same replies.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Talk to weights, one message a line, or let them attempt a task; nothing of it trains."""
    from loops_tui.commands import trying as commands

    out = Output(as_json)

    def work() -> int:
        from engine.hosting.trying import TrialSampling

        sampling = TrialSampling(temperature, top_p, top_k, max_tokens, seed)
        return commands.try_weights(
            target, base, task, out, held_out=held_out, system=system, sampling=sampling
        )

    end(out, work)


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    for command in (checkpoints, deactivate, evaluate, export):
        app.command()(command)
    app.command("try")(try_weights)
