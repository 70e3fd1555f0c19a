"""The layer graph of a network, free of ONNX: CNN(L, E) of Tang & Stefanov.

A layer is one operator of the simplified model. An edge is a tensor that one layer produces and
others consume; a tensor with several consumers is one tensor. Shapes have every axis, the batch
axis included. They are static, except for the results of a tail.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
"""The values of a tensor."""

MERGED = "State"
"""Stands for the operator of a layer that was merged from several because they keep state
(`cnn.layers.state`).
"""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An activation or a weight: its name, shape and NumPy dtype name (such as `float32`).

    If `varies`, the tensor has another shape in every frame, and `shape` is the one to calculate
    memory and traffic with: an upper bound where other shapes imply one, otherwise a guess
    (`cnn.layers.shapes`). Only a tail produces such a tensor and no layer reads it: it is a
    result.

    >>> image = Tensor("image", (1, 3, 224, 224), "float32")
    >>> image.elements, image.bytes
    (150528, 602112)
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    varies: bool = False

    @property
    def elements(self) -> int:
        """The number of elements, 1 for a scalar; in CSDF terms the tokens that one frame moves."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes: elements × element size."""
        return self.elements * np.dtype(self.dtype).itemsize


TAIL = "Tail"
"""Stands for the operator of a tail: the operators whose shapes depend on the data, and those on
paths between them (`cnn.layers.tail`). A tail runs as a whole, on one device.
"""


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator of the network, or a tail.

    `inputs` and `outputs` name activations (keys of `Network.tensors`), each once and in the
    operator's order; `weights` names its constants (keys of `Network.weights`). `macs` is the
    number of multiply-accumulates for one frame, 0 for operators without any. If the layer results
    from a rewrite, `part_of` names the layer of the network as it was read that it is a part of
    (see `cnn.rewrite.rewrites`); otherwise it is "".

    `state` are pairs of tensors (read, made): what the layer reads in a frame is what it made in
    the frame before (see `cnn.layers.state`). The tensors read are not in `inputs`; those made are
    outputs of the network.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    macs: int = 0
    part_of: str = ""
    state: tuple[tuple[str, str], ...] = ()


def weight_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return the shapes and dtypes of weights."""
    return {name: Tensor(name, x.shape, x.dtype.name) for name, x in arrays.items()}


def read_by(layers: Iterable[Layer], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights that layers read, each once, in the order of the layers."""
    names = dict.fromkeys(name for layer in layers for name in layer.weights)
    return {name: arrays[name] for name in names}


