"""The end of a process one of whose threads is in an engine's call that does not return.

Nothing can end such a thread but the end of its process, or another program in its place: execve(2)
ends all other threads, and the process keeps its PID, its standard files and its parent. What was
closed or marked close-on-exec is gone, and with it whatever the engine held.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_MOST_FILES = 1 << 20


def start_anew(more: Sequence[str] = ()) -> NoReturn:
    """Run this process's own command line again in its place, with `more` arguments behind it.

    Raises OSError if the interpreter cannot be started again.
    """
    _flush()
    os.closerange(3, _MOST_FILES)
    command = [sys.executable, *sys.orig_argv[1:], *more]
    os.execv(command[0], command)  # noqa: S606 - the command line that started us


def leave(code: int) -> NoReturn:
    """End the process without waiting for its threads or unloading libraries that they are in."""
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
