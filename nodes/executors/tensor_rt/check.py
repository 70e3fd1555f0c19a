"""Builds TensorRT engines from subnets on a machine that need not have a GPU, and runs none.

`python -m nodes.executors.tensor_rt.check FOLDER [GRAPH…]` builds an engine from each ONNX file
GRAPH with TensorRT-RTX, in order, for GPUs of compute capability 8.6, and leaves it in FOLDER. It
prints a JSON line for the library, and then one for each engine:

    {"library": "TensorRT-RTX 1.7.1.116", "compute_capability": "8.6"}
    {"graph": "…/a3f0", "seconds": 0.4, "engine_bytes": 711348}

The first engine's seconds include the start of the process that builds. The line {"failed": "…"}
names a file from which no engine can be built; nothing follows it.

A subnet that passes has layers, dtypes and shapes that TensorRT-RTX's parser and builder take. That
says nothing about results or speed, and kernels are compiled only on the GPU. TensorRT on a Jetson
is another product and version, which may refuse more or less.

Exit code 0: an engine is built from every file. 2: one sentence on standard error says which subnet
and layer TensorRT-RTX cannot build, or that it is not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.cuda import Gpu
from nodes.executors.preparing.entries import PreparedFiles
from nodes.executors.tensor_rt.engine_cache import EngineCache
from nodes.executors.tensor_rt.library import import_tensorrt_rtx

GPU = Gpu("a GPU of another machine", (8, 6))
"""The capability is that of most RTX cards, and the next to a Jetson Orin's (8.7)."""


_OPTIONS = LoadOptions()


def check(folder: Path, graphs: Sequence[Path]) -> None:
    """Build an engine from each graph, and print the lines that the module's docstring describes.

    Raises ExecutorError for the first graph from which none can be built.
    """
    library = import_tensorrt_rtx()
    engines = EngineCache(library, GPU, PreparedFiles(folder))
    _print({"library": library.label, "compute_capability": ".".join(map(str, GPU.capability))})
    waiting = deque(graphs)
    try:
        while waiting:
            engines.job(waiting[0], _OPTIONS)
            waiting.popleft()
        waiting.extend(graphs)
        began_s = time.perf_counter()

        def print_built(graph: Path) -> None:
            nonlocal began_s
            waiting.popleft()
            path = engines.find(engines.job(graph, _OPTIONS))
            size_bytes = path.stat().st_size if path else 0
            now_s = time.perf_counter()
            _print({"graph": str(graph), "seconds": now_s - began_s, "engine_bytes": size_bytes})
            began_s = now_s

        engines.prepare(graphs, _OPTIONS, print_built)
    except ExecutorError:
        _print({"failed": str(waiting[0])})
        raise


def _print(line: dict[str, object]) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nodes.executors.tensor_rt.check",
        description=(__doc__ or "")[:80],
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("graphs", type=Path, nargs="*")
    given = parser.parse_args(arguments)
    try:
        check(given.folder, given.graphs)
    except (ExecutorError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
