"""Runs replicas of the whole model at the same time, one in each board's slice."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.lab.lab import Lab
from benchmarks.lab.programs import programs
from benchmarks.lab.replica import load
from benchmarks.programs import Program


class Replicas:
    """One replica per board; they are idle but in `run`."""

    def __init__(self, started: Mapping[str, Program]) -> None:
        self._programs = started

    @property
    def processes(self) -> frozenset[int]:
        """Their process ids."""
        return frozenset(program.pid for program in self._programs.values())

    def run(self, seconds: float) -> dict[str, float]:
        """Board → frames per second, all computing at once for so long."""
        for program in self._programs.values():
            program.tell(str(seconds))
        found = {}
        for device, program in self._programs.items():
            answer = json.loads(program.hear())
            found[device] = answer["frames"] / answer["seconds"]
        return found


@contextlib.contextmanager
def replicas(lab: Lab, graph: Path, folder: Path) -> Iterator[Replicas]:
    """Start them and wait until all are ready; they end with the context.

    The model is optimised once, in `folder`, outside of the slices; each board has a copy of that,
    because boards share no memory. Raises `RunFailedError` if one ends early.
    """
    load(graph, folder).close()
    commands = {}
    for device, place in lab.layout.places.items():
        cache = place.folder / "replica"
        shutil.copytree(folder, cache)
        program = (sys.executable, "-m", "benchmarks.lab.replica")
        commands[device] = (*program, str(graph), str(cache))
    with programs(lab, commands) as started:
        yield Replicas(started)
