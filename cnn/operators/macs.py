"""Multiply-accumulates of one operator for one frame."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from cnn.network import Tensor
from cnn.operators import contrib

_CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
"""Operator → index of the input that holds the kernel, [C_out, C_in / groups, taps …]."""

_PRODUCTS = {"MatMul": 0, "MatMulInteger": 0, "QLinearMatMul": 0}
"""Operator → index of its left operand, […, M, K]."""

_TRANSPOSABLE = frozenset({"FusedMatMul", "Gemm", "TransposeMatMul"})
"""Products whose left operand may come as […, K, M]."""


def macs(node: onnx.NodeProto, tensors: Mapping[str, Tensor]) -> int:
    """Multiply-accumulates; 0 for operators that are no convolution or matrix product.

    A convolution multiplies, for each element of its output, one filter; a transposed convolution,
    for each element of its input, the taps that it is spread over. A bias is not counted.
    """

    def shape(index: int) -> tuple[int, ...]:
        return tensors[node.input[index]].shape

    output = tensors[node.output[0]] if node.output[0] else None
    if output is None:
        return 0
    of_attention = contrib.macs(node, shape, output.shape)
    if of_attention is not None:
        return of_attention
    operator = contrib.standard_operator(node)
    if operator in _CONVOLUTIONS:
        return output.elements * math.prod(shape(_CONVOLUTIONS[operator])[1:])
    if operator == "ConvTranspose":
        return tensors[node.input[0]].elements * math.prod(shape(1)[1:])
    if operator in _TRANSPOSABLE:
        turned = {attribute.name for attribute in node.attribute if attribute.i}
        summed = (0 if "transBatchA" in turned else -2) if "transA" in turned else -1
        return output.elements * shape(0)[summed]
    if operator in _PRODUCTS:
        return output.elements * shape(_PRODUCTS[operator])[-1]
    return 0
