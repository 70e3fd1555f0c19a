"""Finds the tensors between subnets that engines may exchange in blocks of channels.

On processors with vector units, engines compute convolutions in their own layout: [N, C, H, W] in
blocks of 8 or 16 channels. Where the subnets on both sides of a border use this layout, a tensor
can cross it unchanged. Elsewhere it would have to be converted on one side, or even on both.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, TensorProto

_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})

_IN_BLOCKS = _CONVOLUTIONS | {
    *("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"),
    *("Add", "Sum", "Mul", "Concat", "BatchNormalization"),
    *("Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish"),
}
"""Operators that engines compute in blocks in a subnet with convolutions."""

_BODIES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def borders_in_blocks(graph: Path) -> frozenset[str]:
    """Return those inputs and outputs of a subnet that its operators read or make in blocks.

    They are float32 of four axes; whether their channels fill whole blocks depends on the
    processor. A subnet without a convolution, or with operators that have graphs inside, has none,
    and neither has a file that is not a subnet.
    """
    try:
        content = onnx.load(graph, load_external_data=False).graph
    except DecodeError:  # the engine refuses files that are not ONNX models
        return frozenset()
    operators = {node.op_type for node in content.node}
    has_bodies = any(each.type in _BODIES for node in content.node for each in node.attribute)
    if has_bodies or not operators & _CONVOLUTIONS:
        return frozenset()
    read = {name for node in content.node if node.op_type in _IN_BLOCKS for name in node.input}
    made = {name for node in content.node if node.op_type in _IN_BLOCKS for name in node.output}
    inputs = {value.name for value in content.input if _is_image(value)}
    outputs = {value.name for value in content.output if _is_image(value)}
    return frozenset(inputs & read | outputs & made)


def _is_image(value: onnx.ValueInfoProto) -> bool:
    """Whether a tensor is float32 [N, C, H, W] with more than one position."""
    kind = value.type.tensor_type
    sizes = [dimension.dim_value for dimension in kind.shape.dim]
    return kind.elem_type == TensorProto.FLOAT and len(sizes) == 4 and sizes[2] * sizes[3] > 1
