"""Loads subnets as an agent does, in a fresh process, and says what memory it reached.

The process reads its arguments as JSON from standard input and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def peak_bytes(graphs: Sequence[Path], cache: Path, *, rounds: int) -> int:
    """Return the peak of a process that loads all `graphs` and runs each `rounds` times, in bytes
    without the pages of programs and libraries."""
    arguments = {"graphs": list(map(str, graphs)), "cache": str(cache), "rounds": rounds}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.partition.loaded_memory"],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return int(json.loads(ran.stdout)["peak"])


def load(graphs: Sequence[str], cache: str, rounds: int) -> int:
    """Load and run in this process, which imports what an agent imports and nothing more."""
    import numpy as np  # noqa: PLC0415

    import nodes.cli  # noqa: F401, PLC0415
    from nodes.executors.base import LoadOptions  # noqa: PLC0415
    from nodes.executors.onnx.sessions import import_onnxruntime  # noqa: PLC0415
    from nodes.executors.registry import open_executor  # noqa: PLC0415
    from nodes.host.usage import usage  # noqa: PLC0415

    import_onnxruntime()
    executor = open_executor("onnxruntime", Path(cache))
    options = LoadOptions()
    executor.prepare([Path(graph) for graph in graphs], options)
    subnets = [executor.load(Path(graph), options) for graph in graphs]
    for _ in range(rounds):
        for subnet in subnets:
            subnet.run({name: np.zeros(x.shape, x.dtype) for name, x in subnet.inputs.items()})
    return usage().rss_peak_bytes


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"peak": load(**json.loads(sys.stdin.read()))}))
    sys.stdout.flush()
    os._exit(0)
