"""Multiply-accumulates of one operator for one frame."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from cnn.network import Tensor

_CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
"""Operator → index of the input that holds the kernel, [C_out, C_in / groups, taps …]."""

_PRODUCTS = {"MatMul": 0, "MatMulInteger": 0, "QLinearMatMul": 0}
"""Operator → index of its left operand, […, M, K]."""


def macs(node: onnx.NodeProto, tensors: Mapping[str, Tensor]) -> int:
    """Multiply-accumulates; 0 for operators that are no convolution or matrix product.

    A convolution multiplies, for each element of its output, one filter; a transposed convolution,
    for each element of its input, the taps that it is spread over. A bias is not counted.
    """
    if node.op_type in _CONVOLUTIONS:
        kernel = tensors[node.input[_CONVOLUTIONS[node.op_type]]].shape
        return tensors[node.output[0]].elements * math.prod(kernel[1:])
    if node.op_type == "ConvTranspose":
        kernel = tensors[node.input[1]].shape
        return tensors[node.input[0]].elements * math.prod(kernel[1:])
    if node.op_type == "Gemm":
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        inner = tensors[node.input[0]].shape[0 if transposed else 1]
        return tensors[node.output[0]].elements * inner
    if node.op_type in _PRODUCTS:
        left = tensors[node.input[_PRODUCTS[node.op_type]]].shape
        return tensors[node.output[0]].elements * left[-1]
    return 0
