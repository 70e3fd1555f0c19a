"""A model in the making, of which ONNX's own inference says what types its tensors have.

A step that cannot be drawn here and now raises `UndrawableError`, and `Sketch.attempt` takes back
what it has added. So idioms need not ask beforehand whether their sizes fit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

MOST_ELEMENTS = 4096
"""Of a tensor: larger ones take time and show nothing more."""

HALF = "float16"


class UndrawableError(Exception):
    """A step that does not fit what is there."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An activation: its shape, and its NumPy dtype's name."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)


class Sketch:
    """`tensors` has the activations that later steps may read; all others are inside an idiom.

    `dice` decides what is drawn, `numbers` the weights. Weights and most activations are of
    `dtype`. In a `named` model nodes have names.
    """

    def __init__(self, dice: random.Random, opset: int, dtype: str) -> None:
        self.dice = dice
        self.numbers = np.random.default_rng(dice.getrandbits(32))
        self.opset = opset
        self.dtype = dtype
        self.named = dice.random() < 0.8
        self.as_nodes = dice.random() < 0.5
        self.inputs: dict[str, Tensor] = {}
        self.tensors: dict[str, Tensor] = {}
        self.types: dict[str, onnx.TypeProto] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self._opsets = [helper.make_opsetid("", opset)]
        self._count = 0
        self.depth = 0
        """The bodies around the step that is drawn."""

    def attempt(self, step: Callable[[Sketch], None]) -> bool:
        """Whether `step` could be drawn; if not, nothing of it is left."""
        nodes, weights, tensors = len(self.nodes), dict(self.weights), dict(self.tensors)
        try:
            step(self)
        except UndrawableError:
            del self.nodes[nodes:]
            self.weights, self.tensors = weights, tensors
            return False
        return True

    def input(self, shape: Sequence[int], dtype: str | None = None) -> str:
        """A further input of the model."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = Tensor(tuple(shape), dtype or self.dtype)
        self._describe(name, self.inputs[name])
        return name

    def weight(
        self, *shape: int, scale: float = 1.0, shift: float = 0.0, dtype: str | None = None
    ) -> str:
        """A weight of normal values."""
        values = self.numbers.standard_normal(shape) * scale + shift
        return self.constant(values, dtype or self.dtype, as_node=False)

    def positive(self, *shape: int) -> str:
        """A weight of values from 0.5 to 1.5."""
        return self.constant(self.numbers.random(shape) + 0.5, self.dtype, as_node=False)

    def constant(self, values: Any, dtype: str = "int64", *, as_node: bool | None = None) -> str:
        """A constant: an initialiser, or a node as torch writes it."""
        name = self._new("w")
        self.weights[name] = np.asarray(values, dtype)
        self._describe(name, Tensor(self.weights[name].shape, dtype))
        if self.as_nodes if as_node is None else as_node:
            value = numpy_helper.from_array(self.weights[name], name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=value))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.described(name).shape

    def described(self, name: str) -> Tensor:
        found = self.types[name].tensor_type
        dims = tuple(dim.dim_value for dim in found.shape.dim)
        return Tensor(dims, helper.tensor_dtype_to_np_dtype(found.elem_type).name)

    def one(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output; returns its name. `_shape` and `_dtype`, if given, are what
        inference cannot know."""
        (made,) = self.several(operator, list(inputs), 1, **attributes)
        return made

    def several(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: int,
        _shape: Sequence[int] | None = None,
        _dtype: str | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Add a node; returns the names of its outputs."""
        if not onnx.defs.has(operator, self.opset):
            raise UndrawableError(operator)
        made = [self._new("t") for _ in range(outputs)]
        name = f"{operator}_{self._count}" if self.named else ""
        attributes = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(operator, list(inputs), made, name, **attributes)
        if _shape is not None:
            self._describe(
                made[0], Tensor(tuple(_shape), _dtype or self.described(inputs[0]).dtype)
            )
        else:
            self._infer(node)
        for each in made:
            if self.types[each].tensor_type.elem_type == TensorProto.UNDEFINED:
                raise UndrawableError(operator)
            shape = self.shape(each)
            if any(size < 1 for size in shape) or np.prod(shape, dtype=int) > MOST_ELEMENTS:
                raise UndrawableError(f"{operator} makes {shape}")
        self.nodes.append(node)
        return made

    def fresh(self, tensor: Tensor) -> str:
        """A new name for a tensor that no inference describes."""
        name = self._new("t")
        self._describe(name, tensor)
        return name

    def offer(self, *names: str) -> None:
        """Let later steps read these."""
        for name in names:
            self.tensors[name] = self.described(name)

    def any(self, *ranks: int, dtype: str | None = None) -> str:
        """A tensor of one of these ranks: the last one more often than others."""
        wanted = dtype or self.dtype
        names = [n for n, t in self.tensors.items() if t.rank in ranks and t.dtype == wanted]
        if not names:
            raise UndrawableError("no such tensor")
        return names[-1] if self.dice.random() < 0.6 else self.dice.choice(names)

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _describe(self, name: str, tensor: Tensor) -> None:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
        self.types[name] = helper.make_tensor_type_proto(kind, tensor.shape)

    def _infer(self, node: onnx.NodeProto) -> None:
        schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        if not schema.has_type_and_shape_inference_function:  # element by element, by others
            self._describe(node.output[0], self.described(node.input[0]))
            return
        types = {name: self.types[name] for name in node.input if name}
        data = {
            name: numpy_helper.from_array(self.weights[name], name)
            for name in types
            if name in self.weights and self.weights[name].size < 64
        }
        try:
            found = shape_inference.infer_node_outputs(
                schema, node, types, data, None, self._opsets, 10
            )
        except (
            shape_inference.InferenceError,
            onnx.checker.ValidationError,
            RuntimeError,
            ValueError,
        ) as error:
            raise UndrawableError(str(error)) from error
        for name in filter(None, node.output):
            if name not in found or not found[name].tensor_type.HasField("shape"):
                raise UndrawableError(f"{node.op_type}: nothing is inferred")
            self.types[name] = found[name]
