"""Computes what the halo of fused bands costs: `python -m benchmarks.tiles [NETWORK …] [--time]`.

For each place where the strategy `tiles` may stop, the share of multiply-accumulates that 2 to 10
equal bands of rows add to the layers up to there. These are counts, the same on every machine.

With `--time`, the layers up to the middle one of these places are also run, whole and as bands, in
plain ONNX Runtime on one thread, in turn: the medians of what all bands take together and of what
the slowest band takes, relative to the whole.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

import cnn
from benchmarks.agreement import KERAS, random_frame, short_name
from cnn.errors import ModelError
from cnn.rewrite.rewrites import Bands, apportion, part_name
from partition.devices import Device
from partition.strategies.base import Problem
from partition.strategies.rows.tilings import Tilings

NETWORKS = ("builtin:yolov2", str(KERAS / "VGG16.onnx"), "onnx-wheel:resnet50")
COUNTS = range(2, 11)
ROUNDS = 9

Run = Callable[[], object]


def first_layers(model: cnn.Model) -> list[tuple[str, ...]]:
    """The layers up to each place where tiles may stop."""
    devices = (Device("a"), Device("b"))
    names = [layer.name for layer in model.network.layers]
    found = Tilings(Problem(model.network, devices, model=model), model)
    return [tuple(names[found.start : stop]) for stop in found.stops]


def halo_shares(model: cnn.Model, layers: Sequence[str]) -> dict[int, float]:
    """Number of equal bands → added multiply-accumulates, relative to the whole's."""
    fused = model.fused(layers)
    return {
        count: fused.bands(equal_rows(fused.height, count)).halo_share
        for count in COUNTS
        if count <= fused.height
    }


def equal_rows(height: int, count: int) -> list[int]:
    return apportion(height, [1.0] * count)


def timed(model: cnn.Model, layers: Sequence[str], count: int) -> tuple[float, float]:
    """(all bands together, the slowest band), relative to the whole: medians in turn."""
    fused = model.fused(layers)
    banded = model.rewritten([Bands(tuple(layers), tuple(equal_rows(fused.height, count)))])
    frame = random_frame(model.network, seed=0)
    with tempfile.TemporaryDirectory() as scratch:
        runs = [_run(model, layers, fused.output, frame, Path(scratch))]
        for number in range(1, count + 1):
            own = [part_name(name, number, count) for name in layers]
            own = [name for name in own if name in banded.network.layer]
            read = banded.network.layer[own[0]].inputs
            own += [banded.network.producer[name] for name in read if name not in frame]
            made = part_name(fused.output, number, count)
            runs.append(_run(banded, own, made, frame, Path(scratch)))
        seconds: list[list[float]] = [[] for _ in runs]
        for _ in range(ROUNDS):
            for run, found in zip(runs, seconds, strict=True):
                start = time.perf_counter()
                run()
                found.append(time.perf_counter() - start)
    whole, *bands = (statistics.median(found) for found in seconds)
    return sum(bands) / whole, max(bands) / whole


def _run(
    model: cnn.Model, layers: Sequence[str], made: str, frame: dict[str, np.ndarray], folder: Path
) -> Run:
    subnet = model.cut(layers, model.network.inputs, [made], folder)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(str(subnet.graph), options, providers=["CPUExecutionProvider"])
    return lambda: session.run([made], frame)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 2 for a network that cannot be read."""
    parser = argparse.ArgumentParser(prog="benchmarks.tiles", description=__doc__)
    parser.add_argument("networks", nargs="*", help="YOLOv2, VGG16 and ResNet50 if none")
    parser.add_argument("--time", action="store_true", help="run whole and bands as well")
    chosen = parser.parse_args(arguments)
    for path in chosen.networks or NETWORKS:
        try:
            model = cnn.read(path)
        except ModelError as error:
            parser.error(str(error))
        stops = first_layers(model)
        print(f"{short_name(path)}: multiply-accumulates that the halo adds, by number of bands")
        print(f"{'layers':>6} {'to':<24}{'rows':>5}" + "".join(f"{n:>7}" for n in COUNTS))
        for layers in stops:
            shares = halo_shares(model, layers)
            height = model.fused(layers).height
            cells = (f"{shares[n]:>7.1%}" if n in shares else "      –" for n in COUNTS)
            print(f"{len(layers):>6} {layers[-1][-23:]:<24}{height:>5}" + "".join(cells))
        if chosen.time and stops:
            _print_times(model, stops[len(stops) // 2])
        print()
    return 0


def _print_times(model: cnn.Model, layers: Sequence[str]) -> None:
    print(f"to {layers[-1]}, run: all bands together and the slowest, relative to the whole")
    for count in (2, 4, 8):
        total, slowest = timed(model, layers, count)
        print(f"{count:>6} bands {total:>7.2f} {slowest:>7.2f} (1/{count} = {1 / count:.2f})")


if __name__ == "__main__":
    raise SystemExit(main())
