"""Channel rules: what an operator needs of each input to compute some of its output channels.

The channels of a tensor are its axis 1; those of a matrix product are its columns, the last axis.
An operator has a rule here if it can compute its output channels independently. `Rule.uses` lists
the inputs of which only a part is needed, along an axis:

- by *channel*: the channels that are computed (a kernel's filters, an elementwise operand);
- by *group*: the share of the groups that the channels belong to (the input of a grouped
  convolution). A part consists of whole groups, or lies within one;
- *inside* the group: the channels, counted from the start of their group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cnn.operators import contrib
from cnn.operators.operands import Operands
from cnn.operators.standard import BROADCASTING, ELEMENTWISE, QUANTISERS
from cnn.rewrite.draft import Draft, DraftLayer
from cnn.rewrite.prepared import is_divisible, operands_of

By: TypeAlias = Literal["channel", "group", "inside"]


@dataclass(frozen=True, slots=True)
class Use:
    """Only a part of input `index` is needed, along `axis`."""

    index: int
    axis: int
    by: By = "channel"


@dataclass(frozen=True, slots=True)
class Rule:
    """An output has `channels` channels along `axis`, in groups of `group_channels`.

    If `is_concatenation`, they are the inputs' channels one after another, and `uses` is empty.
    """

    axis: int
    channels: int
    uses: tuple[Use, ...]
    group_channels: int = 1
    is_concatenation: bool = False


def rule_of(draft: Draft, layer: DraftLayer) -> Rule | None:
    """Return the channel rule of `layer`, None if it has none."""
    node = layer.node
    rules = _CONTRIB_RULES if node.domain == contrib.DOMAIN else _RULES
    find = rules.get(layer.operator) if layer.whole is None else None
    if find is None or len(layer.outputs) != 1 or draft.is_joining(layer):
        return None
    if not all(is_divisible(draft, layer, name) for name in layer.node.input):
        return None
    rule = find(operands_of(draft, layer))
    if rule is None or rule.channels < 2:
        return None
    plain = set(draft.reads(layer)).issuperset(filter(None, layer.node.input))
    # A slice of constants only would depend on no frame.
    return rule if plain or not rule.is_concatenation else None


_Finder: TypeAlias = Callable[[Operands], Rule | None]


def _channelwise(operator: Operands) -> Rule | None:
    """One operand with channels; the node's other inputs apply to all of them."""
    shape = operator.output
    if len(shape) < 2 or operator.shape(0)[:2] != shape[:2]:
        return None
    return Rule(1, shape[1], (Use(0, 1),))


def _normalised(operator: Operands) -> Rule | None:
    """Like `_channelwise`, with parameters that have one value per channel."""
    shape = operator.output
    if len(shape) < 2:
        return None
    parameters = range(1, len(operator.node.input))
    return Rule(1, shape[1], (Use(0, 1), *(Use(index, 0) for index in parameters)))


def _broadcast(operator: Operands) -> Rule | None:
    """Operands that are broadcast to the output's shape."""
    shape = operator.output
    if len(shape) < 2:
        return None
    uses = (_operand(operator, index, 1) for index in range(len(operator.node.input)))
    return Rule(1, shape[1], tuple(use for use in uses if use is not None))


def _operand(operator: Operands, index: int, axis: int) -> Use | None:
    """Return how channels along the output's `axis` use an operand that is broadcast."""
    own = axis - len(operator.output) + len(operator.shape(index))
    if own < 0 or operator.shape(index)[own] == 1:
        return None
    return Use(index, own)


def _quantised(operator: Operands) -> Rule | None:
    """Quantisation of an activation, by one scale or by a scale per channel."""
    shape = operator.output
    if len(shape) < 2:
        return None
    uses = [Use(0, 1)]
    for index in (1, 2):
        if operator.has(index) and operator.shape(index) not in {(), (1,)}:
            if len(operator.shape(index)) > 1 or operator.attribute("axis", 1) % len(shape) != 1:
                return None
            uses.append(Use(index, 0))
    return Rule(1, shape[1], tuple(uses))


