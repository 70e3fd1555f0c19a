"""The memory of an agent and its engine, and the memory that devices have for a network.

The constants were measured with ONNX Runtime 1.31 (CPU) on x86-64 (AMD EPYC), Python 3.11, glibc
2.36, in a process that has imported what an agent imports. Program pages count only where their
code runs. More of them are resident (23 to 36 MB), but those are clean, and the kernel drops them
where memory is short (decision 004). Other engines and processors differ; engines declare their own
(`partition.devices.EngineOverhead`), and an agent reports its idle memory, without program code,
when a launcher greets it (`Welcome.rss_bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from cnn.network import Layer, Network
from partition.devices import ONNX_RUNTIME, Device, EngineOverhead
from partition.pricing.traffic import Floats

IDLE_AGENT_BYTES = ONNX_RUNTIME.idle_bytes
"""Memory of an agent with its engine imported and nothing loaded: 30 MB, and the code that an idle
agent runs."""

PREPARING_BYTES = 24_000_000
"""Memory of the process that prepares subnets, without its code and without weights."""

START_UP_BYTES = 54_000_000
"""Memory that a node needs for a moment before its first subnet is loaded: the agent (30 MB) and
that process, both without code."""

FIRST_SESSION_BYTES = 8_500_000
"""Memory that computing and rehearsing a first subnet adds: tables and arena (4.5 MB), and the code
that runs."""

CODE_BYTES = 8_000_000
"""The program code in `IDLE_AGENT_BYTES` and `FIRST_SESSION_BYTES`; agents do not measure it."""

LAYER_BYTES = ONNX_RUNTIME.layer_bytes
"""Memory of each layer: its kernel, its node in the graph, names and shapes. Measured over twelve
networks of 10 to 662 layers, which take 1.6 MB and 6.8 kB per layer once they are loaded."""

PACKED = frozenset({"Gemm", "MatMul", "LSTM", "GRU", "RNN", "ConvTranspose"})
"""Operators whose weights ONNX Runtime packs while it loads a subnet."""

PRODUCTS = frozenset({"Gemm", "MatMul"})
"""The matrix products among `PACKED`: packed unless the results of all products of a subnet have
one row and nothing else of it is packed (`nodes.executors.onnx.packing`)."""

QUANTISED = frozenset({"int8", "uint8"})


def engine_bytes(phases: int, layers: int = 0, engine: EngineOverhead = ONNX_RUNTIME) -> int:
    """Return the memory of an agent that has loaded `phases` subnets of `layers` layers in all,
    without their tensors, in bytes."""
    if phases == 0:
        return engine.idle_bytes
    sessions = FIRST_SESSION_BYTES + engine.subnet_bytes * phases
    return engine.idle_bytes + sessions + engine.layer_bytes * layers


def engines_bytes(devices: Sequence[Device], phases: Floats) -> Floats:
    """Return `engine_bytes` for `phases` of each device, without layers: [devices, …]."""
    idle, subnet = (
        np.array([getattr(device.engine_overhead, key) for device in devices], dtype=np.float64)
        for key in ("idle_bytes", "subnet_bytes")
    )
    loaded = FIRST_SESSION_BYTES + (phases.T * subnet).T
    return np.asarray((np.where(phases > 0, loaded, 0.0).T + idle).T)


def least_engine_bytes(devices: Sequence[Device]) -> int:
    """Return the least memory of an engine with one subnet on any of `devices`."""
    return min(engine_bytes(1, engine=device.engine_overhead) for device in devices)


def packing_bytes(network: Network, names: Sequence[str]) -> int:
    """Return twice the bytes of the largest weight in these layers that an engine packs: the
    original and its packed copy."""
    packed = [layer for name in names if (layer := network.layer[name]).operator in PACKED]
    if all(layer.operator in PRODUCTS and _rows(network, layer) == 1 for layer in packed):
        return 0
    weights = (name for layer in packed for name in layer.weights)
    return 2 * max((network.weights[name].bytes for name in weights), default=0)


def _rows(network: Network, product: Layer) -> int:
    return math.prod(network.tensors[product.outputs[0]].shape[:-1])


def quantised_bytes(network: Network, names: Collection[str]) -> int:
    """Return the bytes of the quantised weights of these layers."""
    weights = {weight for name in names for weight in network.layer[name].weights}
    found = (network.weights[weight] for weight in weights)
    return sum(tensor.bytes for tensor in found if tensor.dtype in QUANTISED)


def room_bytes(devices: Sequence[Device]) -> Floats:
    """Return each device's memory limit in bytes: float64 [devices].

    A device without a limit counts as one with the largest limit of all; where none has a limit,
    each has room for one byte, so that shares of the room are bytes.

    >>> room_bytes([Device("a", memory_bytes=2_000), Device("b"), Device("c", 1_000)])
    array([2000., 2000., 1000.])
    """
    limits = [device.memory_bytes for device in devices]
    largest = max((limit for limit in limits if limit is not None), default=1)
    return np.array([largest if limit is None else limit for limit in limits], dtype=np.float64)


def allowed_bytes(devices: Sequence[Device]) -> int:
    """Return the sum of the devices' memory limits; 0 if there are none."""
    return sum(device.memory_bytes or 0 for device in devices)


def fair_memory(devices: Sequence[Device]) -> Floats:
    """Return each device's room without its engine, relative to the mean: float64 [devices].

    >>> fair_memory([Device("a"), Device("b")])
    array([1., 1.])
    """
    limits = room_bytes(devices)
    room = np.maximum(limits - engines_bytes(devices, np.ones(len(limits))), limits.max() / 100)
    return np.asarray(room / room.mean())
