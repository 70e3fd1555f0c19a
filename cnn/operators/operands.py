"""An operator with what is known of its operands, for the rules that compute it in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from cnn.errors import CnnError
from cnn.network import Array
from cnn.operators.attributes import attribute, has_input


class NoRuleError(CnnError):
    """The reason why an operator cannot be computed in parts, or for several frames at once: the
    end of a sentence."""


@dataclass(frozen=True)
class Operands:
    """An operator of a network of operator set `opset`, with what is known of its operands.

    By name: `shapes` of inputs and outputs, as far as known; `constants`, the values of inputs that
    are constants which no node prepares; `activations`, the inputs that are not constant.
    """

    node: onnx.NodeProto
    opset: int
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Array]
    activations: frozenset[str]

    def has(self, index: int) -> bool:
        """Whether the operator has input `index`."""
        return has_input(self.node, index)

    def is_constant(self, index: int) -> bool:
        """Whether an input is a constant, prepared by other operators or not."""
        return self.node.input[index] not in self.activations

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an input; raise `NoRuleError` if it is unknown."""
        name = self.node.input[index]
        if name not in self.shapes:
            raise NoRuleError(f"the shape of its input {name!r} is not known")
        return self.shapes[name]

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of the first output; raises `NoRuleError` if the node leaves it out."""
        name = self.node.output[0]
        if name not in self.shapes:
            raise NoRuleError("its first output is left out")
        return self.shapes[name]

    def constant(self, index: int) -> Array:
        """Return the values of a constant input; raise `NoRuleError` if they are unknown."""
        name = self.node.input[index]
        if name not in self.constants:
            raise NoRuleError(f"its input {name!r} is not a plain constant")
        return self.constants[name]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value: a number, text (decoded) or a list."""
        value = attribute(self.node, name, default)
        return value.decode() if isinstance(value, bytes) else value
