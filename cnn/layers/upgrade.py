"""Convert layers from an older operator set of ONNX to a newer one.

A subnet has a single operator set, so networks that share devices must use the same one
(`cnn.merge`). ONNX's version converter converts each layer as a separate model. An attribute that
the newer set replaces by an input becomes a weight of the layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import onnx
from onnx import helper, numpy_helper, version_converter

from cnn.errors import ModelError
from cnn.layers.grouping import Operators, value_info
from cnn.network import MERGED, TAIL, Array, Layer, Network, read_by, weight_tensors
from cnn.operators.attributes import change_attributes, integer
from cnn.operators.bodies import has_body
from cnn.operators.standard import (
    SOFTMAX_ON_ONE_AXIS_SINCE,
    SOFTMAXES,
    STANDARD_DOMAINS,
    standard_opset,
)
from cnn.reading.weights import declare


def upgraded(
    network: Network, operators: Operators, weights: Mapping[str, Array], version: int
) -> tuple[Network, Operators, dict[str, Array]]:
    """Return the network in operator set `version`, which is not older than its own.

    Raises `ModelError` that names the first layer that cannot be converted.
    """
    if standard_opset(operators.opset_import) == version:
        return network, operators, dict(weights)
    all_weights = dict(weights)
    layers, of_layer, trailing = [], {}, {}
    for layer in network.layers:
        nodes, made = _converted(network, layer, operators, weights, version)
        own = len(operators.of_layer[layer.name])
        of_layer[layer.name] = nodes[:own]
        if len(nodes) > own:
            trailing[layer.name] = nodes[own:]
        all_weights.update(made)
        read = [name for node in nodes for name in node.input if name in all_weights]
        layers.append(
            replace(
                layer,
                operator=layer.operator
                if layer.operator in (TAIL, MERGED)
                else nodes[own - 1].op_type,
                weights=tuple(dict.fromkeys(read)),
            )
        )
    read_weights = read_by(layers, all_weights)
    imports = [helper.make_opsetid("", version)]
    imports += [x for x in operators.opset_import if x.domain not in STANDARD_DOMAINS]
    return (
        Network(
            network.name,
            tuple(layers),
            network.tensors,
            weight_tensors(read_weights),
            network.inputs,
            network.outputs,
        ),
        Operators(of_layer, tuple(imports), operators.ir_version, trailing=trailing),
        read_weights,
    )


def _converted(
    network: Network,
    layer: Layer,
    operators: Operators,
    weights: Mapping[str, Array],
    version: int,
) -> tuple[tuple[onnx.NodeProto, ...], dict[str, Array]]:
    """Convert a layer's nodes, the trailing ones too; return them and weights that they add."""
    own = len(operators.of_layer[layer.name]) - 1
    nodes = (*operators.of_layer[layer.name], *operators.trailing.get(layer.name, ()))
    if any(map(has_body, nodes)):  # the converter ignores them
        raise _cannot(network, layer, operators, version)
    if all(node.domain not in STANDARD_DOMAINS for node in nodes):
        return nodes, {}
    read = (*layer.inputs, *(name for name, _ in layer.state))
    values = [value_info(network.tensors[name]) for name in (*read, *layer.outputs)]
    graph = helper.make_graph(list(nodes), layer.name, values[: len(read)], values[len(read) :])
    declare(graph, {name: weights[name] for name in layer.weights})
    single = helper.make_model(
        graph, opset_imports=operators.opset_import, ir_version=operators.ir_version
    )
    if layer.operator != MERGED and _keeps_its_meaning(
        network, layer, nodes[own], standard_opset(operators.opset_import), version
    ):
        return (*nodes[:own], _with_axis(nodes[own]), *nodes[own + 1 :]), {}
    try:
        converted = version_converter.convert_version(single, version).graph
    except Exception as error:  # any error of the converter's C++ code
        raise _cannot(network, layer, operators, version) from error
    constants = {
        node.output[0]: numpy_helper.to_array(node.attribute[0].t)
        for node in converted.node
        if node.op_type == "Constant"
    }
    for tensor in converted.initializer:
        if tensor.name not in weights:
            constants[tensor.name] = numpy_helper.to_array(tensor)
    names = {name: f"{layer.name}#{number}" for number, name in enumerate(constants)}
    found = []
    for node in converted.node:
        if node.op_type == "Constant":
            continue
        renamed = deepcopy(node)
        renamed.input[:] = [names.get(name, name) for name in node.input]
        found.append(renamed)
    made = {name for node in found for name in node.output}
    if len(found) != len(nodes) or not made.issuperset(layer.outputs):
        raise _cannot(network, layer, operators, version)
    return tuple(found), {names[name]: array for name, array in constants.items()}


def _keeps_its_meaning(
    network: Network, layer: Layer, node: onnx.NodeProto, before: int, after: int
) -> bool:
    """Whether flattening makes no difference, because no axis after `axis` is longer than 1."""
    if node.op_type not in SOFTMAXES or not before < SOFTMAX_ON_ONE_AXIS_SINCE <= after:
        return False
    shape = network.tensors[layer.inputs[0]].shape
    axis = integer(node, "axis", 1)
    return math.prod(shape[axis % len(shape) + 1 :]) == 1


def _with_axis(original: onnx.NodeProto) -> onnx.NodeProto:
    """Return a copy of a node with its axis written out, because the default has changed."""
    node = deepcopy(original)
    change_attributes(node, {"axis": integer(node, "axis", 1)})
    return node


def _cannot(network: Network, layer: Layer, operators: Operators, version: int) -> ModelError:
    own = standard_opset(operators.opset_import)
    return ModelError(
        f"{network.name}: layer {layer.name!r} ({layer.operator}) is written for operator set "
        f"{own} of ONNX and cannot be converted to {version}, which "
        f"another network uses; export {network.name} for operator set {version}"
    )
