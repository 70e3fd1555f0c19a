"""Runs replicas of the whole model at the same time, one in each board's slice."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.lab.lab import Lab
from benchmarks.lab.replica import load
from benchmarks.lab.shell import LabError


class Replicas:
    """One replica per board; they are idle but in `run`."""

    def __init__(self, processes: Mapping[str, subprocess.Popen[str]]) -> None:
        self._processes = processes

    @property
    def processes(self) -> frozenset[int]:
        """Their process ids."""
        return frozenset(process.pid for process in self._processes.values())

    def run(self, seconds: float) -> dict[str, float]:
        """Board → frames per second, all computing at once for so long."""
        for process in self._processes.values():
            _tell(process, f"{seconds}\n")
        found = {}
        for device, process in self._processes.items():
            answer = json.loads(_hear(device, process))
            found[device] = answer["frames"] / answer["seconds"]
        return found


@contextlib.contextmanager
def replicas(lab: Lab, graph: Path, folder: Path) -> Iterator[Replicas]:
    """Start them and wait until all are ready; they end with the context.

    The model is optimised once, in `folder`, outside of the slices; each board has a copy of that,
    because boards share no memory. Raises `LabError` if one ends early.
    """
    load(graph, folder).close()
    with contextlib.ExitStack() as stack:
        started = {}
        for device, place in lab.layout.places.items():
            cache = place.folder / "replica"
            shutil.copytree(folder, cache)
            argv = (sys.executable, "-m", "benchmarks.lab.replica", str(graph), str(cache))
            started[device] = process = lab.popen(
                device, argv, compute=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                stack.callback(pipe.close)
        for device, process in started.items():
            _hear(device, process)
        yield Replicas(started)


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def _hear(device: str, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise LabError(f"the replica on {device!r} has ended with {process.wait()}")
    return line
