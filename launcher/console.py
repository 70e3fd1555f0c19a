"""What the console commands share: usage, sentences for errors, JSON, exit codes.

Standard output holds the result: text for people, or with `--json` exactly one JSON object.
Progress and error sentences go to standard error. Exit codes: see `launcher.errors`; 130 after
Ctrl-C.

Names of layers, files and nodes and sentences of agents are somebody else's text. Whatever is
printed passes here, `launcher.progress` or the console of `launcher.results.report_text`, each of
which writes control characters out as escapes (`printable`) and takes nothing for markup.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version as installed_version
from typing import Any, NoReturn

import typer

from launcher.errors import EXIT_BAD_INPUT, EXIT_FAILED, LauncherError
from launcher.signals import unwinding_on_signals
from nodes.protocol.fields import printable

SIGNALLED = 128
"""Exit codes above are this plus a signal's number."""

EXIT_INTERRUPTED = 130

_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
"""UsageError, which Typer took from Click and does not export."""


def run_command(
    app: typer.Typer,
    name: str,
    perform: Callable[[Any, bool], int],
    arguments: list[str] | None = None,
    interrupted: str = "interrupted",
) -> NoReturn:
    """Parse the command line, `perform(what the command function returned, as JSON?)`, and exit.

    Typer only parses: it would take Ctrl-C for itself. `interrupted` is what is said after Ctrl-C.
    """
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given
    try:
        with unwinding_on_signals():
            code = _run(app, name, perform, given, as_json, interrupted)
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has gone; nothing is left to say
        _give_up_on_output()
        os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
        code = EXIT_FAILED
    except OSError as error:  # a full disk; files that users name are looked after where they are
        _give_up_on_output()
        what = error.filename or "standard output"
        print_error(name, f"{what}: cannot be written: {error.strerror or error}")
        code = EXIT_FAILED
    sys.exit(code)


def _give_up_on_output() -> None:
    """Nothing more goes to standard output, not even what Python still holds back."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(
    app: typer.Typer,
    name: str,
    perform: Callable[[Any, bool], int],
    arguments: list[str],
    as_json: bool,
    interrupted: str,
) -> int:
    def fail(sentence: str, code: int) -> int:
        if as_json:
            print_json({"error": sentence, "exit_code": code})
        print_error(name, sentence)
        return code

    try:
        command = typer.main.get_command(app)
        parsed = command.main(arguments, prog_name=name, standalone_mode=False)
        return parsed if isinstance(parsed, int) else perform(parsed, as_json)
    except _USAGE_ERROR as error:
        what = error.format_message() or "say what to do"
        return fail(f"{what} ({name} --help says more)", EXIT_BAD_INPUT)
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


def print_json(data: dict[str, Any]) -> None:
    """One JSON object on standard output, in ASCII: it steers no terminal either."""
    sys.stdout.write(json.dumps(data, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Lines for people, on standard output."""
    sys.stdout.write(printable(text, lines=True))


def print_error(name: str, sentence: str) -> None:
    """What went wrong, on standard error; further lines are indented, so that none looks ours."""
    sys.stderr.write(f"{name}: {printable(sentence, lines=True)}".replace("\n", "\n  ") + "\n")


def print_version(wanted: bool) -> None:
    """What `--version` does."""
    if wanted:
        typer.echo(f"csdf-edge {installed_version('csdf-edge')}")
        raise typer.Exit
