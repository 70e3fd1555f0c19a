"""Start the console scripts: `csdf-edge COMMAND`, and the commands that have a script of their own.

This module imports only the standard library before the command is known, since the import of a
command takes 0.2 s. Until then Ctrl-C ends the process at once: as an exception it would not,
because extension modules turn it into an ImportError.

Our packages have names that other distributions use too (`partition` and `autodice` both install a
package `partition`), and installing one of them overwrites our files without a warning. So if a
command ends in an unexpected exception, `csdf_edge.intact` first looks for a cause in the
installation.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import NoReturn

COMMANDS = {
    "launch": (
        "launcher.commands.launch",
        "run a network over the nodes of a cluster (also installed as launch)",
    ),
    "agent": ("nodes.cli", "run the agent of a device (also installed as node-agent)"),
    "partition": (
        "launcher.commands.partition",
        "divide a network, compare strategies, show plans, measure nodes",
    ),
    "ga": ("launcher.commands.ga", "tune the genetic algorithms (also installed as ga)"),
    "csdf": ("csdf.cli.command", "analyse dataflow graphs (also installed as csdf)"),
}
"""The module of each command, whose `main()` runs it, and what it does."""

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def launch() -> NoReturn:
    """Entry point of `launch`."""
    _run("launch", "launcher.commands.launch")


def ga() -> NoReturn:
    """Entry point of `ga`."""
    _run("ga", "launcher.commands.ga")


def node_agent() -> NoReturn:
    """Entry point of `node-agent`."""
    _run("node-agent", "nodes.cli")


def csdf() -> NoReturn:
    """Entry point of `csdf`."""
    _run("csdf", "csdf.cli.command")


def csdf_edge() -> NoReturn:
    """Entry point of `csdf-edge`, which runs the command that is its first argument."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h"):
        sys.stdout.write(_help())
        sys.exit(0)
    if name == "--version":
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        sys.stdout.write(f"csdf-edge {version('csdf-edge')}\n")
        sys.exit(0)
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        sys.stderr.write(f"csdf-edge: there is no command {name!r}; there are {known}\n")
        sys.exit(EXIT_BAD_INPUT)
    sys.argv = [sys.argv[0], *sys.argv[2:]]
    _run(name, COMMANDS[name][0])


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(
        (
            "usage: csdf-edge COMMAND ...",
            "",
            "Run one CNN over several devices. The commands:",
            "",
            *lines,
            "",
            "csdf-edge COMMAND --help describes a command's options.\n",
        )
    )


def _run(name: str, module: str) -> NoReturn:
    as_json = "--json" in sys.argv and module.startswith("launcher.")  # as `launcher.console` does

    def end(_number: int, _frame: FrameType | None) -> None:
        if as_json:
            os.write(1, b'{"error": "interrupted", "exit_code": 130}\n')
        os.write(2, f"{name}: interrupted\n".encode())
        os._exit(EXIT_INTERRUPTED)

    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it may be ignored
    if default:
        signal.signal(signal.SIGINT, end)
    try:
        main = import_module(module).main
        if default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
    except Exception as error:
        from csdf_edge.intact import what_is_wrong  # noqa: PLC0415 - 30 ms that few need

        sentence = what_is_wrong(error)
        if sentence is None:
            raise
        if as_json:
            sys.stdout.write(json.dumps({"error": sentence, "exit_code": EXIT_BAD_INPUT}) + "\n")
        sys.stderr.write(f"{name}: {sentence}\n")
        sys.exit(EXIT_BAD_INPUT)
