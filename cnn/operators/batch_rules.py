"""Batch rules: which operators compute a stack of frames frame by frame.

A network is read with a batch of one: axis 0 of each activation is the frame and has the length 1.
For a batch of B frames, axis 0 gets the length B. An operator has a rule here if it then computes,
for each index along axis 0, what it computes for that frame alone. Its rule checks what that takes:
that axis 0 of its operands and of its result is the frame, and that it neither works along axis 0
nor moves it. A rule returns the constants that must change, such as the shape of a `Reshape`. An
operator without a rule is refused, so that a network that was put into batches is the same function
of every frame by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from cnn.network import Array
from cnn.operators import contrib
from cnn.operators.operands import NoRuleError, Operands
from cnn.operators.standard import (
    BROADCASTING,
    ELEMENTWISE,
    PADS_AS_INPUT_SINCE,
    REDUCTION_AXES_AS_INPUT_SINCE,
    SLICE_AS_INPUT_SINCE,
    SOFTMAXES,
)

Constants: TypeAlias = Mapping[int, Array]
"""The constants that take the place of inputs, by the inputs' indices."""

BatchRule: TypeAlias = Callable[[Operands, int], Constants]
"""Checks an operator for a batch of the given number of frames; raises `NoRuleError`."""

UNCHANGED: Constants = MappingProxyType({})

_TO_THE_END = 2**31 - 1
"""From this end on, a slice is meant to go to the end of any axis."""


def in_batch(operator: Operands, frames: int) -> Constants:
    """Return the constants with which an operator computes `frames` frames at once.

    Its shapes and constants are those for one frame. Raises `NoRuleError`.
    """
    rule = _RULES.get(_name(operator))
    if rule is None:
        raise NoRuleError("whether it treats each frame by itself is not known")
    names = [x for x in operator.node.input if x in operator.activations]
    for name in (*names, *(x for x in operator.node.output if x)):
        shape = operator.shapes.get(name, ())
        if not shape or shape[0] != 1:
            raise NoRuleError(
                f"the first axis of {name!r}, which has the shape {list(shape)}, is not the frame's"
            )
    return rule(operator, frames)


def _name(operator: Operands) -> str:
    """Return ONNX's operator that treats frames like this one."""
    name = str(operator.node.op_type)
    return contrib.ALIKE.get(name, "") if operator.node.domain == contrib.DOMAIN else name


def _activations(operator: Operands) -> list[int]:
    """Return the indices of the inputs that are not constant."""
    return [i for i in range(len(operator.node.input)) if _is_activation(operator, i)]


def _is_activation(operator: Operands, index: int) -> bool:
    return operator.has(index) and not operator.is_constant(index)


def _check_only(operator: Operands, allowed: Iterable[int]) -> None:
    """Raise `NoRuleError` if another input than those `allowed` is not constant."""
    for index in set(_activations(operator)).difference(allowed):
        raise NoRuleError(f"its input {operator.node.input[index]!r} is computed for each frame")


def _check_axes(axes: Iterable[int], rank: int) -> None:
    """Raise `NoRuleError` if one of `axes` of `rank` axes is the frames'."""
    if any(axis % rank == 0 for axis in axes):
        raise NoRuleError("it works along the axis of the frames")


def _single_output(operator: Operands) -> None:
    if any(operator.node.output[1:]):
        raise NoRuleError("its second output counts over all frames")


# ---------------------------------------------------------------- rules


def _of(*inputs: int) -> BatchRule:
    """An operator that has the frames' axis by definition; only `inputs` may be activations."""

    def rule(operator: Operands, _: int) -> Constants:
        _check_only(operator, inputs)
        return UNCHANGED

    return rule


def _sliding(operator: Operands, _: int) -> Constants:
    """A convolution or pooling by constants; the indices of maxima count over all frames."""
    _single_output(operator)
    _check_only(operator, (0,))
    return UNCHANGED


def _fused_convolution(operator: Operands, _: int) -> Constants:
    """A convolution whose fourth input is added to its result."""
    _check_only(operator, (0, 3))
    return UNCHANGED


def _broadcasting(operator: Operands, _: int) -> Constants:
    """Operands broadcast from the last axis on, so the frames' axes must lie at the same place."""
    for index in _activations(operator):
        if len(operator.shape(index)) != len(operator.output):
            name = operator.node.input[index]
            raise NoRuleError(f"its input {name!r} has fewer axes than its result")
    return UNCHANGED


def _along(default: int) -> BatchRule:
    """An operator that works along one axis, its attribute `axis`."""

    def rule(operator: Operands, _: int) -> Constants:
        _check_only(operator, (0,))
        _check_axes([operator.attribute("axis", default)], len(operator.shape(0)))
        return UNCHANGED

    return rule


