"""Runs other programs than agents on the boards of a laboratory, within the agents' bounds.

On a CPU board the quota holds for the whole program, on an accelerator board for its main thread,
which computes; its other threads are outside, as an agent's are.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.lab import plans
from benchmarks.lab.lab import Lab
from benchmarks.lab.layout import INTERFACE
from benchmarks.lab.shell import perform
from benchmarks.programs import Program

ROOT = Path(__file__).parents[2]
UNBOUNDED_CORES = 4.0
"""While programs start; the quota holds once they are ready."""


@contextlib.contextmanager
def programs(
    lab: Lab,
    commands: Mapping[str, tuple[str, ...]],
    host: Mapping[str, tuple[str, ...]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Program]]:
    """Start a program on each board named and, in `host`, some on this machine.

    All must say `ready`; quotas hold from then on. They end with the context. In values of
    `environment`, `{interface}` is the network interface of the board or machine. Raises
    `RunFailedError` if one ends early.
    """
    started: dict[str, Program] = {}
    with contextlib.ExitStack() as stack:
        for name in commands:
            lab.starve(name, UNBOUNDED_CORES)
        for name, argv in {**(host or {}), **commands}.items():
            interface = INTERFACE if name in commands else lab.layout.host_interface
            given = {k: v.format(interface=interface) for k, v in (environment or {}).items()}
            options: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "cwd": ROOT,
                "env": {**os.environ, **given},
            }
            if name in commands:
                process = lab.popen(name, argv, **options)
            else:
                process = subprocess.Popen(argv, text=True, **options)
            started[name] = Program(process, f"{argv[2]} on {name}")
            stack.callback(started[name].kill)
        for program in started.values():
            program.ready()
        for name in commands:
            perform(plans.settle(lab.layout, lab.place(name), started[name].pid))
        yield started
