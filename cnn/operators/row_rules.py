"""Row rules: what an operator needs of each input to compute some of its output rows.

Rows are axis 2, the first axis after batch and channels. An operator that works element by element,
or along other axes, needs the same rows of its inputs. For a sliding window or blocks of rows, the
arithmetic is in `cnn.operators.receptive_field`; here its parameters are read from ONNX attributes,
and the attributes of a band are written. A band differs from the whole only along the rows: padding
at the sides and ceiling modes stay, and automatic padding becomes the equivalent explicit padding.
An operator that needs all rows at once has no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cnn.operators import contrib
from cnn.operators.operands import NoRuleError, Operands
from cnn.operators.receptive_field import Blocks, Rows, Spread, Window
from cnn.operators.standard import (
    BROADCASTING,
    ELEMENTWISE,
    PADS_AS_INPUT_SINCE,
    REDUCTION_AXES_AS_INPUT_SINCE,
    SOFTMAX_ON_ONE_AXIS_SINCE,
    SOFTMAXES,
)

ROWS_AXIS = 2


@dataclass(frozen=True, slots=True)
class OperatorBand:
    """How an operator computes a band of its output rows.

    `made` are the rows that result: those requested, or a few more. `inputs` has the rows needed of
    each input that has rows, by its index; constants with rows are among them. `attributes` are
    those that differ from the whole operator's (None: remove the attribute), `constants` the inputs
    to replace. `work` is the share of the whole operator's arithmetic.
    """

    made: Rows
    inputs: Mapping[int, Rows]
    work: Fraction
    attributes: Mapping[str, int | Sequence[int] | None] = field(default_factory=dict)
    constants: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)


RowRule: TypeAlias = Callable[[Rows], OperatorBand]
"""Maps rows of an operator's output to how the operator computes them."""


_KERNEL = {"Conv": 1, "ConvInteger": 1, "FusedConv": 1, "QLinearConv": 3}
"""Operator → index of the input that holds the kernel, for kernels without `kernel_shape`."""


def _sliding(operands: Operands) -> RowRule:
    """The rule of convolutions and poolings."""
    if len([name for name in operands.node.output if name]) > 1:
        raise NoRuleError("it returns indices into its whole input")
    source, output = operands.shape(0)[ROWS_AXIS:], operands.output[ROWS_AXIS:]
    axes = len(source)
    strides = operands.attribute("strides", [1] * axes)
    dilations = operands.attribute("dilations", [1] * axes)
    extents = [(k - 1) * d + 1 for k, d in zip(_kernel(operands), dilations, strict=True)]
    automatic = operands.attribute("auto_pad", "NOTSET")
    if automatic in {"SAME_UPPER", "SAME_LOWER"}:
        pads = _same_pads(source, output, strides, extents, automatic == "SAME_UPPER")
    else:
        pads = [0] * (2 * axes)
        if automatic == "NOTSET":
            pads = list(operands.attribute("pads", pads))
    changed: dict[str, int | None] = {} if automatic == "NOTSET" else {"auto_pad": None}
    if automatic.startswith("SAME") and operands.attribute("ceil_mode", 0):
        changed["ceil_mode"] = 0
    window = Window(extents[0], strides[0], pads[0], pads[axes], source[0], output[0])

    def band_of(rows: Rows) -> OperatorBand:
        seen = window.receptive_field(rows)
        own = [seen.above, *pads[1:axes], seen.below, *pads[axes + 1 :]]
        attributes = {**changed, **({"pads": own} if own != pads or changed else {})}
        share = Fraction(seen.made.count, output[0])
        return OperatorBand(seen.made, {0: seen.rows}, share, attributes)

    return band_of


def _kernel(operands: Operands) -> Sequence[int]:
    kernel: Sequence[int] | None = operands.attribute("kernel_shape")
    return kernel or operands.shape(_KERNEL[operands.node.op_type])[2:]


