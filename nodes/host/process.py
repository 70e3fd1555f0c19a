"""Restart or end a process whose engine hangs.

A thread in a call that never returns ends only with its process, or when execve(2) replaces the
program: then all other threads end, and the process keeps its PID, its standard files and its
parent. All other descriptors are closed, and with them what the engine held is released.

If the engine holds the interpreter while it hangs, no code of the agent can run any more. Then
systemd's watchdog ends the process (`nodes.host.systemd`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_FIRST_FILE, _MOST_FILES = 3, 1 << 20


def restart_in_place(more: Sequence[str] = (), kept: int = 0) -> NoReturn:
    """Replace this process by a new run of its own command line, with `more` arguments appended.

    The first `kept` file descriptors behind the standard ones stay open. Raises OSError if the
    interpreter cannot be started again.
    """
    flush()
    for descriptor in range(_FIRST_FILE, _FIRST_FILE + kept):
        os.set_inheritable(descriptor, True)
    os.closerange(_FIRST_FILE + kept, _MOST_FILES)
    command = [sys.executable, *sys.orig_argv[1:], *more]
    os.execv(command[0], command)  # noqa: S606 - the command line that started us


def exit_at_once(code: int) -> NoReturn:
    """End the process without waiting for its threads or unloading the libraries that they use."""
    flush()
    os._exit(code)


def flush() -> None:
    """Write out what waits in standard output and standard error."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
