"""What some rows of an operator's output take of its inputs, and what is known of an operator.

Rows are axis 2, the first axis behind batch and channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from cnn.errors import CnnError
from cnn.operators.receptive_field import Rows
from cnn.read.weights import Array

ROWS_AXIS = 2


class NoRowRuleError(CnnError):
    """Why an operator cannot be computed in bands of rows: the end of a sentence."""


@dataclass(frozen=True, slots=True)
class TakenRows:
    """What some rows of an operator's output take.

    `made` are the rows that come of it, those asked for or a few more. `inputs` has the rows of
    each input that has rows, by its index; constants with rows are among them. `attributes` are
    those that differ from the whole's (None: there must be none of that name), `constants` the
    inputs to be replaced. `work` is the share of the whole's arithmetic.
    """

    made: Rows
    inputs: Mapping[int, Rows]
    work: Fraction
    attributes: Mapping[str, int | Sequence[int] | None] = field(default_factory=dict)
    constants: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)


RowRule: TypeAlias = Callable[[Rows], TakenRows]
"""From rows of an operator's output to what they take."""


@dataclass(frozen=True)
class Operands:
    """An operator of a network of operator set `opset`, with what is known of its operands.

    `shapes` by name: of what it reads and makes, as far as known. `constants` by name: the values
    of those that are plain constants. `activations`: the names of those that are none at all.
    """

    node: onnx.NodeProto
    opset: int
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Array]
    activations: frozenset[str]

    def has(self, index: int) -> bool:
        """Whether the operator has an input of this index."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def is_constant(self, index: int) -> bool:
        """Whether an input is a constant, plain or prepared by other operators."""
        return self.node.input[index] not in self.activations

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input; raises `NoRowRuleError` if it is unknown."""
        name = self.node.input[index]
        if name not in self.shapes:
            raise NoRowRuleError(f"the shape of its input {name!r} is not known")
        return self.shapes[name]

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return self.shapes[self.node.output[0]]

    def constant(self, index: int) -> Array:
        """The values of a constant input; raises `NoRowRuleError` if they are not at hand."""
        name = self.node.input[index]
        if name not in self.constants:
            raise NoRowRuleError(f"its input {name!r} is no plain constant")
        return self.constants[name]

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value: a number, text (decoded) or a list."""
        for entry in self.node.attribute:
            if entry.name == name:
                value = helper.get_attribute_value(entry)
                return value.decode() if isinstance(value, bytes) else value
        return default
