"""Runs a console command: parses its options, prints its result or error, and sets the exit code.

The result goes to standard output: text for people, or with `--json` exactly one JSON object.
Progress and errors go to standard error. The exit codes are those of `launcher.errors`, and 130
after Ctrl-C.

Names of layers, files and nodes, and the sentences of agents, may contain anything. All output
passes through this module, `launcher.progress` or the console of `launcher.results.report_text`;
each of them escapes control characters (`printable`) and interprets no markup.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version as installed_version
from typing import Annotated, Any, NoReturn, Protocol

import typer

from launcher.errors import EXIT_BAD_INPUT, EXIT_FAILED, LauncherError
from launcher.logs import begin_log, is_json, log
from launcher.signals import unwinding_on_signals
from nodes.host.process import use_standard_files
from nodes.protocol.fields import printable

SIGNALLED = 128
"""An exit code above it is this plus the number of the signal that ended the command."""

EXIT_INTERRUPTED = 130

_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
"""Click's UsageError, of which Typer has a copy that it does not export."""


def run_command(
    app: typer.Typer,
    name: str,
    perform: Callable[[Any, bool], int],
    arguments: list[str] | None = None,
    interrupted: str = "interrupted",
    check: Callable[[Sequence[str]], None] = lambda _: None,
) -> NoReturn:
    """Parse the command line, call `perform(options, as_json)`, and exit with the code it returns.

    `options` is what the app's command function returns. Typer only parses, because it would
    handle Ctrl-C itself; `interrupted` is the message after Ctrl-C. `check` is called with the
    arguments before they are parsed, and may raise `LauncherError`.
    """
    use_standard_files()
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given
    begin_log(given)
    try:
        with unwinding_on_signals():
            code = _run(app, name, perform, given, as_json, interrupted, check)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has exited, so no message would arrive
        _discard_output()
        os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
        code = EXIT_FAILED
    except OSError as error:  # a full disk; errors of files that users name are handled earlier
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        _discard_output()
        what = error.filename or "standard output"
        print_error(name, f"{what}: cannot be written: {error.strerror or error}")
        code = EXIT_FAILED
    sys.exit(code)


def _discard_output() -> None:
    """Discard all further standard output, including what Python has buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(
    app: typer.Typer,
    name: str,
    perform: Callable[[Any, bool], int],
    arguments: list[str],
    as_json: bool,
    interrupted: str,
    check: Callable[[Sequence[str]], None],
) -> int:
    def fail(sentence: str, code: int) -> int:
        if as_json:
            print_json({"error": sentence, "exit_code": code})
        print_error(name, sentence)
        return code

    try:
        check(arguments)
        command = typer.main.get_command(app)
        parsed = command.main(arguments, prog_name=name, standalone_mode=False)
        return parsed if isinstance(parsed, int) else perform(parsed, as_json)
    except _USAGE_ERROR as error:
        at = name if error.ctx is None else error.ctx.command_path
        return fail(f"{_usage(error)} (see {at} --help)", EXIT_BAD_INPUT)
    except LauncherError as error:
        return fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return fail(interrupted, EXIT_INTERRUPTED)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else EXIT_FAILED
        if code <= SIGNALLED:
            raise
        # SIGTERM and SIGHUP, see `launcher.signals`
        return fail(interrupted.replace("interrupted", "stopped by a signal"), code)


def _usage(error: Any) -> str:
    """Say what is wrong with the command line, about a value as about one of `cluster.yaml`."""
    message = str(error.format_message() or "no command is given")
    cause = error.__cause__
    if not hasattr(cause, "errors"):
        return message
    from launcher.config.mistakes import problem_text  # noqa: PLC0415 (only a mistake needs it)

    option = message.removeprefix("Invalid value for ").partition(":")[0].strip("'")
    what = problem_text(cause.errors()[0]).rstrip(".")
    return f"{option} {what}" if what.startswith("must ") else f"{option}: {what}"


def print_json(data: dict[str, Any]) -> None:
    """Print one JSON object on standard output, in ASCII, so that it cannot control a terminal."""
    sys.stdout.write(json.dumps(data, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text for people on standard output."""
    sys.stdout.write(printable(text, lines=True))


def print_error(name: str, sentence: str) -> None:
    """Print an error on standard error, its further lines indented; or log it, see
    `launcher.logs`."""
    if is_json():
        log.error("%s", sentence)
        return
    sys.stderr.write(f"{name}: {printable(sentence, lines=True)}".replace("\n", "\n  ") + "\n")


class CommandResult(Protocol):
    """What a command has found."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data."""
        ...

    def print(self) -> None:
        """Print it for people, on standard output."""
        ...


def print_result(found: CommandResult, *, as_json: bool) -> None:
    """Print what a command has found, as one JSON object or for people."""
    if as_json:
        print_json(found.as_json())
    else:
        found.print()


def command_group(text: str) -> typer.Typer:
    """Return the parser of a command that has subcommands, and the option `--version`."""
    app = typer.Typer(pretty_exceptions_enable=False, no_args_is_help=True)

    @app.callback(help=text)
    def group(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=print_version, is_eager=True, help="Print the version"
            ),
        ] = False,
    ) -> None:
        """Parse the options of the command itself."""

    return app


def print_version(wanted: bool) -> None:
    """Print the version and exit if the option `--version` is given."""
    if wanted:
        typer.echo(f"csdf-edge {installed_version('csdf-edge')}")
        raise typer.Exit
