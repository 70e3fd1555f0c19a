"""How the rows of an ONNX operator's output depend on the rows of its inputs.

What works element by element, or along other axes than that of the rows, passes rows on. What
slides a window or makes blocks of rows is in `cnn.operators.row_windows`. What looks at all rows at
once has no rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cnn.operators import contrib
from cnn.operators.receptive_field import Rows
from cnn.operators.row_taking import ROWS_AXIS, NoRowRuleError, Operands, RowRule, TakenRows
from cnn.operators.row_windows import WINDOW_RULES

_ONE_OPERAND = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization"),
        *("Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Dropout", "Elu", "Erf", "Exp"),
        *("Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LRN"),
        *("LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu"),
        *("Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish"),
        *("Tan", "Tanh", "ThresholdedRelu"),
    )
)
"""Element by element of their first input; what else they read holds for all rows."""

_BROADCASTING = frozenset(
    (
        *("Add", "And", "BitShift", "Div", "Equal", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub"),
        *("Sum", "Where", "Xor"),
    )
)
_ONE_AXIS = {"Concat": 1, "Split": 0, "QuantizeLinear": 1, "DequantizeLinear": 1}
"""Operator → its axis unless it names one. (A scale for all channels has no axis; 1 will do.)"""

_SOFTMAXES = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
_OPSET_OF_SOFTMAX_ON_ONE_AXIS = 13
_REDUCTIONS = frozenset(
    (
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
        *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
    )
)
_GLOBAL = frozenset(
    (
        *("Flatten", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"),
        *("GroupNormalization", "InstanceNormalization", "LayerNormalization", "MatMul"),
        *("MeanVarianceNormalization", "Reshape"),
    )
)

_CONTRIB = {
    **dict.fromkeys(
        ("FastGelu", "Gelu", "QuickGelu", "QLinearLeakyRelu", "QLinearSigmoid"), "Gelu"
    ),
    **dict.fromkeys(("BiasGelu", "QLinearAdd", "QLinearMul"), "Add"),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), "QuantizeLinear"),
    "FusedConv": "FusedConv",
    "QLinearAveragePool": "AveragePool",
}
"""Operator of ONNX Runtime's own → one of ONNX's that takes the same rows of the same inputs.
Scales and zero points, among the operands, are broadcast."""


def row_rule(operands: Operands) -> RowRule:
    """The rule of an operator; raises `NoRowRuleError` if it has none."""
    operator = operands.node.op_type
    if operands.node.domain == contrib.DOMAIN:
        operator = _CONTRIB.get(operator, "")
    if len(operands.output) <= ROWS_AXIS:
        raise NoRowRuleError("what it makes has no rows")
    if operator in WINDOW_RULES:
        return WINDOW_RULES[operator](operands)
    if operator in _BROADCASTING:
        return _passing_on(operands, range(len(operands.node.input)))
    if operator in _ONE_OPERAND:
        return _passing_on(operands, (0,))
    if operator in _ONE_AXIS or operator in _SOFTMAXES or operator in _REDUCTIONS:
        if ROWS_AXIS in _axes(operands):
            raise NoRowRuleError("it works along the rows")
        every = range(len(operands.node.input) if operator == "Concat" else 1)
        return _passing_on(operands, every)
    if operator in _GLOBAL:
        raise NoRowRuleError("each number that it makes needs all rows of its input")
    raise NoRowRuleError("it is not known how the rows that it makes depend on those of its input")


def _axes(operands: Operands) -> set[int]:
    """The axes along which the operator mixes or deals out elements."""
    operator, rank = operands.node.op_type, len(operands.output)
    if operator in _ONE_AXIS:
        return {operands.attribute("axis", _ONE_AXIS[operator]) % rank}
    if operator in _SOFTMAXES:
        if operands.opset >= _OPSET_OF_SOFTMAX_ON_ONE_AXIS:
            return {operands.attribute("axis", -1) % rank}
        return set(range(operands.attribute("axis", 1) % rank, rank))
    if not operands.attribute("keepdims", 1):
        raise NoRowRuleError("it drops axes")
    axes = operands.constant(1).tolist() if operands.has(1) else operands.attribute("axes", ())
    return {axis % rank for axis in axes} or set(range(rank))


def _passing_on(operands: Operands, indices: Sequence[int]) -> RowRule:
    """Row by row: the inputs of these `indices` are broadcast along the rows, or have as many."""
    makes = [name for name in operands.node.output if name]
    if len(makes) > 1 and operands.node.op_type != "Split":
        raise NoRowRuleError("it makes more than one tensor")
    rank, height = len(operands.output), operands.output[ROWS_AXIS]
    heights: dict[int, int] = {}
    for index in filter(operands.has, indices):
        shape = operands.shape(index)
        if len(shape) != rank and not operands.is_constant(index):
            name = operands.node.input[index]
            raise NoRowRuleError(f"its input {name!r} has another number of axes than its output")
        if len(shape) >= rank - ROWS_AXIS:
            heights[index] = shape[ROWS_AXIS - rank]

    def taken(rows: Rows) -> TakenRows:
        inputs = {i: rows if own == height else Rows(0, own) for i, own in heights.items()}
        return TakenRows(rows, inputs, Fraction(rows.count, height))

    return taken
