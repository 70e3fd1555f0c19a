"""Loads subnets with one engine, in a process of its own, and computes frames on request.

    python -m benchmarks.engines.child ENGINE FOLDER GRAPH …

It imports what an agent imports, loads the subnets with one thread, computes some frames and prints
a line of JSON: how long loading took and what memory it has, idle, at its peak and now, or the
sentence with which the engine refused. Then it imports more, and writes the outputs of each subnet
for one frame of its own to FOLDER/ENGINE.npz. For each number of seconds on standard input, it
computes for that long and prints the median time and processor time of a frame, for which all
subnets run in turn. It ends when its standard input is closed.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import nodes.cli  # noqa: F401 - what an agent imports
from nodes.executors.base import Array, ExecutorError, LoadedSubnet, LoadOptions
from nodes.executors.registry import open_executor
from nodes.executors.synthetic_inputs import synthetic_input
from nodes.host.usage import usage

WARM_UP = 3
"""Frames before memory is measured."""


def main() -> None:
    engine, folder, graphs = sys.argv[1], Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]]
    try:
        executor = open_executor(engine, folder / "cache")
        idle = usage()
        executor.prepare(graphs, LoadOptions())
        began_s = time.perf_counter()
        subnets = [executor.load(graph, LoadOptions()) for graph in graphs]
        load_s = time.perf_counter() - began_s
        for _ in range(WARM_UP):
            for subnet in subnets:
                specs = subnet.inputs.items()
                subnet.run({name: synthetic_input(spec.dtype, spec.shape) for name, spec in specs})
    except ExecutorError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        return
    now = usage()
    loaded = {
        "load_s": load_s,
        "idle": idle.rss_bytes,
        "peak": now.rss_peak_bytes,
        "anonymous": now.anonymous_bytes,
        "rss": now.rss_bytes,
    }
    print(json.dumps(loaded), flush=True)
    from benchmarks.lab.replica import frame  # noqa: PLC0415 - it takes memory

    inputs = [frame(subnet) for subnet in subnets]
    outputs = [subnet.run(own) for subnet, own in zip(subnets, inputs, strict=True)]
    np.savez(folder / f"{engine}.npz", *(array for each in outputs for array in each.values()))
    for line in sys.stdin:
        print(json.dumps(timed(subnets, inputs, float(line))), flush=True)


def timed(
    subnets: Sequence[LoadedSubnet], inputs: Sequence[dict[str, Array]], seconds: float
) -> list[float]:
    """Compute frames for so long; the median time and processor time of one, in seconds."""
    walls, cpus, until_s = [], [], time.perf_counter() + seconds
    while not walls or time.perf_counter() < until_s:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for subnet, own in zip(subnets, inputs, strict=True):
            subnet.run(own)
        walls.append(time.perf_counter() - began_s)
        cpus.append(time.process_time() - began_cpu_s)
    return [statistics.median(walls), statistics.median(cpus)]


if __name__ == "__main__":
    main()
