"""Draw random weights for files that contain none.

Networks are published with their weights left out: each weight is a `ConstantOfShape` node with a
constant shape. A file whose kernels are like that is *weightless* and gets values that depend on a
seed and on the tensor's name, not on the order of tensors. A weight's role determines its
distribution.

Kernels are He-normal (He et al., "Delving Deep into Rectifiers", 2015): zero mean, variance 2 /
fan-in. Batch norms get scale 1, bias 0, mean 0, variance 1; biases are 0. Some details keep outputs
finite and varied, and keep the graph as it would be with trained weights:

- Kernels without a rectifier before the next kernel or the output (depthwise kernels, the
  classifier) get half of He's variance, 1 / fan-in, because nothing halves the variance of their
  output.
- He's variance is stable in a plain chain, but each residual addition doubles it, and fifty of them
  overflow a softmax. As in Fixup (Zhang, Dauphin and Ma, 2019), the last kernel of a branch that is
  added to an untouched shortcut is scaled by 1/√(number of such additions). Where all k summands
  come from kernels, each kernel is scaled by 1/√k.
- Simplification would remove a factor of exactly 1 or a shift of exactly 0, which no trained value
  is. Elementwise factors are therefore 0.9995 (a fresh batch norm's 1/√(1 + ε)), and shifts are
  normal with σ = 0.01.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cnn.network import Array
from cnn.operators.attributes import integer, integers
from cnn.operators.bodies import names_read
from cnn.reading.weights import declare

KERNEL_OPERATORS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_NORMS = frozenset({"BatchNormalization", "InstanceNormalization", "LayerNormalization"})
_RESHAPING = frozenset(
    {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Cast", "Flatten"}
)
_RECTIFIERS = frozenset(
    {"Relu", "LeakyRelu", "PRelu", "Clip", "Elu", "Celu", "Selu", "Gelu", "Mish", "Softplus"}
    | {"HardSwish", "Swish", "HardSigmoid", "Sigmoid", "ThresholdedRelu"}
)
_FACTOR = 1 / math.sqrt(1 + 1e-3)
_SHIFT_SIGMA = 0.01
_FEWEST_LEFT_OVER = 16


@dataclass(frozen=True, slots=True)
class Role:
    """The normal distribution of a weight; a σ of 0 means that every value is `mean`."""

    mean: float
    sigma: float
    is_kernel: bool = False


@dataclass(frozen=True, slots=True)
class MissingWeight:
    """The shape and dtype of a weight that is left out."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


