"""Row rules of the operators that slide a window, pad, or make or take blocks of rows.

The window itself is `cnn.operators.receptive_field.Window`; here its size, steps and padding are
read from ONNX attributes, and the attributes of a band written. Only what concerns the rows differs
between a band and the whole: padding at the sides stays, a ceiling mode stays, and automatic
padding becomes the explicit padding that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from cnn.operators.receptive_field import Blocks, Rows, Spread, Window
from cnn.operators.row_taking import ROWS_AXIS, NoRowRuleError, Operands, RowRule, TakenRows

_KERNEL = {"Conv": 1, "ConvInteger": 1, "FusedConv": 1, "QLinearConv": 3}
"""Operator → index of the input that holds the kernel, which follows from its inputs by then."""

_OPSET_OF_PADS_AS_INPUT = 11


def _sliding(operands: Operands) -> RowRule:
    """Convolutions and poolings."""
    if len([name for name in operands.node.output if name]) > 1:
        raise NoRowRuleError("it makes indices into the whole of its input")
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

    def taken(rows: Rows) -> TakenRows:
        glimpse = window.glimpse(rows)
        own = [glimpse.above, *pads[1:axes], glimpse.below, *pads[axes + 1 :]]
        attributes = {**changed, **({"pads": own} if own != pads or changed else {})}
        share = Fraction(glimpse.made.count, output[0])
        return TakenRows(glimpse.made, {0: glimpse.rows}, share, attributes)

    return taken


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
    """ONNX's SAME_UPPER and SAME_LOWER as explicit pads: all beginnings, then all ends."""
    totals = [
        max((made - 1) * stride + extent - size, 0)
        for size, made, stride, extent in zip(source, output, strides, extents, strict=True)
    ]
    lesser, greater = [x // 2 for x in totals], [x - x // 2 for x in totals]
    return lesser + greater if more_at_the_end else greater + lesser


def _transposed(operands: Operands) -> RowRule:
    """Transposed convolutions."""
    if operands.attribute("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        raise NoRowRuleError("its padding is automatic; export it with explicit pads")
    if operands.attribute("output_shape"):
        raise NoRowRuleError("its padding follows from output_shape; export it with explicit pads")
    height = operands.shape(0)[ROWS_AXIS]
    axes = len(operands.output) - ROWS_AXIS
    kernel = operands.attribute("kernel_shape") or operands.shape(1)[2:]
    extent = (kernel[0] - 1) * operands.attribute("dilations", [1] * axes)[0] + 1
    pads = list(operands.attribute("pads", [0] * (2 * axes)))
    added = list(operands.attribute("output_padding", [0] * axes))
    spread = Spread(extent, operands.attribute("strides", [1] * axes)[0], pads[0], height)

    def taken(rows: Rows) -> TakenRows:
        source, above, below = spread.glimpse(rows)
        own = [above, *pads[1:axes], max(below, 0), *pads[axes + 1 :]]
        attributes = {"pads": own, "output_padding": [max(-below, 0), *added[1:]]}
        return TakenRows(rows, {0: source}, Fraction(source.count, height), attributes)

    return taken


def _padding(operands: Operands) -> RowRule:
    """Explicit padding with a constant; other padding only where it leaves the rows alone."""
    height, output = operands.shape(0)[ROWS_AXIS], operands.output[ROWS_AXIS]
    rank = len(operands.output)
    as_input = operands.opset >= _OPSET_OF_PADS_AS_INPUT
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
        raise NoRowRuleError("it pads with rows of its input")
    if above < 0 or below < 0:
        raise NoRowRuleError("it cuts rows off")
    window = Window(1, 1, above, below, height, output)

    def taken(rows: Rows) -> TakenRows:
        glimpse = window.glimpse(rows)
        inputs, share = {0: glimpse.rows}, Fraction(glimpse.made.count, output)
        if place is None:
            return TakenRows(glimpse.made, inputs, share)
        own = list(given)
        own[place], own[place + len(axes)] = glimpse.above, glimpse.below
        if as_input:
            return TakenRows(glimpse.made, inputs, share, constants={1: np.array(own, np.int64)})
        return TakenRows(glimpse.made, inputs, share, attributes={"pads": own})

    return taken


def _enlarging(operands: Operands) -> RowRule:
    """Nearest-neighbour upsampling by a whole number of rows."""
    height, output = operands.shape(0)[ROWS_AXIS], operands.output[ROWS_AXIS]
    if operands.attribute("mode", "nearest") != "nearest":
        raise NoRowRuleError("it interpolates between rows; only mode nearest can be")
    if operands.attribute("axes") is not None:
        raise NoRowRuleError("it names the axes that it resizes; export it without axes")
    size = output // height
    if output % height or not _repeats(operands, size):
        raise NoRowRuleError("it does not repeat each row a whole number of times")
    blocks = Blocks(size)
    sizes = operands.constant(3).astype(np.int64) if operands.has(3) else None

    def taken(rows: Rows) -> TakenRows:
        glimpse = blocks.glimpse(rows)
        constants = {}
        if sizes is not None:
            own = sizes.copy()
            own[ROWS_AXIS] = glimpse.made.count
            constants[3] = own
        share = Fraction(glimpse.made.count, output)
        return TakenRows(glimpse.made, {0: glimpse.rows}, share, constants=constants)

    return taken


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

    def taken(rows: Rows) -> TakenRows:
        source = Rows(rows.start * size, rows.stop * size)
        return TakenRows(rows, {0: source}, Fraction(rows.count, height))

    return taken


def _from_depth(operands: Operands) -> RowRule:
    blocks, height = Blocks(operands.attribute("blocksize")), operands.output[ROWS_AXIS]

    def taken(rows: Rows) -> TakenRows:
        glimpse = blocks.glimpse(rows)
        return TakenRows(glimpse.made, {0: glimpse.rows}, Fraction(glimpse.made.count, height))

    return taken


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
"""Operator → how to find its rule."""
