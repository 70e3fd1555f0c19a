"""Compares distributed runs with the whole model, phase by phase.

Layers are dealt out to devices at random, every phase's subnet is cut out and run by plain ONNX
Runtime in topological order, and every tensor that crosses from one phase to another, or leaves the
network, is compared with the same tensor of the *original* model, unsimplified and unoptimised. The
few tensors that simplification creates are compared with the simplified model run as a whole.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

import cnn
from cnn.reading.source import WHEEL, WHEEL_MODELS
from csdf.conversion.from_network import Dataflow, convert
from nodes.executors.onnx.faulty_optimizers import FAULTY_FOR_ALL

DEVICES = (2, 3, 5, 8)
LIMIT = 1e-4
KERAS = Path(__file__).parents[1] / "fixtures" / "models"
NETWORKS: tuple[str, ...] = (
    *(WHEEL + name for name in WHEEL_MODELS),
    *(str(path) for path in sorted(KERAS.glob("*.onnx"))),
    "builtin:yolov2",
)

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The largest relative errors of one network on `devices` devices.

    `outputs` is over the network's outputs, `crossing` over all `tensors` that cross between
    phases; `against_original` counts those of them that the original model has too.
    """

    network: str
    devices: int
    phases: int
    tensors: int
    against_original: int
    outputs: float
    crossing: float


def short_name(path: str) -> str:
    """The name of a network: Keras's with their suffix, to tell the two ResNet50 apart."""
    return Path(path).name.removeprefix(WHEEL)


def random_partition(network: cnn.Network, devices: int, seed: int) -> dict[str, str]:
    """Every layer on any device, each device with at least one layer where there are enough."""
    dealt = random.Random(seed)
    names = [layer.name for layer in network.layers]
    partition = {name: f"d{dealt.randrange(devices)}" for name in names}
    first = dealt.sample(names, min(devices, len(names)))
    return partition | {name: f"d{index}" for index, name in enumerate(first)}


def random_frame(network: cnn.Network, seed: int) -> dict[str, np.ndarray]:
    """Standard normal values for floating inputs, small non-negative ones for integers."""
    generator = np.random.default_rng(seed)
    frame = {}
    for name in network.inputs:
        tensor = network.tensors[name]
        dtype = np.dtype(tensor.dtype)
        if dtype.kind == "f":
            frame[name] = generator.standard_normal(tensor.shape, np.float32).astype(dtype)
        else:
            frame[name] = generator.integers(0, 2, tensor.shape).astype(dtype)
    return frame


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """max |found − expected| / max |expected|; infinite if shape, dtype or finiteness differ."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    wide, reference = found.astype(np.float64), expected.astype(np.float64)
    difference = float(np.abs(wide - reference).max(initial=0.0))
    if not np.isfinite(difference):
        return float("inf")
    scale = float(np.abs(reference).max(initial=0.0))
    return difference / scale if scale else (0.0 if difference == 0 else float("inf"))


def run(graph: Path, frame: Arrays, outputs: Sequence[str], *, optimised: bool = True) -> Arrays:
    """Run a model file once in ONNX Runtime on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        str(graph), options, providers=["CPUExecutionProvider"], disabled_optimizers=FAULTY_FOR_ALL
    )
    return dict(zip(outputs, session.run(list(outputs), dict(frame)), strict=True))


def whole_run(model: cnn.Model, frame: Arrays, wanted: Collection[str]) -> tuple[Arrays, set[str]]:
    """The wanted tensors of the whole model; and which of them are the original's own."""
    network = model.network
    with tempfile.TemporaryDirectory() as scratch:
        original = model.write_original(Path(scratch))
        proto = onnx.load(str(original), load_external_data=False)
        made = {name for node in proto.graph.node for name in node.output}
        own = sorted(set(wanted) & made)
        listed = {output.name for output in proto.graph.output}
        for name in own:
            if name not in listed:
                proto.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        extended = original.with_name("extended")
        extended.write_bytes(proto.SerializeToString())
        found = dict(run(extended, frame, own, optimised=False))
    rest = sorted(set(wanted) - made - set(network.inputs))
    if rest:
        with tempfile.TemporaryDirectory() as scratch:
            subnet = model.cut(network.layer, network.inputs, rest, Path(scratch))
            found.update(run(subnet.graph, frame, rest))
    return found, set(own)


def distributed_run(model: cnn.Model, dataflow: Dataflow, frame: Arrays) -> Iterator[Arrays]:
    """What each phase makes, phase by phase; only what is still to be read is kept."""
    readers: dict[str, int] = {}
    for phase in dataflow.phases:
        for name in phase.inputs:
            readers[name] = readers.get(name, 0) + 1
    held = dict(frame)
    for phase in dataflow.phases:
        with tempfile.TemporaryDirectory() as scratch:
            subnet = model.cut(phase.layers, phase.inputs, phase.outputs, Path(scratch))
            given = {name: held[name] for name in phase.inputs}
            made = run(subnet.graph, given, phase.outputs)
        for name in phase.inputs:
            readers[name] -= 1
            if readers[name] == 0:
                del held[name]
        held.update({name: array for name, array in made.items() if name in readers})
        yield made


def agreements(
    model: cnn.Model, partitions: Sequence[Mapping[str, str]], frame: Arrays
) -> list[Agreement]:
    """One `Agreement` per partition, all against one run of the whole model."""
    network = model.network
    dataflows = [convert(network, partition) for partition in partitions]
    wanted = {name for flow in dataflows for phase in flow.phases for name in phase.outputs}
    expected, own = whole_run(model, frame, wanted)
    found = []
    for dataflow in dataflows:
        errors: dict[str, float] = {}
        for made in distributed_run(model, dataflow, frame):
            errors |= {name: relative_error(x, expected[name]) for name, x in made.items()}
        found.append(
            Agreement(
                network=network.name,
                devices=len(dataflow.devices),
                phases=len(dataflow.phases),
                tensors=len(errors),
                against_original=len(own & errors.keys()),
                outputs=max(errors[name] for name in network.outputs),
                crossing=max(errors.values()),
            )
        )
    return found


def measure(path: str, devices: Sequence[int] = DEVICES) -> list[Agreement]:
    """Read one network and compare a random partition for each number of devices."""
    model = cnn.read(path)
    partitions = [random_partition(model.network, count, seed=count) for count in devices]
    return agreements(model, partitions, random_frame(model.network, seed=0))
