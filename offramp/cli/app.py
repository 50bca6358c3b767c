"""All subcommands in one program, and what becomes of their errors: one readable line, the right exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from offramp.cli import bench, calibrate, chat, convert, generate, inspect, pull, remove, report, serve, train, tune
from offramp.cli import list as list_models
from offramp.cli.foreign_flags import FOREIGN, as_written
from offramp.cli.messages import say, show_error, show_failure, warnings_on_stderr
from offramp.cli.options import State
from offramp.cli.streams import put, settle, write_utf8
from offramp.errors import InvalidRequestError

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

USAGE_ERROR = typer.BadParameter.__bases__[0]
"""The base of every mistake in the arguments (typer exports only some of its children)."""


def build_app() -> typer.Typer:
    """The command line as a typer application."""
    app = typer.Typer(
        help="Run language models with dynamic execution: each token gets only the compute it needs.",
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command("generate")(generate.command)
    app.command("chat")(chat.command)
    app.command("serve")(serve.command)
    app.command("pull")(pull.command)
    app.command("list")(list_models.command)
    app.command("remove")(remove.command)
    app.command("inspect")(inspect.command)
    app.command("convert")(convert.command)
    app.command("calibrate")(calibrate.command)
    app.command("report")(report.command)
    app.command("tune")(tune.command)
    app.add_typer(bench.app, name="bench")
    app.add_typer(train.app, name="train")
    return app


def run(args: Sequence[str]) -> int:
    """Run one command; returns its exit code: 0, 1 for failure, 2 for usage, 130 after Ctrl-C."""
    if sys.stdout is None:
        show_error("standard output is closed", "send it to a file, or to /dev/null")
        return EXIT_FAILURE
    for stream in (sys.stdout, sys.stderr):
        write_utf8(stream)
    state = State()
    try:
        return _invoke(args, state)
    except BrokenPipeError:  # the reader has all it wanted
        return 0
    except KeyboardInterrupt:
        say("")
        return EXIT_INTERRUPTED
    except Exception as error:
        if state.debug:
            say(traceback.format_exc().rstrip())
        return _report(error, state.flags, args)
    finally:
        settle(sys.stdout)
        settle(sys.stderr)


def _invoke(args: Sequence[str], state: State) -> int:
    command = typer.main.get_command(build_app())
    try:
        with warnings_on_stderr(), command.make_context("offramp", list(args), obj=state) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return int(stop.exit_code)
    return 0


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        put(f"offramp {version('offramp')}\n")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the subcommand."""


def _report(error: Exception, flags: Mapping[str, str], args: Sequence[str]) -> int:
    """Say what went wrong in one line, and what to do in another."""
    if isinstance(error, USAGE_ERROR):
        return _report_usage(error, args)
    show_failure(error, flags)
    return EXIT_USAGE if isinstance(error, InvalidRequestError) else EXIT_FAILURE


def _report_usage(error: Exception, args: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "offramp"
    message = getattr(error, "format_message", error.__str__)()
    flag = as_written(getattr(error, "option_name", None) or "", args)
    if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help
        say(message)
    elif path == "offramp serve" and flag in FOREIGN:
        show_error(f"there is no option {flag}", FOREIGN[flag])
    else:
        show_error(message.splitlines()[0].rstrip("."), f"see {path} --help")
    return EXIT_USAGE