def _same_pads(
    source: Sequence[int],
    output: Sequence[int],
    strides: Sequence[int],
    extents: Sequence[int],
    more_at_the_end: bool,
) -> list[int]:
    """Return ONNX's SAME_UPPER and SAME_LOWER as explicit pads: all beginnings, then all ends."""
    totals = [
        max((made - 1) * stride + extent - size, 0)
        for size, made, stride, extent in zip(source, output, strides, extents, strict=True)
    ]
    lesser, greater = [x // 2 for x in totals], [x - x // 2 for x in totals]
    return lesser + greater if more_at_the_end else greater + lesser


def _transposed(operands: Operands) -> RowRule:
    """The rule of transposed convolutions."""
    if operands.attribute("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        raise NoRuleError("its padding is automatic; export it with explicit pads")
    if operands.attribute("output_shape"):
        raise NoRuleError("its padding follows from output_shape; export it with explicit pads")
    height = operands.shape(0)[ROWS_AXIS]
    axes = len(operands.output) - ROWS_AXIS
    kernel = operands.attribute("kernel_shape") or operands.shape(1)[2:]
    extent = (kernel[0] - 1) * operands.attribute("dilations", [1] * axes)[0] + 1
    pads = list(operands.attribute("pads", [0] * (2 * axes)))
    added = list(operands.attribute("output_padding", [0] * axes))
    spread = Spread(extent, operands.attribute("strides", [1] * axes)[0], pads[0], height)

    def band_of(rows: Rows) -> OperatorBand:
        source, above, below = spread.receptive_field(rows)
        own = [above, *pads[1:axes], max(below, 0), *pads[axes + 1 :]]
        attributes = {"pads": own, "output_padding": [max(-below, 0), *added[1:]]}
        return OperatorBand(rows, {0: source}, Fraction(source.count, height), attributes)

    return band_of


def _padding(operands: Operands) -> RowRule:
    """The rule of padding by a constant, and of other padding that leaves the rows alone."""
    height, output = operands.shape(0)[ROWS_AXIS], operands.output[ROWS_AXIS]
    rank = len(operands.output)
    as_input = operands.opset >= PADS_AS_INPUT_SINCE
    given = operands.constant(1).tolist() if as_input else operands.attribute("pads")
    named = operands.constant(3).tolist() if operands.has(3) else range(rank)
    axes = [axis % rank for axis in named]
    above = below = 0
    place = None
    for number, axis in enumerate(axes):
        if axis == ROWS_AXIS:
            place = number
            above, below = given[number], given[number + len(axes)]
    if (above or below) and operands.attribute("mode", "constant") != "constant":
        raise NoRuleError("it pads with rows of its input")
    if above < 0 or below < 0:
        raise NoRuleError("it cuts rows off")
    window = Window(1, 1, above, below, height, output)

    def band_of(rows: Rows) -> OperatorBand:
        seen = window.receptive_field(rows)
        inputs, share = {0: seen.rows}, Fraction(seen.made.count, output)
        if place is None:
            return OperatorBand(seen.made, inputs, share)
        own = list(given)
        own[place], own[place + len(axes)] = seen.above, seen.below
        if as_input:
            return OperatorBand(seen.made, inputs, share, constants={1: np.array(own, np.int64)})
        return OperatorBand(seen.made, inputs, share, attributes={"pads": own})

    return band_of


def _enlarging(operands: Operands) -> RowRule:
    """The rule of nearest-neighbour upsampling by a whole number of rows."""
    height, output = operands.shape(0)[ROWS_AXIS], operands.output[ROWS_AXIS]
    if operands.attribute("mode", "nearest") != "nearest":
        raise NoRuleError("it interpolates between rows; only mode nearest is supported")
    if operands.attribute("axes") is not None:
        raise NoRuleError("it names the axes that it resizes; export it without axes")
    size = output // height
    if output % height or not _repeats(operands, size):
        raise NoRuleError("it does not repeat each row a whole number of times")
    blocks = Blocks(size)
    sizes = operands.constant(3).astype(np.int64) if operands.has(3) else None

    def band_of(rows: Rows) -> OperatorBand:
        seen = blocks.receptive_field(rows)
        constants = {}
        if sizes is not None:
            own = sizes.copy()
            own[ROWS_AXIS] = seen.made.count
            constants[3] = own
        share = Fraction(seen.made.count, output)
        return OperatorBand(seen.made, {0: seen.rows}, share, constants=constants)

    return band_of


def _repeats(operands: Operands, size: int) -> bool:
    """Whether output row o is input row o // size, whatever the rounding."""
    if operands.node.op_type == "Upsample" or size == 1 or operands.opset < 11:
        return True
    rounding = operands.attribute("nearest_mode", "round_prefer_floor")
    place = operands.attribute("coordinate_transformation_mode", "half_pixel")
    if place == "asymmetric":
        return bool(rounding == "floor" or (rounding == "round_prefer_floor" and size == 2))
    return bool(
        place in {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"}
        and rounding in {"round_prefer_floor", "round_prefer_ceil"}
    )


def _to_depth(operands: Operands) -> RowRule:
    size, height = operands.attribute("blocksize"), operands.output[ROWS_AXIS]

    def band_of(rows: Rows) -> OperatorBand:
        source = Rows(rows.start * size, rows.stop * size)
        return OperatorBand(rows, {0: source}, Fraction(rows.count, height))

    return band_of


def _from_depth(operands: Operands) -> RowRule:
    blocks, height = Blocks(operands.attribute("blocksize")), operands.output[ROWS_AXIS]

    def band_of(rows: Rows) -> OperatorBand:
        seen = blocks.receptive_field(rows)
        return OperatorBand(seen.made, {0: seen.rows}, Fraction(seen.made.count, height))

    return band_of


WINDOW_RULES: Mapping[str, Callable[[Operands], RowRule]] = MappingProxyType(
    {
        **dict.fromkeys((*_KERNEL, "AveragePool", "LpPool", "MaxPool"), _sliding),
        "ConvTranspose": _transposed,
        "DepthToSpace": _from_depth,
        "Pad": _padding,
        "Resize": _enlarging,
        "SpaceToDepth": _to_depth,
        "Upsample": _enlarging,
    }
)
"""Operator → the function that returns its rule."""


_ONE_OPERAND = ELEMENTWISE | {"BatchNormalization", "Dropout", "LRN"}

_ONE_AXIS = {
    **dict.fromkeys(("Concat", "QLinearConcat", "QuantizeLinear", "DequantizeLinear"), 1),
    "Split": 0,
}
"""Operator → the default of its axis. (1 is also correct for a scale for all channels.)
"""

_OPERANDS = {"Concat": slice(None), "QLinearConcat": slice(2, None, 3)}
"""The inputs of concatenations that have rows. In front of those that are quantised stand the scale
and the zero point of the result, and each has its own after it.
"""

_GLOBAL = frozenset(
    (
        *("Flatten", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"),
        *("GroupNormalization", "InstanceNormalization", "LayerNormalization", "MatMul"),
        *("MeanVarianceNormalization", "Reshape"),
    )
)


def row_rule(operands: Operands) -> RowRule:
    """Return the rule of an operator; raise `NoRuleError` if it has none."""
    operator = operands.node.op_type
    if operands.node.domain == contrib.DOMAIN:
        operator = contrib.ALIKE.get(operator, "")
    if len(operands.output) <= ROWS_AXIS:
        raise NoRuleError("its output has no rows")
    if operator in WINDOW_RULES:
        return WINDOW_RULES[operator](operands)
    if operator in BROADCASTING:
        return _passing_on(operands, slice(None))
    if operator in _ONE_OPERAND:
        return _passing_on(operands, slice(1))
    if operator in _ONE_AXIS or operator in SOFTMAXES or operator in REDUCTION_AXES_AS_INPUT_SINCE:
        if ROWS_AXIS in _axes(operands):
            raise NoRuleError("it works along the rows")
        return _passing_on(operands, _OPERANDS.get(operator, slice(1)))
    if operator in _GLOBAL:
        raise NoRuleError("each element of its output needs all rows of its input")
    raise NoRuleError("how its output rows depend on its input rows is not known")


def _axes(operands: Operands) -> set[int]:
    """Return the axes along which the operator combines or distributes elements."""
    operator, rank = operands.node.op_type, len(operands.output)
    if operator in _ONE_AXIS:
        return {operands.attribute("axis", _ONE_AXIS[operator]) % rank}
    if operator in SOFTMAXES:
        if operands.opset >= SOFTMAX_ON_ONE_AXIS_SINCE:
            return {operands.attribute("axis", -1) % rank}
        return set(range(operands.attribute("axis", 1) % rank, rank))
    if not operands.attribute("keepdims", 1):
        raise NoRuleError("it drops axes")
    axes = operands.constant(1).tolist() if operands.has(1) else operands.attribute("axes", ())
    return {axis % rank for axis in axes} or set(range(rank))


def _passing_on(operands: Operands, those: slice) -> RowRule:
    """Row by row: `those` inputs have the output's rows, or broadcast along them."""
    makes = [name for name in operands.node.output if name]
    if len(makes) > 1 and operands.node.op_type != "Split":
        raise NoRuleError("it has more than one output")
    rank, height = len(operands.output), operands.output[ROWS_AXIS]
    heights: dict[int, int] = {}
    for index in filter(operands.has, range(len(operands.node.input))[those]):
        shape = operands.shape(index)
        if len(shape) != rank and not operands.is_constant(index):
            name = operands.node.input[index]
            raise NoRuleError(f"its input {name!r} has another number of axes than its output")
        if len(shape) >= rank - ROWS_AXIS:
            heights[index] = shape[ROWS_AXIS - rank]

    def band_of(rows: Rows) -> OperatorBand:
        inputs = {i: rows if own == height else Rows(0, own) for i, own in heights.items()}
        return OperatorBand(rows, inputs, Fraction(rows.count, height))

    return band_of
