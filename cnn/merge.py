"""Merge several networks into one, to run side by side on the same devices.

The merged network has all layers, tensors and weights of its parts, with names that begin with the
part's: `resnet/conv1`. No tensor leads from one part to another. A frame consists of one input for
each part, so the source that feeds all parts and the sink that collects from all of them connect
the graph (Yin et al. 2022, §IV-C).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx
from onnx import helper

from cnn.errors import ModelError
from cnn.layers.grouping import Operators
from cnn.layers.upgrade import upgraded
from cnn.model import Model
from cnn.network import Array, Layer, Network, Tensor
from cnn.operators.bodies import reads, renamed
from cnn.operators.standard import STANDARD_DOMAINS, standard_opset

SEPARATOR = "/"
"""Separates a network's name from a name within it."""


def part_name(network: str, name: str) -> str:
    """Return the name in the merged network of a layer, tensor or weight of a part.

    >>> part_name("resnet", "conv1")
    'resnet/conv1'
    """
    return f"{network}{SEPARATOR}{name}"


def merge(models: Sequence[Model]) -> Model:
    """Merge networks into one model, named `first+second+…`; a single model stays as it is.

    The merged model keeps the originals as its `parts`, in that order. Networks for an older
    operator set of ONNX are converted to the newest among them. Raises `ModelError` if there is no
    model, if two networks have one name, or if a layer cannot be converted.

    >>> from cnn.model import read
    >>> digits = read("examples/digits/digits.onnx")
    >>> merge([digits.with_name("left"), digits.with_name("right")]).network.inputs
    ('left/image', 'right/image')
    """
    if not models:
        raise ModelError("there is no network to merge; name at least one")
    if len(models) == 1:
        return models[0]
    names = [model.network.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise ModelError(f"two networks are called {name!r}; give each its own name")
    version = max(standard_opset(model.operators.opset_import) for model in models)
    layers: list[Layer] = []
    tensors: dict[str, Tensor] = {}
    described: dict[str, Tensor] = {}
    nodes: dict[str, tuple[onnx.NodeProto, ...]] = {}
    trailing: dict[str, tuple[onnx.NodeProto, ...]] = {}
    weights: dict[str, Array] = {}
    for model in models:
        network, operators, arrays = upgraded(
            model.network, model.operators, model.weights, version
        )
        rename = _Prefix(network.name)
        layers += [rename.layer(layer) for layer in network.layers]
        tensors |= rename.tensors(network.tensors)
        described |= rename.tensors(network.weights)
        weights |= {rename(name): array for name, array in arrays.items()}
        for name, own in operators.of_layer.items():
            nodes[rename(name)] = tuple(rename.node(node) for node in own)
        for name, following in operators.trailing.items():
            trailing[rename(name)] = tuple(rename.node(node) for node in following)
    merged = Network(
        "+".join(names),
        tuple(layers),
        tensors,
        described,
        tuple(part_name(m.network.name, name) for m in models for name in m.network.inputs),
        tuple(part_name(m.network.name, name) for m in models for name in m.network.outputs),
    )
    ir_version = max(model.operators.ir_version for model in models)
    operators = Operators(nodes, _imports(models, version), ir_version, trailing=trailing)
    constant_outputs = {
        part_name(model.network.name, name): array
        for model in models
        for name, array in model.constant_outputs.items()
    }
    return Model(
        merged, _digest(models), None, operators, weights, None, tuple(models), constant_outputs
    )


class _Prefix:
    """Prepends a network's name to the names within it, except to empty ones."""

    def __init__(self, network: str) -> None:
        self._network = network

    def __call__(self, name: str) -> str:
        return part_name(self._network, name)

    def layer(self, layer: Layer) -> Layer:
        return replace(
            layer,
            name=self(layer.name),
            inputs=tuple(map(self, layer.inputs)),
            outputs=tuple(map(self, layer.outputs)),
            weights=tuple(map(self, layer.weights)),
            part_of=self(layer.part_of) if layer.part_of else "",
            state=tuple((self(fed), self(made)) for fed, made in layer.state),
        )

    def tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {self(name): replace(tensor, name=self(name)) for name, tensor in tensors.items()}

    def node(self, node: onnx.NodeProto) -> onnx.NodeProto:
        names = filter(None, (*reads(node), *node.output))
        copy = renamed(node, {name: self(name) for name in names})
        copy.name = self(node.name) if node.name else ""
        return copy


def _imports(models: Sequence[Model], version: int) -> tuple[onnx.OperatorSetIdProto, ...]:
    """Return ONNX's operator set in `version`, and every other one in its newest version."""
    newest = {"": version}
    for model in models:
        for entry in model.operators.opset_import:
            if entry.domain not in STANDARD_DOMAINS:
                newest[entry.domain] = max(newest.get(entry.domain, 0), entry.version)
    return tuple(helper.make_opsetid(domain, number) for domain, number in newest.items())


def _digest(models: Sequence[Model]) -> str:
    digest = hashlib.sha256()
    for model in models:
        digest.update(f"{model.network.name}\0{model.digest}\n".encode())
    return digest.hexdigest()
