"""Start Python in other processes, and restart or end one whose engine hangs.

Every process that runs a module of ours is started by `python_command`, so that none takes modules
from the folder that the user is in (`nodes.host.start`).

A thread in a call that never returns ends only with its process, or when execve(2) replaces the
program: then all other threads end, and the process keeps its PID, its standard files and its
parent. All other descriptors are closed, and with them what the engine held is released.

If the engine holds the interpreter while it hangs, the agent's code can no longer run. Then
systemd's watchdog ends the process (`nodes.host.systemd`).
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

_FIRST_FILE, _MOST_FILES = 3, 1 << 20

START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start.py")


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module in another process."""
    return [sys.executable, START, module, *arguments]


def use_standard_files() -> None:
    """Put the null device where standard files are closed, and let standard output take all text.

    Otherwise the next file or socket that is opened would get the number of a closed one. As in
    glibc, the stand-in for standard output cannot be written, so a result that is lost is an error.
    Characters that the encoding of standard output lacks are written as escapes.
    """
    modes = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for descriptor, (name, mode) in enumerate(modes.items()):
        if not _is_open(descriptor):
            os.open(os.devnull, mode)  # gets the lowest number that is free
            how = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(descriptor, how, encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def install_command(*arguments: str) -> str:
    """Return what a user can type to install packages for the Python that runs this."""
    safe = ("-P",) if sys.version_info >= (3, 11) else ()
    return shlex.join((sys.executable, *safe, "-m", "pip", "install", *arguments))


def own_command() -> list[str]:
    """Return the command line that started this process."""
    return [sys.executable, *sys.orig_argv[1:]]


def restart_in_place(more: Sequence[str] = (), kept: int = 0) -> NoReturn:
    """Replace this process by a new run of its own command line, with `more` arguments appended.

    The first `kept` file descriptors after the standard ones stay open. Raises OSError if the
    interpreter cannot be started again.
    """
    flush()
    for descriptor in range(_FIRST_FILE, _FIRST_FILE + kept):
        os.set_inheritable(descriptor, True)
    os.closerange(_FIRST_FILE + kept, _MOST_FILES)
    command = [*own_command(), *more]
    os.execv(command[0], command)  # noqa: S606 - the command line that started us


def be_killed_first() -> None:
    """Let the kernel kill this process rather than others, such as an agent, if memory runs out."""
    with (
        contextlib.suppress(OSError),
        open("/proc/self/oom_score_adj", "w", encoding="ascii") as file,
    ):
        file.write("1000")


def exit_at_once(code: int) -> NoReturn:
    """End the process without waiting for its threads or unloading the libraries that they use."""
    flush()
    os._exit(code)


def flush() -> None:
    """Write out what waits in standard output and standard error."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
