"""Start the console scripts: `csdf-edge COMMAND`, and the commands that have their own script.

This module imports only the standard library before the command is known, since the import of a
command takes 0.2 s. Until then Ctrl-C ends the process at once: as an exception it would not,
because extension modules turn it into an ImportError.

A command ends at once where the limits of the shell are below what it needs: with too little
address space, the linear algebra of SciPy asks for memory for ever and obeys no signal.

Our packages have names that other distributions use too (`partition` and `autodice` both install a
package `partition`), and installing one of them overwrites our files without a warning. So if a
command ends in an unexpected exception, `csdf_edge.intact` first searches for a cause in the
installation.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
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
    "demo": ("csdf_edge.demo", "classify handwritten digits over three agents on this machine"),
}
"""The module of each command, whose `main()` runs it, and what it does."""

LEAST_FILES = 64
"""Files that a command has open at once, most of them libraries while they are loaded."""

LEAST_SPACE_BYTES = 1 << 30
"""Address space that a command needs for its libraries and their threads."""

LEAST_AGENT_SPACE_BYTES = 256 << 20
"""The same for an agent, which loads no SciPy."""

EXIT_FAILED = 1
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
        _run("csdf-edge", "", lambda: sys.stdout.write(_help()) and 0)
    if name == "--version":
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        _run("csdf-edge", "", lambda: sys.stdout.write(f"csdf-edge {version('csdf-edge')}\n") and 0)
    if name not in COMMANDS:
        from launcher.commands.overview import nearest_command  # noqa: PLC0415 - few need it

        hint = nearest_command(name, COMMANDS) or f"the commands are {', '.join(COMMANDS)}"
        sys.stderr.write(f"csdf-edge: there is no command {name!r}; {hint}\n")
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


def _run(name: str, module: str, perform: Callable[[], int] | None = None) -> NoReturn:
    """Run `main` of a module, or another function, and exit with the code that it returns."""
    as_json = "--json" in sys.argv and module.startswith(
        ("launcher.", "csdf_edge.")
    )  # as `launcher.console` does

    def end(_number: int, _frame: FrameType | None) -> None:
        if as_json:
            os.write(1, b'{"error": "interrupted", "exit_code": 130}\n')
        os.write(2, f"{name}: interrupted\n".encode())
        os._exit(EXIT_INTERRUPTED)

    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it may be ignored
    if default:
        signal.signal(signal.SIGINT, end)

    def fail(sentence: str, code: int) -> NoReturn:
        if as_json:
            sys.stdout.write(json.dumps({"error": sentence, "exit_code": code}) + "\n")
        sys.stderr.write(f"{name}: {sentence}\n")
        sys.exit(code)

    try:
        from nodes.host.process import use_standard_files  # noqa: PLC0415 - it may be missing

        use_standard_files()
        if (sentence := _too_low(module)) is not None:
            fail(sentence, EXIT_BAD_INPUT)
        main = perform or import_module(module).main
        if default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()  # here an error has a sentence
        sys.exit(code)
    except Exception as error:
        if (sentence := _used_up(error)) is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more can be written there
            fail(sentence, EXIT_FAILED)
        from csdf_edge.intact import what_is_wrong  # noqa: PLC0415 - 30 ms that few need

        if (sentence := what_is_wrong(error)) is None:
            raise
        fail(sentence, EXIT_BAD_INPUT)


def _too_low(module: str) -> str | None:
    """Return a sentence for a limit of this process that no command can work with; None if fine."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        return f"only {files} files may be open at once; allow {LEAST_FILES} or more (ulimit -n)"
    space_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    least_bytes = LEAST_AGENT_SPACE_BYTES if module.startswith("nodes.") else LEAST_SPACE_BYTES
    if space_bytes != resource.RLIM_INFINITY and space_bytes < least_bytes:
        return (
            f"only {space_bytes >> 10} kB of address space are allowed, which its libraries "
            f"exceed; allow {least_bytes >> 10} kB or more (ulimit -v)"
        )
    return None


def _used_up(error: Exception) -> str | None:
    """Return a sentence for an error that says that memory or open files are used up."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE) or os.strerror(errno.EMFILE) in str(error):
        return "too many files are open at once; allow more (ulimit -n)"
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "there is not enough memory for it; free some, or allow more (ulimit -v)"
    if number in (errno.EBADF, errno.EPIPE, errno.ENOSPC, errno.EIO):
        return f"its output cannot be written: {os.strerror(number)}"
    return None
