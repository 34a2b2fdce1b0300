"""The command line. Nothing heavy is imported before a command needs it, so help and the first paint are quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from loops_tui import loops_cli
from loops_tui.commands.arguments import Config, Json, Run, Set, end
from loops_tui.commands.looking import first_word, refuse, refused_to_look_on
from loops_tui.commands.output import BAD_INPUT, Output

app = typer.Typer(
    name="loops-tui",
    help=(
        "Post-train language models on Baseten Loops from the terminal.\n\n"
        "Without a command the application opens on the working directory; `loops-tui DIR` opens it on another one."
    ),
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Readonly = Annotated[
    bool, typer.Option("--readonly", help="The application only looks on: nothing is changed from it.")
]
Ascii = Annotated[
    bool, typer.Option("--ascii", help="Draw with ASCII alone (by itself where the locale is not UTF-8).")
]
NoMouse = Annotated[bool, typer.Option("--no-mouse", help="Leave the mouse to the terminal.")]
Hangup = Annotated[
    str | None,
    typer.Option(
        "--on-hangup",
        metavar="hand-over|drain",
        help="A run in the application, when the terminal closes: goes on in a process of its own, or ends.",
    ),
]


@app.callback(invoke_without_command=True)
def _root(  # noqa: PLR0917  # typer passes them by name
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    readonly: Readonly = False,
    ascii: Ascii = False,
    no_mouse: NoMouse = False,
    on_hangup: Hangup = None,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"loops-tui {installed('loops-tui')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        _open(Path.cwd(), readonly, ascii, no_mouse, on_hangup)
    elif readonly or ascii or no_mouse or on_hangup is not None:
        given = "--readonly, --ascii, --no-mouse and --on-hangup"
        end(Output(), lambda: refuse(f"{given} are for the application: `loops-tui --readonly [DIR]`"))


@app.command("open", hidden=True)
def _open_command(
    directory: Annotated[Path, typer.Argument()] = Path(),
    readonly: Readonly = False,
    ascii: Ascii = False,
    no_mouse: NoMouse = False,
    on_hangup: Hangup = None,
) -> None:
    """Open the application on a project directory."""
    _open(directory, readonly, ascii, no_mouse, on_hangup)


def _open(directory: Path, readonly: bool, ascii: bool, no_mouse: bool, on_hangup: str | None) -> NoReturn:
    from loops_tui.commands.opening import chosen_options, open_directory

    def work() -> int:
        options = chosen_options(readonly=readonly, ascii=ascii, mouse=not no_mouse, on_hangup=on_hangup)
        return open_directory(directory, options)

    end(Output(), work)


@app.command()
def keys(as_json: Json = False) -> None:
    """List the application's keys, and say where a keymap of your own goes."""
    from loops_tui.commands.keys import keys as list_keys

    out = Output(as_json)
    end(out, lambda: list_keys(out))


@app.command()
def demo(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Project directory (default: in your data directory).")
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Run it without the application.")] = False,
    as_json: Json = False,
) -> None:
    """Train a bundled example: no account, no network, no cost."""
    from loops_tui.commands import run as commands

    out = Output(as_json)
    end(out, lambda: commands.demo(directory, out, headless=headless or as_json), commands.run_failure)


@app.command()
def check(config: Config, overrides: Set = None, as_json: Json = False) -> None:
    """Check a config and everything it names, without starting anything that costs."""
    from loops_tui.commands import run as commands

    out = Output(as_json)
    end(out, lambda: commands.check(config, overrides or (), out), commands.check_failure)


