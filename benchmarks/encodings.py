"""Measures what encodings of tensors between nodes cost, save and change:

    python -m benchmarks.encodings [--devices 8] [--repetitions 5] [--json] [NET …]

Every network is cut into equal numbers of consecutive layers. Its phases are run one after the
other, and each tensor between two of them is encoded and decoded as agents do it. Measured are the
share of bytes that is left, the seconds per raw byte of encoding and of decoding (the median over
all tensors of the least of several repetitions), and the largest difference of the results from
those without encodings, relative to their largest value. The constants of `partition.wire` come
from it. Networks of random weights stand for trained ones: half of what enters a ReLU is negative.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime as ort

import cnn
from benchmarks.report import Figure, Table, print_figures, report
from benchmarks.segmentation import MODELS
from csdf.conversion.from_network import HOST, SOURCE, Dataflow, convert
from nodes.execution.encoding import AVAILABLE, decode, encode
from nodes.protocol.encodings import Encoding
from nodes.protocol.messages import ChannelSpec
from partition.wire import COSTS

NETWORKS = (
    "onnx-wheel:resnet50",
    *(str(MODELS / f"{name}.onnx") for name in ("MobileNetV2", "InceptionV3", "DenseNet121")),
    str(MODELS / "VGG16.onnx"),
)

Array = np.ndarray


@dataclass
class Found:
    """Of one encoding on one network: seconds per raw byte and sizes of every tensor."""

    encode_s: list[float] = field(default_factory=list)
    decode_s: list[float] = field(default_factory=list)
    raw_bytes: int = 0
    encoded_bytes: int = 0
    deviation: float = 0.0


class Chain:
    """The phases of a dataflow, run one after the other."""

    def __init__(self, model: cnn.Model, dataflow: Dataflow, place: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._dataflow = dataflow
        self._sessions = {}
        for phase in dataflow.phases:
            cut = model.cut(phase.layers, phase.inputs, phase.outputs, place)
            self._sessions[phase.name] = ort.InferenceSession(
                cut.graph, options, providers=["CPUExecutionProvider"]
            )

    def run(
        self, inputs: Mapping[str, Array], carried: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """Return the results where `carried` takes every tensor to another device."""
        here: dict[tuple[str, str], Array] = {}
        results: dict[str, Array] = {}
        flows = self._dataflow.flows
        for flow in flows:
            if flow.source == SOURCE:
                here |= {(to, flow.tensor.name): inputs[flow.tensor.name] for to in flow.targets}
        for phase in self._dataflow.phases:
            given = {name: here.pop((phase.name, name)) for name in phase.inputs}
            made = self._sessions[phase.name].run(list(phase.outputs), given)
            outputs = dict(zip(phase.outputs, made, strict=True))
            for flow in flows:
                if flow.source != phase.name:
                    continue
                array = outputs[flow.tensor.name]
                if flow.target_device == HOST:
                    results[flow.tensor.name] = array
                    continue
                if not flow.is_local:
                    array = carried(array)
                here |= {(to, flow.tensor.name): array for to in flow.targets}
        return results


def measure(name: str, devices: int, repetitions: int, seed: int) -> dict[Encoding, Found]:
    """Return what every encoding does to a network on so many devices."""
    model = cnn.read(name)
    layers = [layer.name for layer in model.network.layers]
    assignment = {
        layer: f"d{number * devices // len(layers)}" for number, layer in enumerate(layers)
    }
    random = np.random.default_rng(seed)
    inputs = {
        each: random.normal(size=model.network.tensors[each].shape).astype(np.float32)
        for each in model.network.inputs
    }
    with tempfile.TemporaryDirectory() as place:
        chain = Chain(model, convert(model.network, assignment), Path(place))
        wanted = chain.run(inputs, lambda array: array)
        found = {}
        for encoding in AVAILABLE:
            if encoding != "raw":
                own = found[encoding] = Found()
                results = chain.run(inputs, _Carrier(encoding, own, repetitions))
                own.deviation = max(_deviation(results[each], wanted[each]) for each in wanted)
    return found


class _Carrier:
    """Encodes and decodes a tensor, and notes what that takes."""

    def __init__(self, encoding: Encoding, found: Found, repetitions: int) -> None:
        self._encoding: Encoding = encoding
        self._found = found
        self._repetitions = repetitions

    def __call__(self, array: Array) -> Array:
        if array.dtype != np.float32:
            return array
        spec = ChannelSpec(
            0, "t", "float32", array.shape, "a", 0, "b", (0,), 1, encoding=self._encoding
        )
        found = self._found
        payload, encode_s = self._timed(lambda: encode(array, self._encoding))
        decoded, decode_s = self._timed(lambda: decode(payload, spec))
        found.encode_s.append(encode_s / array.nbytes)
        found.decode_s.append(decode_s / array.nbytes)
        found.raw_bytes += array.nbytes
        found.encoded_bytes += payload.nbytes
        return np.asarray(decoded)

    def _timed(self, step: Callable[[], object]) -> tuple[object, float]:
        least_s = float("inf")
        for _ in range(self._repetitions):
            began_s = time.perf_counter()
            made = step()
            least_s = min(least_s, time.perf_counter() - began_s)
        return made, least_s


def _deviation(found: Array, wanted: Array) -> float:
    largest = max(float(np.abs(wanted).max()), 1e-3)
    return float(np.abs(found.astype(np.float64) - wanted).max()) / largest


def table(measured: Mapping[str, Mapping[Encoding, Found]]) -> Table:
    """A row per network and encoding."""
    columns = (
        "network", "encoding", "bytes left", "encoding, ns/byte", "decoding, ns/byte", "deviation",
    )  # fmt: skip
    rows = [
        (
            Path(name).stem,
            encoding,
            f"{own.encoded_bytes / own.raw_bytes:.0%}",
            f"{statistics.median(own.encode_s) * 1e9:.2f}",
            f"{statistics.median(own.decode_s) * 1e9:.2f}",
            f"{own.deviation:.1e}",
        )
        for name, found in measured.items()
        for encoding, own in found.items()
    ]
    return Table("Tensors between nodes, by encoding", columns, tuple(rows))


def figures(measured: Mapping[str, Mapping[Encoding, Found]]) -> list[Figure]:
    """The largest deviation of every encoding, which must be what the planner expects at most."""
    return [
        Figure(
            f"{encoding}: largest deviation",
            max(found[encoding].deviation for found in measured.values()),
            at_most=COSTS[encoding].deviation,
        )
        for encoding in AVAILABLE
        if encoding != "raw"
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NET")
    parser.add_argument("--devices", type=int, default=8, help="parts of each network")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the frame")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args(arguments)
    measured = {
        name: measure(name, options.devices, options.repetitions, options.seed)
        for name in options.networks or NETWORKS
    }
    listed, rows = figures(measured), table(measured)
    settings = {"parts of a network": options.devices, "repetitions": options.repetitions}
    data = report(
        "encodings", "Encodings of tensors between nodes", listed, settings=settings, tables=[rows]
    )
    if not options.json:
        for row in rows.rows:
            print("  ".join(row))
    return print_figures(data, listed, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
