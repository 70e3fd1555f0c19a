"""Estimates of how long each layer takes on each device, until measured times replace them.

The estimate is a sum: multiply-accumulates / `macs_per_s` + bytes / `memory_bytes_per_s`. The bytes
are those of the tensors that the layer reads and makes, and twice those of its weights: weights
come from memory, tensors often from a cache. Arithmetic takes most of the time of ordinary
convolutions, bytes that of depthwise ones, and both count where weights are large and images small.
Layers that engines fuse with the layer before them (`fused_layers`) take no time. Cutting a region
out of a tensor touches that region only.

Layers between 8-bit tensors multiply integers, `INTEGER_SPEED` times as fast. An element of 8 bits
takes as long as one of 32 bits, because arithmetic and not bytes bound the time.

Where a board has measured itself (`Device.layer_rates`), the rates are measured: of
multiply-accumulates for each kind of layer and for 8-bit integers, of bytes of weights, and of
bytes of tensors. On the processor of decision 072 predicted ÷ measured is 0.94 to 1.10 for six of
seven networks, and the standard deviation over their stages 0.03 to 0.10.

Without that, measured with ONNX Runtime 1.31 on x86-64 with AVX-512: the standard deviation of
measured ÷ predicted over contiguous stages is 0.012 for ResNet50 (0.047 for the roofline of before,
the larger one of arithmetic with weights and of bytes), 0.023 for VGG19 (0.097) and DenseNet121
(0.038), 0.065 for SqueezeNet (0.030) and 0.084 for ShuffleNet (0.056).
`partition.prediction.timing.with_measured_phases` replaces the estimate by the measured times of a
plan's own subnets, and `slowed` scales it for devices that are slower than assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cnn.network import Layer, Network, Tensor
from partition.devices import Device, LayerRates, slower


def slowed(
    devices: tuple[Device, ...], layer_s: NDArray[np.float64] | None, factors: Mapping[str, float]
) -> tuple[tuple[Device, ...], NDArray[np.float64] | None]:
    """Return the devices, and their seconds of layers, as if each took its factor times as long.

    `factors` are by device name, 1 where none is given; `layer_s` [layers, devices] is None for
    estimates. See `partition.devices.slower`.
    """
    if not factors:
        return devices, layer_s
    found = tuple(slower(device, factors.get(device.name, 1.0)) for device in devices)
    if layer_s is None:
        return found, None
    return found, layer_s * np.array([factors.get(device.name, 1.0) for device in devices])


VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Dropout"})
"""Operators that engines carry out without touching their data."""

FUSED = frozenset(
    {"Relu", "Clip", "LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh"}
)
"""Operators that engines fuse with the convolution or the product whose result they read."""

FUSED_SUMS = frozenset({"Add", "Sum"})
"""The same for operators of two inputs, one of which was just computed."""

CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "FusedConv", "QLinearConv"})
PRODUCTS = frozenset(
    {"Gemm", "MatMul", "MatMulInteger", "QGemm", "QLinearMatMul", "FusedMatMul", "MatMulNBits"}
)

MACS_PER_ELEMENT: Mapping[str, float] = MappingProxyType({"LRN": 1300.0})
"""Operators that compute powers: one element takes as long as this many multiply-accumulates,
measured with ONNX Runtime on Inception v1."""


INTEGER_SPEED = 3.0
"""Multiply-accumulates of 8-bit integers in the time of one in single precision: 3.5 in ResNet18,
2.6 in SqueezeNet, 2.9 in YOLOv8n and 1.2 in MobileNetV3 small, measured with ONNX Runtime 1.31 on a
processor with VNNI. Processors without instructions for integer products gain less."""

EIGHT_BITS = frozenset({"int8", "uint8"})


def layer_seconds(network: Network, devices: Sequence[Device]) -> NDArray[np.float64]:
    """Estimate the seconds per frame of every layer on every device: float64 [layers, devices]."""
    work = layer_work(network)
    found = np.zeros((len(work), len(devices)))
    for number, device in enumerate(devices):
        found[:, number] = layer_parts(network, work, device).sum(axis=1)
    return found


def layer_parts(network: Network, work: NDArray[np.float64], device: Device) -> NDArray[np.float64]:
    """Return the seconds of every layer on a device for its arithmetic, its weights and the bytes
    that it touches: float64 [layers, 3]; `work` is that of `layer_work`."""
    rates = device.layer_rates
    if rates is None:
        per_byte = 1 / device.memory_bytes_per_s
        return np.asarray(work * np.array([1 / device.macs_per_s, per_byte, per_byte]))
    per_mac = np.array([_s_per_mac(network, layer, rates) for layer in network.layers])
    return np.column_stack(
        (
            work[:, 0] * per_mac,
            work[:, 1] * rates.weight_s_per_byte,
            (work[:, 2] - work[:, 1]) * rates.tensor_s_per_byte,
        )
    )


def _s_per_mac(network: Network, layer: Layer, rates: LayerRates) -> float:
    """Return the seconds of a multiply-accumulate as `layer_work` counts them."""
    seconds: float = getattr(rates, f"{kind_of(network, layer)}_s_per_mac")
    if not _is_of_integers(network, layer):
        return seconds
    return seconds * INTEGER_SPEED * rates.integer_s_per_mac / rates.dense_s_per_mac


def kind_of(network: Network, layer: Layer) -> Literal["dense", "pointwise", "depthwise"]:
    """Return which of a board's rates holds for a layer's multiply-accumulates."""
    if not layer.macs or layer.operator not in CONVOLUTIONS:
        return "pointwise" if layer.operator in PRODUCTS else "dense"
    kernels = [shape for name in layer.weights if len(shape := network.weights[name].shape) > 2]
    if not kernels:
        return "dense"
    _, channels, *window = kernels[0]
    read = network.tensors[layer.inputs[0]].shape if layer.inputs else ()
    if channels == 1 and len(read) > 1 and read[1] > 1:
        return "depthwise"
    return "pointwise" if all(length == 1 for length in window) else "dense"


def layer_work(network: Network) -> NDArray[np.float64]:
    """Return what every layer has to do: float64 [layers, 3], its multiply-accumulates, bytes of
    weights that they read, and bytes touched; 0 for layers that engines fuse (`fused_layers`)."""
    fused = fused_layers(network)
    work = np.zeros((len(network.layers), 3))
    for number, layer in enumerate(network.layers):
        if layer.name not in fused:
            work[number] = (
                _work(network, layer),
                _weight_bytes(network, layer),
                _touched_bytes(network, layer),
            )
    return work


def fused_layers(network: Network) -> frozenset[str]:
    """Return the layers that engines compute together with the layer of multiply-accumulates before
    them, whose result no other layer reads. Layers that 8 bits lie between are not fused."""
    found = set()
    computed: set[str] = set()
    for layer in network.layers:
        ours = [name for name in layer.inputs if name in computed and _is_read_once(network, name)]
        is_sum = layer.operator in FUSED_SUMS and len(layer.inputs) == 2
        if layer.macs:
            computed.update(x for x in layer.outputs if network.tensors[x].dtype not in EIGHT_BITS)
        elif ours and (layer.operator in FUSED or is_sum):
            found.add(layer.name)
            computed.update(layer.outputs)
    return frozenset(found)


def _is_read_once(network: Network, tensor: str) -> bool:
    return len(network.consumers[tensor]) == 1 and tensor not in network.outputs


def _work(network: Network, layer: Layer) -> float:
    if layer.operator not in MACS_PER_ELEMENT:
        return layer.macs / (INTEGER_SPEED if _is_of_integers(network, layer) else 1.0)
    size = sum(network.tensors[name].elements for name in layer.outputs)
    return size * MACS_PER_ELEMENT[layer.operator]


def _is_of_integers(network: Network, layer: Layer) -> bool:
    """Whether engines multiply integers: from 8 bits to 8 bits, or to sums that are not scaled."""
    read = {network.tensors[name].dtype for name in layer.inputs}
    made = {network.tensors[name].dtype for name in layer.outputs}
    return bool(read) and read <= EIGHT_BITS and made <= EIGHT_BITS | {"int32"}


def _weight_bytes(network: Network, layer: Layer) -> int:
    return network.weight_bytes((layer.name,)) if layer.macs else 0


def _touched_bytes(network: Network, layer: Layer) -> int:
    if layer.operator in VIEWS:
        return 0
    made = sum(_as_single(network.tensors[name]) for name in layer.outputs)
    if layer.operator == "Slice":
        return 2 * made
    fed = (*dict.fromkeys(layer.inputs), *(name for name, _ in layer.state))
    read = sum(_as_single(network.tensors[name]) for name in fed)
    return read + made + network.weight_bytes((layer.name,))


def _as_single(tensor: Tensor) -> int:
    """Return a tensor's bytes, or what they would be in single precision if it has 8 bits."""
    return tensor.bytes * (4 if tensor.dtype in EIGHT_BITS else 1)