@app.command()
def settings(
    key: Annotated[
        str | None,
        typer.Argument(metavar="[KEY]", help="One setting, such as training.group_size, or one table."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show every setting of a config with its type, default and meaning."""
    from loops_tui.commands import settings as commands

    out = Output(as_json)
    end(out, lambda: commands.settings(key, out))


@app.command()
def run(
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONFIG]", help="A TOML or JSON config; a bundled example's path works from anywhere."
        ),
    ] = None,
    overrides: Set = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Go on with a run that has ended, from its last checkpoint and with its own config.",
        ),
    ] = None,
    as_json: Json = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in a process of its own that outlives this terminal.")
    ] = False,
) -> None:
    """Run a config to its end. Ctrl+c stops after the step in hand, a second one aborts."""
    from loops_tui.commands import run as commands

    out = Output(as_json)
    work = commands.run_detached if detach else commands.run
    end(out, lambda: work(config, overrides or (), out, resume=resume), commands.run_failure)


@app.command()
def watch(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run; the newest live one if none is named.")
    ] = None,
) -> None:
    """Follow a run in plain lines until it ends."""
    from loops_tui.commands import runs as commands

    out = Output()
    end(out, lambda: commands.watch(run, out))


@app.command()
def runs(
    as_json: Json = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many runs.")] = 1000,
    account: Annotated[
        bool,
        typer.Option(
            "--account", help="Ask Loops instead: every Loops run of the account, this project's or not."
        ),
    ] = False,
) -> None:
    """List the runs of this project, live ones first."""
    out = Output(as_json)
    if account:
        from loops_tui.commands import deactivate as loops_commands

        end(out, lambda: loops_commands.account(out))
    from loops_tui.commands import runs as commands

    end(out, lambda: commands.runs(out, limit=limit))


@app.command()
def pause(run: Run, as_json: Json = False) -> None:
    """Pause a run: nothing new starts, attempts in flight go on."""
    _ask(run, "pause", as_json)


@app.command()
def resume(run: Run, as_json: Json = False) -> None:
    """End a pause."""
    _ask(run, "resume", as_json)


@app.command()
def stop(run: Run, as_json: Json = False) -> None:
    """Stop a run after the step in hand."""
    _ask(run, "stop", as_json)


@app.command()
def abort(run: Run, as_json: Json = False) -> None:
    """Abort a run now; what it holds is released."""
    _ask(run, "abort", as_json)


def _ask(run: str, kind: str, as_json: bool) -> NoReturn:
    from loops_tui.commands import runs as commands

    out = Output(as_json)
    end(out, lambda: commands.ask(run, kind, out))


@app.command()
def leases(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this run's sandboxes.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were released.")] = False,
    as_json: Json = False,
) -> None:
    """List the sandboxes that may exist, and who holds them."""
    from loops_tui.commands import leases as commands

    out = Output(as_json)
    end(out, lambda: commands.leases(run, out, everything=everything))


@app.command()
def cleanup(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|CONFIG]",
            help="A run, or a config: then all its runs. Without one: everything of this project.",
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir", metavar="DIR", help="The run by its directory, or that directory's state."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be released, change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal either.")] = False,
    as_json: Json = False,
) -> None:
    """Release the sandboxes that dead processes left behind; safe to repeat."""
    from loops_tui.commands import cleanup as commands

    out = Output(as_json)
    end(out, lambda: commands.cleanup(target, state_dir, out, dry_run=dry_run, assume_yes=yes))


@app.command()
def serve(
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1 (0: a free one).")] = 0,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="State directory (default: .loops/serve here).")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME=DIR", help="Offer a model directory under a name (repeatable)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve the Loops protocol on this machine and print URL and key."""
    from loops_tui.commands import serve as commands

    out = Output(as_json)
    end(out, lambda: commands.serve(port, directory, model or (), out))


loops_cli.register(app)


def main() -> None:
    """The script ``loops-tui``."""
    arguments = sys.argv[1:]
    names = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    place = first_word(arguments)
    if place is not None:
        if arguments[place] not in names and _means_directory(arguments[place]):
            arguments = ["open", *arguments]
        elif (refusal := refused_to_look_on(arguments[place], os.environ)) is not None:
            Output().error(refusal)
            sys.exit(BAD_INPUT)
    app(arguments, prog_name="loops-tui")


def _means_directory(argument: str) -> bool:
    return os.path.isdir(os.path.expanduser(argument)) or "/" in argument


if __name__ == "__main__":
    main()
