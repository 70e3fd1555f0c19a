"""Runs the whole model on one board, for comparison with a pipeline over all boards.

    python -m benchmarks.lab.replica GRAPH CACHE

It loads the model as an agent does (same executor, same options), says `ready`, and then for every
number of seconds on standard input computes frames for that long and prints a line of JSON: frames,
seconds. In between it waits without using CPU. It ends when its standard input is closed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nodes.executors.base import LoadedSubnet, LoadOptions
from nodes.executors.registry import open_executor
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from cnn.model import Model

WARM_UP = 2
"""Runs before it is ready."""


def load(graph: Path, cache: Path) -> LoadedSubnet:
    """The model, as an agent with one thread loads it."""
    options = LoadOptions(threads=1)
    executor = open_executor("onnxruntime", cache)
    executor.prepare([graph], options)
    return executor.load(graph, options)


def frame(subnet: LoadedSubnet, seed: int = 0) -> dict[str, Array]:
    """The frame that every part of a comparison computes, or another."""
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal(spec.shape, dtype=np.float32).astype(spec.dtype, copy=False)
        for name, spec in subnet.inputs.items()
    }


@dataclass(frozen=True)
class Reference:
    """The whole network as one subnet, frames, and what the network makes of each."""

    graph: Path
    frames: tuple[Mapping[str, Array], ...]
    results: tuple[Mapping[str, Array], ...]


def reference(model: Model, folder: Path, count: int = 1) -> Reference:
    """Cut the whole network into `folder`, and compute `count` different frames."""
    network = model.network
    graph = model.cut(network.layer, network.inputs, network.outputs, folder / "whole").graph
    subnet = load(graph, folder / "cache")
    frames = tuple(frame(subnet, seed) for seed in range(count))
    results = tuple(dict(subnet.run(one)) for one in frames)
    subnet.close()
    return Reference(graph, frames, results)


def main() -> None:
    graph, cache = map(Path, sys.argv[1:])
    subnet = load(graph, cache)
    inputs = frame(subnet)
    for _ in range(WARM_UP):
        subnet.run(inputs)
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, began_s, frames = float(line), time.monotonic(), 0
        while time.monotonic() - began_s < seconds:
            subnet.run(inputs)
            frames += 1
        print(json.dumps({"frames": frames, "seconds": time.monotonic() - began_s}), flush=True)


if __name__ == "__main__":
    main()