def _quantising(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    if operator.has(1) and len(operator.shape(1)) and np.prod(operator.shape(1)) > 1:
        _check_axes([operator.attribute("axis", 1)], len(operator.shape(0)))
    return UNCHANGED


def _concatenating(first: int, step: int) -> BatchRule:
    """A concatenation of inputs `first`, `first + step`, …: constants are repeated."""

    def rule(operator: Operands, frames: int) -> Constants:
        joined = range(first, len(operator.node.input), step)
        _check_only(operator, joined)
        _check_axes([operator.attribute("axis", 1)], len(operator.output))
        return {
            index: np.repeat(operator.constant(index), frames, axis=0)
            for index in joined
            if operator.is_constant(index)
        }

    return rule


def _reducing(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    rank = len(operator.shape(0))
    axes = operator.constant(1).tolist() if operator.has(1) else operator.attribute("axes", ())
    if axes or not operator.attribute("noop_with_empty_axes", 0):
        _check_axes(axes or range(rank), rank)
    return UNCHANGED


def _to_shape(operator: Operands, frames: int) -> Constants:
    """`Reshape` and `Expand`: the shape of the result becomes that of a batch."""
    _check_only(operator, (0,))
    operator.constant(1)
    if operator.node.op_type == "Expand" and len(operator.shape(0)) != len(operator.output):
        raise NoRuleError("its result has more axes than its input")
    return {1: np.array([frames, *operator.output[1:]], np.int64)}


def _flattening(operator: Operands, _: int) -> Constants:
    _check_axes([operator.attribute("axis", 1)], len(operator.shape(0)))
    return UNCHANGED


def _without_axes(operator: Operands, _: int) -> Constants:
    """`Squeeze` and `Unsqueeze`: axis 0 stays where it is."""
    axes = operator.constant(1).tolist() if operator.has(1) else operator.attribute("axes", ())
    is_squeezing = operator.node.op_type == "Squeeze"
    rank = len(operator.shape(0)) if is_squeezing else len(operator.output)
    _check_axes(axes or range(rank), rank)
    return UNCHANGED


def _transposing(operator: Operands, _: int) -> Constants:
    rank = len(operator.output)
    if operator.attribute("perm", range(rank)[::-1])[0] != 0:
        raise NoRuleError("it moves the axis of the frames")
    return UNCHANGED


def _product(left: int, right: int) -> BatchRule:
    """A product of stacks of matrices, of which one may be constant."""

    def rule(operator: Operands, _: int) -> Constants:
        _check_only(operator, (left, right))
        found = {index: len(operator.shape(index)) for index in (left, right)}
        variable = [index for index in found if _is_activation(operator, index)]
        rank = len(operator.output)
        # A matrix of rank 2 has the frame as its row, so it can only be the left operand.
        least = 2 if variable == [left] else 3
        if any(found[index] < least for index in variable):
            raise NoRuleError("it sums over the axis of the frames, or has none")
        if any(found[index] not in (rank, rank + 1) for index in variable) or (
            max(found.values()) > min(found[index] for index in variable)
        ):
            raise NoRuleError("its operands have different numbers of axes")
        return UNCHANGED

    return rule


def _gemm(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,) if operator.node.domain == contrib.DOMAIN else (0, 2))
    if operator.attribute("transA", 0):
        raise NoRuleError("it transposes the axis of the frames")
    if _is_activation(operator, 2) and len(operator.shape(2)) != 2:
        raise NoRuleError("it adds a tensor without the axis of the frames")
    return UNCHANGED


def _slicing(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    if operator.opset >= SLICE_AS_INPUT_SINCE:
        starts, ends = operator.constant(1).tolist(), operator.constant(2).tolist()
        axes = operator.constant(3).tolist() if operator.has(3) else range(len(starts))
        steps = operator.constant(4).tolist() if operator.has(4) else [1] * len(starts)
    else:
        starts, ends = operator.attribute("starts"), operator.attribute("ends")
        axes = operator.attribute("axes", range(len(starts)))
        steps = [1] * len(starts)
    rank = len(operator.output)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        takes_all = start == 0 and step == 1 and end >= _TO_THE_END
        if axis % rank == 0 and not takes_all:
            raise NoRuleError("it takes a fixed number of frames")
    return UNCHANGED


def _padding(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    rank = len(operator.output)
    as_input = operator.opset >= PADS_AS_INPUT_SINCE
    pads = operator.constant(1).tolist() if as_input else operator.attribute("pads")
    axes = operator.constant(3).tolist() if operator.has(3) else range(rank)
    for number, axis in enumerate(axes):
        if axis % rank == 0 and (pads[number] or pads[number + len(axes)]):
            raise NoRuleError("it adds frames")
    return UNCHANGED


def _resizing(operator: Operands, frames: int) -> Constants:
    """`Resize` and `Upsample`: sizes that count the frame count the frames of a batch."""
    _check_only(operator, (0,))
    if operator.attribute("axes") is not None:
        _check_axes(operator.attribute("axes"), len(operator.output))
        return UNCHANGED
    if operator.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise NoRuleError("it crops along all axes")
    if operator.has(3):
        operator.constant(3)
        return {3: np.array([frames, *operator.output[1:]], np.int64)}
    scales = next((index for index in (2, 1) if operator.has(index)), None)
    factors = operator.attribute("scales") if scales is None else operator.constant(scales)
    if factors[0] != 1:
        raise NoRuleError("it works along the axis of the frames")
    return UNCHANGED


def _side_by_side(*inputs: int, axis: int | None = None) -> BatchRule:
    """An operator whose `inputs` all have the frames' axis: constants are repeated along it.

    `axis` is the default of the axis that it works along, if it has one.
    """

    def rule(operator: Operands, frames: int) -> Constants:
        _check_only(operator, inputs)
        if axis is not None:
            _check_axes([operator.attribute("axis", axis)], len(operator.output))
        constants = [x for x in inputs if operator.has(x) and operator.is_constant(x)]
        return {index: np.repeat(operator.constant(index), frames, axis=0) for index in constants}

    return rule


def _einsum(operator: Operands, _: int) -> Constants:
    """One letter stands for the frames: the first of every activation and of the result."""
    equation = operator.attribute("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    operands = terms.split(",")
    frame = result[:1]
    if not arrow or "." in equation or not frame:
        raise NoRuleError("its equation has an ellipsis or no result")
    for index, term in enumerate(operands):
        place = 0 if _is_activation(operator, index) else -1
        if term.find(frame) != place or term.count(frame) > 1:
            raise NoRuleError("it works along the axis of the frames")
    return UNCHANGED


def _triangular(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    if len(operator.output) < 3:
        raise NoRuleError("the frames are the rows of its matrix")
    return UNCHANGED


def _gathering(operator: Operands, _: int) -> Constants:
    """Elements at constant indices of each frame, or of a constant at each frame's indices."""
    axis = operator.attribute("axis", 0)
    if operator.is_constant(0):
        if axis % len(operator.shape(0)) != 0:
            raise NoRuleError("its result begins with another axis than the frames'")
        return UNCHANGED
    _check_only(operator, (0,))
    _check_axes([axis], len(operator.shape(0)))
    return UNCHANGED


def _tiling(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    if operator.constant(1).tolist()[0] != 1:
        raise NoRuleError("it repeats frames")
    return UNCHANGED


def _normalising(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    _check_axes(operator.attribute("axes", (0, 2, 3)), len(operator.output))
    return UNCHANGED


def _normalising_channels(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    if operator.attribute("training_mode", 0):
        raise NoRuleError("it takes the mean over all frames")
    return UNCHANGED


def _cumulating(operator: Operands, _: int) -> Constants:
    _check_only(operator, (0,))
    _check_axes([int(operator.constant(1).reshape(-1)[0])], len(operator.output))
    return UNCHANGED


_RULES: Mapping[str, BatchRule] = MappingProxyType(
    {
        **dict.fromkeys(ELEMENTWISE, _of(0)),
        **dict.fromkeys(BROADCASTING, _broadcasting),
        **dict.fromkeys(SOFTMAXES, _along(-1)),
        **dict.fromkeys(REDUCTION_AXES_AS_INPUT_SINCE, _reducing),
        **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _sliding),
        **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), _sliding),
        **dict.fromkeys(("GroupNormalization", "LRN"), _of(0)),
        **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _of(0)),
        **dict.fromkeys(("DepthToSpace", "Dropout", "InstanceNormalization"), _of(0)),
        **dict.fromkeys(("SpaceToDepth", "RMSNormalization"), _of(0)),
        "ArgMax": _along(0),
        "ArgMin": _along(0),
        "BatchNormalization": _normalising_channels,
        "Concat": _concatenating(0, 1),
        "CumSum": _cumulating,
        "DeformConv": _side_by_side(0, 2, 4),
        "DequantizeLinear": _quantising,
        "Einsum": _einsum,
        "Expand": _to_shape,
        "Flatten": _flattening,
        "FusedConv": _fused_convolution,
        "Gather": _gathering,
        "GatherElements": _side_by_side(0, 1, axis=0),
        "Gemm": _gemm,
        "GridSample": _side_by_side(0, 1),
        "LayerNormalization": _along(-1),
        "LpNormalization": _along(-1),
        "MatMul": _product(0, 1),
        "MatMulInteger": _product(0, 1),
        "MeanVarianceNormalization": _normalising,
        "Pad": _padding,
        "QLinearConcat": _concatenating(2, 3),
        "QLinearMatMul": _product(0, 3),
        "QuantizeLinear": _quantising,
        "Reshape": _to_shape,
        "Resize": _resizing,
        "Slice": _slicing,
        "Split": _along(0),
        "Squeeze": _without_axes,
        "Tile": _tiling,
        "TopK": _along(-1),
        "Transpose": _transposing,
        "Trilu": _triangular,
        "Unsqueeze": _without_axes,
        "Upsample": _resizing,
    }
)
"""Operator → its rule."""