class Roles:
    """The missing weights of a graph and their roles.

    `weights` are those that the file has. `shapes` has inferred shapes by tensor name, because a
    kernel's fan-in is that of its operator, which may read the kernel transposed. Without shapes,
    kernels are found but their fan-in is unknown.
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        weights: Mapping[str, Array],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._nodes = tuple(graph.node)
        self._weights = weights
        self._shapes = shapes
        self._producer = {name: node for node in self._nodes for name in node.output}
        self._readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in self._nodes:
            for index, name in enumerate(node.input):
                self._readers.setdefault(name, []).append((node, index))

    @cached_property
    def missing(self) -> Mapping[str, MissingWeight]:
        """Every floating-point `ConstantOfShape` with a constant shape, by its output's name."""
        found: dict[str, MissingWeight] = {}
        for node in self._nodes:
            if node.op_type != "ConstantOfShape" or not node.input:
                continue
            shape = self._constant(node.input[0])
            if shape is None:
                continue
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            kind = onnx.TensorProto.FLOAT if value is None else value.data_type
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
            if dtype.kind == "f":
                found[node.output[0]] = MissingWeight(tuple(shape.astype(int).tolist()), dtype)
        return found

    @cached_property
    def leftover(self) -> Mapping[str, MissingWeight]:
        """Weights that the file contains although it lacks the kernels that they were trained with.

        Files leave out large weights only. The remaining ones were fitted to the missing kernels
        and would weaken or drown the signal. Shorter constants are assumed to be the model's own
        arithmetic, such as a mean per colour.
        """
        return {
            name: MissingWeight(array.shape, array.dtype)
            for name, array in self._weights.items()
            if array.dtype.kind == "f"
            and array.size >= _FEWEST_LEFT_OVER
            and next(self._of(name), None)
        }

    @cached_property
    def found(self) -> Mapping[str, Role]:
        """The role of each missing or leftover weight, from the first operator that implies one."""
        roles = {name: next(self._of(name), None) for name in (*self.missing, *self.leftover)}
        return {name: role for name, role in roles.items() if role is not None}

    def _constant(self, name: str) -> Array | None:
        if name in self._weights:
            return self._weights[name]
        node = self._producer.get(name)
        if (
            node is not None
            and node.op_type == "Constant"
            and node.attribute
            and node.attribute[0].name == "value"
        ):
            return numpy_helper.to_array(node.attribute[0].t)
        return None

    def _of(self, name: str) -> Iterator[Role]:
        for node, index in self._readers.get(name, []):
            if node.op_type in _RESHAPING and index == 0:
                yield from self._of(node.output[0])
            else:
                role = self._role(name, node, index)
                if role is not None:
                    yield role

    def _role(self, name: str, node: onnx.NodeProto, index: int) -> Role | None:
        operator = node.op_type
        if operator in KERNEL_OPERATORS and (index == 1 or (operator == "MatMul" and index == 0)):
            shape = self._shapes.get(name, ())
            variance = (2 if self._is_rectified(node) else 1) / _fan_in(node, index, shape)
            sigma = self._damping.get(_key(node), 1.0) * math.sqrt(variance)
            return Role(0.0, sigma, is_kernel=True)
        if operator in KERNEL_OPERATORS:
            return Role(0.0, 0.0)
        if operator in _NORMS:
            return Role(1.0 if index in {1, 4} else 0.0, 0.0)
        if operator in {"Mul", "Div"}:
            return Role(_FACTOR, 0.0)
        if operator in {"Add", "Sub", "Sum"}:
            return Role(0.0, _SHIFT_SIGMA)
        return None

    def _is_rectified(self, node: onnx.NodeProto) -> bool:
        """Whether a rectifier stands between `node` and the next kernels."""
        seen: set[str] = set()
        front = list(node.output)
        while front:
            for reader, _ in self._readers.get(front.pop(), []):
                if reader.op_type in _RECTIFIERS:
                    return True
                if reader.op_type not in KERNEL_OPERATORS:
                    front += [name for name in reader.output if name not in seen]
                    seen.update(reader.output)
        return False

    @cached_property
    def _damping(self) -> Mapping[str, float]:
        """Kernel operator (by `_key`) → factor on its kernel; see the module's docstring."""
        additions = []
        for node in self._nodes:
            operands = self._activations(node)
            if node.op_type in {"Add", "Sum"} and len(operands) > 1:
                additions.append([self._nearest_kernel(name) for name in operands])
        shortcuts = sum(None in branches for branches in additions)
        return {
            kernel: 1 / math.sqrt(shortcuts if None in branches else len(branches))
            for branches in additions
            for kernel in branches
            if kernel is not None
        }

    @cached_property
    def _constants(self) -> frozenset[str]:
        """Every tensor that depends on no input, the empty name of an absent input included."""
        found = {"", *self._weights}
        for node in self._nodes:
            if found.issuperset(node.input):
                found.update(node.output)
        return frozenset(found)

    def _activations(self, node: onnx.NodeProto) -> list[str]:
        return [name for name in node.input if name not in self._constants]

    def _nearest_kernel(self, name: str) -> str | None:
        """Return the kernel operator that alone determines this summand, None for a shortcut."""
        while len(self._readers.get(name, [])) == 1 and name in self._producer:
            node = self._producer[name]
            if node.op_type in KERNEL_OPERATORS:
                return _key(node)
            operands = self._activations(node)
            if len(operands) != 1:
                return None
            name = operands[0]
        return None


def _key(node: onnx.NodeProto) -> str:
    return str(node.output[0])


def _fan_in(node: onnx.NodeProto, index: int, shape: tuple[int, ...]) -> float:
    """Return how many products one output element sums up, for a kernel of this shape."""
    if len(shape) < 2:
        return float(math.prod(shape))
    if node.op_type == "Conv":
        return float(math.prod(shape[1:]))
    if node.op_type == "ConvTranspose":
        group, strides = integer(node, "group", 1), integers(node, "strides", [1])
        return max(1.0, shape[0] / group * math.prod(shape[2:]) / math.prod(strides))
    if node.op_type == "Gemm":
        return float(shape[1] if integer(node, "transB") else shape[0])
    return float(shape[-2] if index == 1 else shape[-1])


def fill(proto: onnx.ModelProto, weights: dict[str, Array], seed: int) -> bool:
    """Add the missing weights of `proto` to `weights`, in place; return whether there were any.

    A model that has its own weights is not changed.
    """
    probe = Roles(proto.graph, weights, {})
    if not any(name in probe.missing and role.is_kernel for name, role in probe.found.items()):
        return False
    roles = Roles(proto.graph, weights, _inferred_shapes(proto, weights))
    for name, missing in (*roles.missing.items(), *roles.leftover.items()):
        if name in roles.found:
            weights[name] = draw(seed, name, missing, roles.found[name])
    kept = [x for x in proto.graph.node if not weights.keys() & set(x.output)]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    for name in weights.keys() - set(names_read(proto.graph)):  # their shapes
        del weights[name]
    return True


def draw(seed: int, name: str, missing: MissingWeight, role: Role) -> Array:
    """Draw the values of a missing weight; they depend on `seed` and `name` alone."""
    if role.sigma == 0:
        return np.full(missing.shape, role.mean, missing.dtype)
    words = np.frombuffer(hashlib.sha256(f"{seed}\0{name}".encode()).digest(), "<u4")
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))
    values = generator.standard_normal(missing.shape, np.float32)
    values *= np.float32(role.sigma)
    values += np.float32(role.mean)
    return values.astype(missing.dtype, copy=False)


def _inferred_shapes(
    proto: onnx.ModelProto, weights: Mapping[str, Array]
) -> Mapping[str, tuple[int, ...]]:
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    declare(whole.graph, weights)
    inferred = onnx.shape_inference.infer_shapes(whole, data_prop=True)
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in inferred.graph.value_info
    }