@dataclass(frozen=True)
class Network:
    """An acyclic layer graph; `layers` stand in a topological order.

    Raises `ValueError` if a tensor is read before it is produced, is produced twice, or has no
    description. Code that holds a `Network` can therefore rely on these invariants.

    With a `batch` of more than one, a firing computes that many frames at once: axis 0 of every
    tensor counts them, and "a frame" in what is said of layers and tensors is a batch
    (`cnn.rewrite.batches`).

    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in ("x", "y")}
    >>> relu = Layer("relu", "Relu", ("x",), ("y",))
    >>> network = Network("tiny", (relu,), tensors, {}, ("x",), ("y",))
    >>> network.producer, network.consumers["x"]
    ({'y': 'relu'}, ('relu',))
    """

    name: str
    layers: tuple[Layer, ...]
    tensors: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batch: int = 1

    def __post_init__(self) -> None:
        known = set(self.inputs)
        names: set[str] = set()
        for layer in self.layers:
            if layer.name in names:
                raise ValueError(f"two layers are called {layer.name!r}")
            names.add(layer.name)
            self._check_reads(layer, known)
            for tensor in layer.outputs:
                if tensor in known:
                    raise ValueError(f"tensor {tensor!r} is produced twice")
                known.add(tensor)
            for weight in layer.weights:
                if weight not in self.weights:
                    raise ValueError(f"layer {layer.name!r} has an unknown weight {weight!r}")
        self._check_state(known)
        for tensor in (*known, *self.state):
            if tensor not in self.tensors:
                raise ValueError(f"tensor {tensor!r} has no description")
        for tensor in self.outputs:
            if tensor not in known:
                raise ValueError(f"network output {tensor!r} is produced by no layer")

    def _check_reads(self, layer: Layer, known: Container[str]) -> None:
        for tensor in layer.inputs:
            if tensor not in known:
                raise ValueError(f"layer {layer.name!r} reads {tensor!r} before it is produced")
            if tensor in self.tensors and self.tensors[tensor].varies:
                raise ValueError(f"layer {layer.name!r} reads {tensor!r}, whose shape varies")

    def _check_state(self, known: Collection[str]) -> None:
        for layer in self.layers:
            for fed, made in layer.state:
                if fed in known or made not in layer.outputs or made not in self.outputs:
                    raise ValueError(f"layer {layer.name!r} cannot keep {made!r} as {fed!r}")

    @cached_property
    def layer(self) -> Mapping[str, Layer]:
        """The layers by name."""
        return {layer.name: layer for layer in self.layers}

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each layer in `layers`, by its name."""
        return {layer.name: place for place, layer in enumerate(self.layers)}

    @cached_property
    def layer_weight_bytes(self) -> tuple[int, ...]:
        """The bytes of each layer's weights, shared ones included."""
        return tuple(self.weight_bytes((layer.name,)) for layer in self.layers)

    @cached_property
    def layer_activation_bytes(self) -> tuple[int, ...]:
        """The bytes of each layer's inputs and outputs (`activation_bytes`)."""
        return tuple(self.activation_bytes(layer.name) for layer in self.layers)

    @cached_property
    def ends_bytes(self) -> int:
        """The bytes of the network's inputs and outputs."""
        return sum(self.tensors[name].bytes for name in {*self.inputs, *self.outputs})

    @cached_property
    def bytes_by_readers(self) -> Mapping[tuple[int, ...], int]:
        """The bytes of weights, by the places of the layers that read them."""
        readers: dict[str, list[int]] = {}
        for place, layer in enumerate(self.layers):
            for weight in dict.fromkeys(layer.weights):
                readers.setdefault(weight, []).append(place)
        found: dict[tuple[int, ...], int] = {}
        for weight, places in readers.items():
            found[tuple(places)] = found.get(tuple(places), 0) + self.weights[weight].bytes
        return found

    @cached_property
    def state(self) -> Mapping[str, str]:
        """Each tensor that keeps state, with the tensor made for it in the frame before."""
        return dict(pair for layer in self.layers for pair in layer.state)

    @cached_property
    def producer(self) -> Mapping[str, str]:
        """The layer that produces each tensor, by names; network inputs are absent."""
        return {tensor: layer.name for layer in self.layers for tensor in layer.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """The layers that read each tensor, by names, in topological order."""
        found: dict[str, list[str]] = {tensor: [] for tensor in self.tensors}
        for layer in self.layers:
            for tensor in dict.fromkeys(layer.inputs):
                found[tensor].append(layer.name)
        return {tensor: tuple(readers) for tensor, readers in found.items()}

    @cached_property
    def edges(self) -> tuple[tuple[str, str, str], ...]:
        """The paper's E: (producing layer, consuming layer, tensor), in topological order."""
        return tuple(
            (self.producer[tensor], layer.name, tensor)
            for layer in self.layers
            for tensor in dict.fromkeys(layer.inputs)
            if tensor in self.producer
        )

    @cached_property
    def component(self) -> tuple[int, ...]:
        """The connected component of each layer, by number: layers are in one if they share a
        tensor, directly or through others. Networks that run side by side are components."""
        parent = {tensor: tensor for tensor in self.tensors}

        def root(tensor: str) -> str:
            while parent[tensor] != tensor:
                parent[tensor] = parent[parent[tensor]]
                tensor = parent[tensor]
            return tensor

        touched = [(*layer.inputs, *layer.outputs) for layer in self.layers]
        for tensors in touched:
            for tensor in tensors:
                parent[root(tensor)] = root(tensors[0])
        roots = [
            root(tensors[0]) if tensors else layer.name
            for layer, tensors in zip(self.layers, touched, strict=True)
        ]
        number = {found: index for index, found in enumerate(dict.fromkeys(roots))}
        return tuple(number[found] for found in roots)

    def weight_bytes(self, layers: frozenset[str] | set[str] | tuple[str, ...]) -> int:
        """Return the bytes of the weights of the named layers; a shared weight counts once."""
        names = {weight for name in layers for weight in self.layer[name].weights}
        return sum(self.weights[name].bytes for name in names)

    def activation_bytes(self, layer: str) -> int:
        """Return the bytes of a layer's input and output tensors: its term in the paper's Eq. 4."""
        described = self.layer[layer]
        state = (fed for fed, _ in described.state)
        names = (*dict.fromkeys(described.inputs), *state, *described.outputs)
        return sum(self.tensors[name].bytes for name in names)
