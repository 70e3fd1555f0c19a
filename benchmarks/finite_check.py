"""Times the checks for NaN and infinity: `python -m benchmarks.finite_check`.

`check: results` examines each final result, `check: phases` every output of a phase. The benchmark
reports microseconds per tensor of some sizes and, as the worst case of phases, the time for the
outputs of all layers of ResNet50 (every layer a phase) and of a frame of the whole network in ONNX
Runtime with one thread. Both are measured in alternation; the figures are medians.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime as ort

from benchmarks.report import Figure, print_json, report
from cnn.model import read
from nodes.protocol.payload import is_finite

SIZES = (1000, 200_000, 802_816)
"""Numbers (float32) in a tensor: a classifier's result, a small and a large one between layers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    sizes = {}
    for size in SIZES:
        tensor = random.standard_normal(size, np.float32)
        looks = [seconds(functools.partial(is_finite, tensor)) for _ in range(200)]
        sizes[size] = looks
    with tempfile.TemporaryDirectory(prefix="csdf-finite-") as name:
        model = read("onnx-wheel:resnet50")
        network = model.network
        made = [network.tensors[o] for layer in network.layers for o in layer.outputs]
        tensors = [random.standard_normal(t.shape, np.float32) for t in made]
        chosen = ort.SessionOptions()
        chosen.log_severity_level = 4
        chosen.intra_op_num_threads = 1
        session = ort.InferenceSession(
            str(model.write_original(Path(name))), chosen, providers=["CPUExecutionProvider"]
        )
        frame = {i.name: random.standard_normal(i.shape, np.float32) for i in session.get_inputs()}
        checks, runs = [], []
        for _ in range(options.rounds):
            checks.append(seconds(lambda: [is_finite(tensor) for tensor in tensors]))
            runs.append(seconds(lambda: session.run(None, frame)))
    shares = [check / run for check, run in zip(checks, runs, strict=True)]
    figures = [
        *(_figure(f"a tensor of {n / 250:.0f} kB", s, "µs", 1e6) for n, s in sizes.items()),
        _figure("the outputs of all layers of ResNet50", checks, "ms", 1e3),
        _figure("the same, of the time of a frame", shares, "", 1.0),
    ]
    if options.json:
        title = "Looking for NaN and infinity"
        notes = [
            "`check: results`, the default, looks at final results only; all layers of a network "
            "are the worst that `check: phases` can be. The check and a frame take turns."
        ]
        settings = {"rounds": options.rounds}
        print_json(report("finite_check", title, figures, settings=settings, notes=notes))
    else:
        for one in figures:
            print(f"{one.what}: {one.measured} {one.unit}")
    return 0


def _figure(what: str, values: list[float], unit: str, scale: float) -> Figure:
    low, middle, high = (
        round(scale * value, 4) for value in (min(values), median(values), max(values))
    )
    return Figure(what, middle, unit, low=low, high=high)


def seconds(what: Callable[[], object]) -> float:
    """How long it takes once."""
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