def _convolution(source: int, kernel: int, per_filter: tuple[int, ...]) -> _Finder:
    """A convolution of `source` with `kernel`; `per_filter` inputs have a value per filter."""

    def find(operator: Operands) -> Rule:
        channels = operator.output[1]
        groups = operator.attribute("group", 1)
        uses = [Use(kernel, 0)]
        uses += [
            Use(index, 0)
            for index in per_filter
            if operator.has(index) and operator.shape(index) == (channels,)
        ]
        if groups > 1:
            uses.append(Use(source, 1, "group"))
        return Rule(1, channels, tuple(uses), channels // groups if groups > 1 else 1)

    return find


def _fused_convolution(operator: Operands) -> Rule | None:
    """A convolution with its activation function, unless it also adds a tensor."""
    return None if operator.has(3) else _convolution(0, 1, (2,))(operator)


def _transposed_convolution(operator: Operands) -> Rule | None:
    channels = operator.output[1]
    groups = operator.attribute("group", 1)
    bias = (Use(2, 0),) if operator.has(2) else ()
    if groups == 1:
        return Rule(1, channels, (Use(1, 1), *bias))
    if operator.node.input[1] not in operator.constants:
        return None
    uses = (Use(0, 1, "group"), Use(1, 0, "group"), Use(1, 1, "inside"), *bias)
    return Rule(1, channels, uses, channels // groups)


def _gemm(operator: Operands) -> Rule:
    columns = operator.output[1]
    uses = [Use(1, 0 if operator.attribute("transB") else 1)]
    if operator.has(2):
        added = _operand(operator, 2, 1)
        uses += [added] if added else []
    return Rule(1, columns, tuple(uses))


def _quantised_gemm(operator: Operands) -> Rule | None:
    columns = operator.output[1]
    uses = [Use(3, 0 if operator.attribute("transB") else 1)]
    for index in (4, 5, 6):
        if operator.has(index) and operator.shape(index) not in {(), (1,)}:
            if operator.shape(index) != (columns,):
                return None
            uses.append(Use(index, 0))
    return Rule(1, columns, tuple(uses))


def _product(right: int, per_column: tuple[int, ...]) -> _Finder:
    """A matrix product with right operand `right`; `per_column` inputs have a value per column."""

    def find(operator: Operands) -> Rule | None:
        shape = operator.output
        factor = operator.shape(right)
        if len(factor) < 2 or not shape or factor[-1] != shape[-1]:
            return None
        uses = [Use(right, len(factor) - 1)]
        for index in per_column:
            if operator.has(index) and operator.shape(index) not in {(), (1,)}:
                if operator.shape(index) != (shape[-1],):
                    return None
                uses.append(Use(index, 0))
        return Rule(len(shape) - 1, shape[-1], tuple(uses))

    return find


def _resize(operator: Operands) -> Rule | None:
    """By scales only, because sizes include the number of channels."""
    mode = operator.attribute("coordinate_transformation_mode")
    shape = operator.output
    if operator.has(3) or mode == "tf_crop_and_resize" or shape[:2] != operator.shape(0)[:2]:
        return None
    return Rule(1, shape[1], (Use(0, 1),))


def _pad(operator: Operands) -> Rule | None:
    """Only if all axes are padded in order and the channels are not."""
    return None if operator.has(3) else _channelwise(operator)


def _concatenation(operator: Operands) -> Rule | None:
    shape = operator.output
    if len(shape) < 2:
        return None
    if operator.attribute("axis", 1) % len(shape) == 1:
        return Rule(1, shape[1], (), is_concatenation=True)
    inputs = range(len(operator.node.input))
    return Rule(1, shape[1], tuple(Use(index, 1) for index in inputs))


_POOLINGS = (
    *("MaxPool", "AveragePool", "LpPool"),
    *("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"),
)
_RULES: Mapping[str, _Finder] = {
    **dict.fromkeys((*ELEMENTWISE, *_POOLINGS), _channelwise),
    **dict.fromkeys(BROADCASTING, _broadcast),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _normalised),
    **dict.fromkeys(QUANTISERS, _quantised),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Pad": _pad,
    "Concat": _concatenation,
    "Conv": _convolution(0, 1, (2,)),
    "ConvInteger": _convolution(0, 1, (3,)),
    "QLinearConv": _convolution(0, 3, (4, 5, 8)),
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _product(1, ()),
    "MatMulInteger": _product(1, (3,)),
    "QLinearMatMul": _product(3, (4, 5)),
}
_CONTRIB_RULES: Mapping[str, _Finder] = {
    **dict.fromkeys(("Gelu", "QuickGelu", "QLinearSigmoid", "QLinearLeakyRelu"), _channelwise),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _broadcast),
    **dict.fromkeys(QUANTISERS, _quantised),
    "QLinearAveragePool": _channelwise,
    "QLinearGlobalAveragePool": _channelwise,
    "FusedConv": _fused_convolution,
    "FusedGemm": _gemm,
    "QGemm": _quantised_gemm,
    "MatMulIntegerToFloat": _product(1, (3, 5, 6)),
    "DynamicQuantizeMatMul": _product(1, (2, 3, 4)),
}
"""Rules for ONNX Runtime's own operators; their scales and zero points broadcast like operands."""
