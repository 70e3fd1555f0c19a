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

_MOST_FILES = 1 << 20


def restart_in_place(more: Sequence[str] = ()) -> NoReturn:
    """Replace this process by a new run of its own command line, with `more` arguments appended.

    Raises OSError if the interpreter cannot be started again.
    """
    _flush()
    os.closerange(3, _MOST_FILES)
    command = [sys.executable, *sys.orig_argv[1:], *more]
    os.execv(command[0], command)  # noqa: S606 - the command line that started us


def exit_at_once(code: int) -> NoReturn:
    """End the process without waiting for its threads or unloading the libraries that they use."""
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
