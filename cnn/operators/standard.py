"""Properties of ONNX's own operators that several modules need.

The constants that end in `_SINCE` are the operator sets from which an operator has that form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import onnx

NUMBERS = frozenset(
    {"float", "float16", "double", "bool"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""ONNX's names of the element types that NumPy has."""

STANDARD_DOMAINS = frozenset({"", "ai.onnx"})

ELEMENTWISE = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu"),
        *("Clip", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
        *("HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not"),
        *("Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh"),
        *("Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
    )
)
"""Operators that work element by element on their first input; others apply to all elements."""

BROADCASTING = frozenset(
    (
        *("Add", "And", "BitShift", "Div", "Equal", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub"),
        *("Sum", "Where", "Xor"),
    )
)
"""Operators that work element by element on all inputs, which broadcast from operator set 7 on."""

QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})

SOFTMAXES = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
SOFTMAX_ON_ONE_AXIS_SINCE = 13
"""Before, these operators worked on all axes from `axis` on together."""

REDUCTION_AXES_AS_INPUT_SINCE: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(
        (
            *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
            *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"),
        ),
        18,
    )
    | {"ReduceSum": 13}
)
"""All reductions, with the operator set from which their axes are an input."""

SLICE_AS_INPUT_SINCE = 10
PADS_AS_INPUT_SINCE = 11


def standard_opset(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    """Return the version of ONNX's own operator set among the imports, 0 if it is not there."""
    return max((x.version for x in imports if x.domain in STANDARD_DOMAINS), default=0)
