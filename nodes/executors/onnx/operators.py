"""Operators of ONNX Runtime's own that a node runs though a launcher sends them.

ONNX Runtime's quantizer and optimiser write them into networks (`cnn.operators.contrib` has their
shapes, and a test holds the two lists together). Each computes tensors from tensors. Whatever runs
a graph or a compiled program, reads a file or loads a library is not among them, and has to stay
out.
"""

from __future__ import annotations

CONTRIB_DOMAIN = "com.microsoft"

CONTRIB_OPERATORS = frozenset(
    (
        *("Attention", "BiasGelu", "DequantizeLinear", "DynamicQuantizeLSTM"),
        *("DynamicQuantizeMatMul", "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedGemm"),
        *("FusedMatMul", "Gelu", "MatMulIntegerToFloat", "MultiHeadAttention", "QAttention"),
        *("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat"),
        *("QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"),
        *("QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QuantizeLinear", "QuickGelu"),
        *("RotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
        "TransposeMatMul",
    )
)
