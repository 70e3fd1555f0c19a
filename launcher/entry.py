"""The console scripts, until Python has imported what they are made of: that takes 0.2 s.

Nothing has to be cleared up yet, and Ctrl-C ends them at once. As an exception it would not:
extension modules make ImportErrors of it. Of ours only the command that was called is imported.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import NoReturn


def launch() -> NoReturn:
    """Entry point of `launch`."""
    _run("launch", "launcher.cli")


def partition() -> NoReturn:
    """Entry point of `partition`."""
    _run("partition", "launcher.commands.partition")


def ga() -> NoReturn:
    """Entry point of `ga`."""
    _run("ga", "launcher.commands.ga")


def node_agent() -> NoReturn:
    """Entry point of `node-agent`."""
    _run("node-agent", "nodes.cli")


def csdf() -> NoReturn:
    """Entry point of `csdf`."""
    _run("csdf", "csdf.cli")


def _run(name: str, module: str) -> NoReturn:
    def end(_number: int, _frame: FrameType | None) -> None:
        if "--json" in sys.argv and module.startswith("launcher."):  # as `launcher.console` does
            os.write(1, b'{"error": "interrupted", "exit_code": 130}\n')
        os.write(2, f"{name}: interrupted\n".encode())
        os._exit(130)

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it may be ignored
    if usual:
        signal.signal(signal.SIGINT, end)
    main = import_module(module).main
    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
