"""Compares quantised networks with the floats that they come from, cut at the same tensors:

    python -m benchmarks.quantised [--devices 3] [--turns 10] [--json] [FILE …]

Each network, a small residual one if no file is named, is quantised by ONNX Runtime's quantizer and
calibrated on random frames. The float network is cut into equal numbers of consecutive layers. Each
quantised form is cut where that is, and its parts are run one after the other by ONNX Runtime on
one thread. Reported are what crosses between devices, the largest difference of the results from
the whole file's (relative to their largest value), and the processor time of the parts beside that
of the whole file.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import cnn
from benchmarks.agreement import random_frame, relative_error
from benchmarks.report import Figure, print_figures, report
from csdf.conversion.from_network import HOST, convert
from tests.launcher import kinds

FORMS: Mapping[str, tuple[QuantFormat, QuantType]] = {
    "QDQ": (QuantFormat.QDQ, QuantType.QUInt8),
    "QOperator": (QuantFormat.QOperator, QuantType.QUInt8),
    "QDQ, activations in int8": (QuantFormat.QDQ, QuantType.QInt8),
}
"""The last is what the quantizer writes by default."""

Frame = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Measured:
    """One form of a network: bytes per frame between devices, largest difference, seconds."""

    crossing_bytes: int
    deviation: float
    whole_s: float
    parts_s: float


class _Frames(CalibrationDataReader):
    def __init__(self, frames: list[Frame]) -> None:
        self._left = iter(frames)

    def get_next(self) -> Frame | None:
        return next(self._left, None)


def quantised(source: Path, form: str, folder: Path) -> Path:
    """Write a form of the network `source`; its layers keep their names, but for an ending."""
    layout, activations = FORMS[form]
    network = cnn.read(source).network
    path = folder / f"{layout.name}-{activations.name}.onnx"
    quantize_static(
        str(source),
        str(path),
        _Frames([random_frame(network, seed) for seed in range(1, 5)]),
        quant_format=layout,
        activation_type=activations,
        weight_type=QuantType.QInt8,
    )
    return path


def contiguous(network: cnn.Network, devices: int) -> dict[str, str]:
    """Equal numbers of consecutive layers on each device."""
    count = len(network.layers)
    return {layer.name: f"d{devices * n // count}" for n, layer in enumerate(network.layers)}


def cut_alike(network: cnn.Network, floats: Mapping[str, str]) -> dict[str, str]:
    """Each layer where the float layer of its name is; quantisers where what they read is made."""
    first = floats[next(iter(floats))]
    found: dict[str, str] = {}
    for layer in network.layers:
        makers = [found[network.producer[x]] for x in layer.inputs if x in network.producer]
        name = layer.name.removesuffix("_quant")
        found[layer.name] = floats.get(name, makers[0] if makers else first)
    return found


def measure(path: Path, place: Callable[[cnn.Network], dict[str, str]], turns: int) -> Measured:
    """Measure one file, cut as `place` says."""
    model = cnn.read(path)
    network, fed = model.network, random_frame(model.network, seed=0)
    dataflow = convert(network, place(network))
    sent = [x for x in dataflow.flows if not x.is_local]
    between = [x for x in sent if HOST not in (x.source_device, x.target_device)]
    whole = _session(path)
    with tempfile.TemporaryDirectory(prefix="quantised-") as folder:
        cuts = [model.cut(x.layers, x.inputs, x.outputs, Path(folder)) for x in dataflow.phases]
        sessions = [_session(each.graph) for each in cuts]

    def parts() -> dict[str, np.ndarray]:
        held = dict(fed)
        for phase, session in zip(dataflow.phases, sessions, strict=True):
            made = session.run(list(phase.outputs), {name: held[name] for name in phase.inputs})
            held.update(zip(phase.outputs, made, strict=True))
        return held

    expected = dict(zip(network.outputs, whole.run(list(network.outputs), fed), strict=True))
    found = parts()
    return Measured(
        sum(x.tensor.bytes for x in between if x.tensor.name not in network.inputs),
        max(relative_error(found[name], expected[name]) for name in network.outputs),
        *_seconds((lambda: whole.run(None, fed), parts), turns),
    )


def figures(name: str, source: Path, devices: int, turns: int, folder: Path) -> list[Figure]:
    """Compare all forms of one network with its floats."""
    network = cnn.read(source).network
    floats = contiguous(network, devices)
    single = measure(source, lambda _: floats, turns)
    found = [
        Figure(f"{name}, floats: between devices", single.crossing_bytes, "bytes per frame"),
        Figure(f"{name}, floats: whole", round(single.whole_s * 1e3, 3), "ms"),
    ]
    for form in FORMS:
        path = quantised(source, form, folder)
        own = measure(path, lambda found: cut_alike(found, floats), turns)
        share = own.crossing_bytes / single.crossing_bytes
        exact = 0.0 if "int8" not in form else None
        found += [
            Figure(f"{name}, {form}: bytes ÷ floats'", round(share, 4), "×", at_most=0.25),
            Figure(f"{name}, {form}: largest difference", own.deviation, at_most=exact),
            Figure(f"{name}, {form}: whole", round(own.whole_s * 1e3, 3), "ms"),
            Figure(f"{name}, {form}: parts ÷ whole", round(own.parts_s / own.whole_s, 3), "×"),
        ]
    return found


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=["Pad_Fusion"]
    )


def _seconds(ways: tuple[Callable[[], object], ...], turns: int) -> list[float]:
    """Median processor seconds of each way; they take turns."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(turns):
        for way, own in zip(ways, taken, strict=True):
            began_s = time.thread_time()
            way()
            own.append(time.thread_time() - began_s)
    return [statistics.median(own) for own in taken]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="float networks")
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="quantised-") as name:
        folder = Path(name)
        for file in options.files or [kinds.write(folder / "residual.onnx")]:
            prepared = folder / f"prepared-{file.name}"
            quant_pre_process(str(file), str(prepared), skip_symbolic_shape=True)
            found += figures(file.stem, prepared, options.devices, options.turns, folder)
    settings = {"devices": options.devices, "turns": options.turns}
    title = "Quantised networks, cut where their floats are"
    whole = report("quantised", title, found, settings=settings)
    return print_figures(whole, found, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
