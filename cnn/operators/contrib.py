"""Infer the output types of operators for which ONNX infers none, or not always.

They are ONNX Runtime's own, the domain `com.microsoft`, which its quantizer and optimiser write,
and ONNX's operators of classical machine learning, `ai.onnx.ml`, which exporters append to a
network. Each supported operator has a rule that follows its definition in ONNX Runtime's "Contrib
Operator Schemas". Operators that run a graph or a compiled program, read files, or keep the state
of a language model are excluded on purpose. Nodes run the same operators and no others
(`nodes.executors.onnx.file`; a test compares the two tables).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, shape_inference
from onnx.shape_inference import InferenceError

from cnn.errors import CnnError
from cnn.operators.attributes import attribute, has_input

DOMAIN = "com.microsoft"
ML_DOMAIN = "ai.onnx.ml"

Shape: TypeAlias = tuple[int, ...]
Made: TypeAlias = tuple[int, Shape]
"""The ONNX element type and the shape of one output."""


class UnknownTypeError(CnnError):
    """The output types of a node do not follow from its input types."""


class _Node:
    """A node of such an operator, with the types of its inputs."""

    def __init__(self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> None:
        self.proto = node
        self._types = types

    def has(self, index: int) -> bool:
        """Whether the node has input `index`."""
        return has_input(self.proto, index)

    def kind(self, index: int) -> int:
        """Return the element type of input `index`."""
        return int(self._type(index).elem_type)

    def shape(self, index: int) -> Shape:
        """Return the shape of input `index`; raise `UnknownTypeError` if it is not static."""
        found = self._type(index)
        if not found.HasField("shape") or not all(x.HasField("dim_value") for x in found.shape.dim):
            raise UnknownTypeError
        return tuple(x.dim_value for x in found.shape.dim)

    def integer(self, name: str, default: int = 0) -> int:
        """Return the value of an integer attribute; raise `UnknownTypeError` for another type."""
        value = attribute(self.proto, name, default)
        if not isinstance(value, int):
            raise UnknownTypeError
        return value

    def integers(self, name: str) -> list[int]:
        """Return a list of integers, empty without the attribute; raise `UnknownTypeError`."""
        value = attribute(self.proto, name, [])
        if not isinstance(value, list):
            raise UnknownTypeError
        return [int(x) for x in value]

    def as_standard(self, operator: str, indices: Sequence[int], opset: int = 13) -> Shape:
        """Return the shape that ONNX's `operator` makes of these inputs and attributes."""
        schema = onnx.defs.get_schema(operator, opset)
        names = [f"{number}" for number in range(len(indices))]
        node = helper.make_node(operator, names, ["made"])
        node.attribute.extend(x for x in self.proto.attribute if x.name in schema.attributes)
        types = {
            name: helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, self.shape(index))
            for name, index in zip(names, indices, strict=True)
        }
        imports = [helper.make_opsetid("", opset)]
        made = shape_inference.infer_node_outputs(schema, node, types, opset_imports=imports)
        return tuple(dim.dim_value for dim in made["made"].tensor_type.shape.dim)

    def _type(self, index: int) -> onnx.TypeProto.Tensor:
        found = self._types.get(self.proto.input[index]) if self.has(index) else None
        if found is None or not found.HasField("tensor_type"):
            raise UnknownTypeError
        return found.tensor_type


_Rule: TypeAlias = Callable[[_Node], Sequence[Made]]


def is_known(node: onnx.NodeProto) -> bool:
    """Whether a node's operator has a rule here."""
    if node.domain in RULES_OF:
        return node.op_type in RULES_OF[node.domain]
    return node.domain in ("", "ai.onnx") and node.op_type in BEFORE_ONNX


def infer(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> dict[str, onnx.TypeProto]:
    """Return the output types of a known node, as far as they follow from its input types."""
    rule = RULES_OF.get(node.domain, BEFORE_ONNX)[node.op_type]
    try:
        made = rule(_Node(node, types))
    except (
        UnknownTypeError,
        InferenceError,
        ValueError,
        IndexError,
        KeyError,
        ZeroDivisionError,
        TypeError,
        RuntimeError,
    ):
        return {}  # the network contradicts itself
    return {
        name: helper.make_tensor_type_proto(kind, shape)
        for name, (kind, shape) in zip(node.output, made, strict=False)
        if name and min(shape, default=0) >= 0
    }


def standard_operator(node: onnx.NodeProto) -> str:
    """Return ONNX's equivalent of a product or convolution, ignoring scales and activations.

    Returns the node's own operator if there is none.
    """
    return EQUIVALENTS.get(node.op_type, node.op_type) if node.domain == DOMAIN else node.op_type


EQUIVALENTS: Mapping[str, str] = {
    "DynamicQuantizeMatMul": "MatMul",
    "FusedConv": "Conv",
    "FusedGemm": "Gemm",
    "MatMulIntegerToFloat": "MatMul",
    "MatMulNBits": "MatMul",
    "QGemm": "Gemm",
}


ALIKE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("FastGelu", "Gelu", "QuickGelu", "QLinearLeakyRelu", "QLinearSigmoid"), "Gelu"
        ),
        **dict.fromkeys(("BiasGelu", "QLinearAdd", "QLinearMul"), "Add"),
        **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), "QuantizeLinear"),
        "FusedConv": "FusedConv",
        "FusedGemm": "Gemm",
        "QGemm": "Gemm",
        "QLinearAveragePool": "AveragePool",
        "QLinearConcat": "QLinearConcat",
        "QLinearGlobalAveragePool": "GlobalAveragePool",
    }
)
"""ONNX Runtime's own operator → ONNX's operator that treats frames and rows alike. Scales and zero
points are operands that broadcast."""


def _like_first(node: _Node) -> Sequence[Made]:
    return [(node.kind(0), node.shape(0))]


def _normalised(node: _Node) -> Sequence[Made]:
    """The result, mean and deviation along the last axis, and the sum that was normalised."""
    shape = node.shape(0)
    axis = node.integer("axis", -1) % len(shape)
    statistics = onnx.TensorProto.FLOAT, (*shape[:axis], *(1 for _ in shape[axis:]))
    return [(node.kind(0), shape), statistics, statistics, (node.kind(0), shape)]


def _normalised_by_root(node: _Node) -> Sequence[Made]:
    whole, statistics, *_ = _normalised(node)
    return [whole, statistics]


def _broadcast(*indices: int) -> _Rule:
    def rule(node: _Node) -> Sequence[Made]:
        shapes = [node.shape(index) for index in indices]
        return [(node.kind(indices[-1]), np.broadcast_shapes(*shapes))]

    return rule


def _quantised(node: _Node) -> Sequence[Made]:
    kind = node.kind(2) if node.has(2) else onnx.TensorProto.UINT8
    return [(kind, node.shape(0))]


def _dequantised(node: _Node) -> Sequence[Made]:
    return [(node.kind(1), node.shape(0))]


def _as(operator: str, indices: tuple[int, ...] = (0,)) -> _Rule:
    def rule(node: _Node) -> Sequence[Made]:
        if node.integer("channels_last"):
            raise UnknownTypeError
        return [(node.kind(indices[0]), node.as_standard(operator, indices))]

    return rule


def _concatenated(node: _Node) -> Sequence[Made]:
    """The inputs are the result's scale and zero point, then each operand with its own."""
    shape = node.as_standard("Concat", range(2, len(node.proto.input), 3))
    return [(node.kind(1), shape)]


def _quantised_gemm(node: _Node) -> Sequence[Made]:
    kind = node.kind(8) if node.has(8) else onnx.TensorProto.FLOAT
    return [(kind, node.as_standard("Gemm", (0, 3)))]


def _integer_product(node: _Node) -> Sequence[Made]:
    return [(node.kind(2), node.as_standard("MatMul", (0, 1)))]


def _product(node: _Node) -> Sequence[Made]:
    """A product of two matrices, or of stacks of them, each of which may be transposed."""
    left, right = (_turned(node, index, letter) for index, letter in ((0, "A"), (1, "B")))
    if left[-1] != right[-2]:
        raise UnknownTypeError
    stack = np.broadcast_shapes(left[:-2], right[:-2])
    return [(node.kind(0), (*stack, left[-2], right[-1]))]


def _product_with_few_bits(node: _Node) -> Sequence[Made]:
    return [(node.kind(0), (*node.shape(0)[:-1], node.integer("N")))]


def _turned(node: _Node, index: int, letter: str) -> Shape:
    """Return an operand's shape after transposing the stack's first axis, and then the matrix."""
    shape = list(node.shape(index))
    if len(shape) < 2:
        raise UnknownTypeError
    if node.integer(f"transBatch{letter}"):
        shape = [*shape[1:-1], shape[0], shape[-1]]
    if node.integer(f"trans{letter}"):
        shape[-2:] = reversed(shape[-2:])
    return tuple(shape)


def _recurrent(node: _Node) -> Sequence[Made]:
    steps, batch, _ = node.shape(0)
    ways = 2 if attribute(node.proto, "direction") == b"bidirectional" else 1
    hidden = node.integer("hidden_size")
    last = node.kind(0), (ways, batch, hidden)
    return [(node.kind(0), (steps, ways, batch, hidden)), last, last]


def _attention(node: _Node) -> Sequence[Made]:
    """Attention on one activation; one weight computes queries, keys and values from it."""
    batch, steps, _ = node.shape(0)
    _, columns = node.shape(1)
    hidden = node.integers("qkv_hidden_sizes")
    width = hidden[2] if hidden else columns // 3
    kind = node.kind(2) if node.proto.op_type == "QAttention" else node.kind(0)
    return [(kind, (batch, steps, width))]


def _many_headed_attention(node: _Node) -> Sequence[Made]:
    """Attention with queries [batch, steps, width] and values [batch, others, width] or [batch,
    heads, others, width / heads].
    """
    query, key, value = node.shape(0), node.shape(1), node.shape(2)
    if len(query) != 3 or len(key) != len(value):
        raise UnknownTypeError
    width = value[2] if len(value) == 3 else value[1] * value[3]
    return [(node.kind(0), (*query[:2], width))]


def _embedded(node: _Node) -> Sequence[Made]:
    batch, steps = node.shape(0)
    whole = node.kind(2), (batch, steps, node.shape(2)[1])
    return [whole, (onnx.TensorProto.INT32, (batch,)), whole]


_LIKE_FIRST = (
    *("BiasGelu", "FastGelu", "Gelu", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"),
    *("QuickGelu", "RotaryEmbedding"),
)

RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_LIKE_FIRST, _like_first),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul"), _product),
    **dict.fromkeys(("Attention", "QAttention"), _attention),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _normalised),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _broadcast(0, 3)),
    "DequantizeLinear": _dequantised,
    "DynamicQuantizeLSTM": _recurrent,
    "DynamicQuantizeMatMul": _as("MatMul", (0, 1)),
    "EmbedLayerNormalization": _embedded,
    "FusedConv": _as("Conv", (0, 1)),
    "FusedGemm": _as("Gemm", (0, 1)),
    "MatMulIntegerToFloat": _integer_product,
    "MatMulNBits": _product_with_few_bits,
    "MultiHeadAttention": _many_headed_attention,
    "QGemm": _quantised_gemm,
    "QLinearAveragePool": _as("AveragePool"),
    "QLinearConcat": _concatenated,
    "QLinearGlobalAveragePool": _as("GlobalAveragePool"),
    "QLinearWhere": _broadcast(0, 4, 1),
    "QuantizeLinear": _quantised,
}
"""Operator of `com.microsoft` → the types of its outputs. An output without a rule (the keys and
values that an attention passes to the next step) has no type and is refused.
"""


def _as_float(node: _Node) -> Sequence[Made]:
    return [(onnx.TensorProto.FLOAT, node.shape(0))]


def _selected(node: _Node) -> Sequence[Made]:
    shape, (*_, count) = node.shape(0), node.shape(1)
    return [(node.kind(0), (*(shape[:-1] or (1,)), count))]


def _joined(node: _Node) -> Sequence[Made]:
    shape = node.shape(0)
    rows = shape[:-1] or (1,)
    return [(onnx.TensorProto.FLOAT, (*rows, sum(node.integers("inputdimensions"))))]


def _labelled(node: _Node) -> Sequence[Made]:
    """The result has the type of the labels: `values_tensor`, or a list of one type."""
    tensor = attribute(node.proto, "values_tensor")
    if isinstance(tensor, onnx.TensorProto):
        return [(tensor.data_type, node.shape(0))]
    kinds = {"int64s": onnx.TensorProto.INT64, "floats": onnx.TensorProto.FLOAT}
    found = [
        kind for name, kind in kinds.items() if attribute(node.proto, f"values_{name}") is not None
    ]
    if not found:
        raise UnknownTypeError
    return [(found[0], node.shape(0))]


def _one_hot(node: _Node) -> Sequence[Made]:
    count = len(node.integers("cats_int64s"))
    return [(onnx.TensorProto.FLOAT, (*node.shape(0), count))]


def _rows(node: _Node) -> int:
    shape = node.shape(0)
    return shape[0] if len(shape) > 1 else 1


def _regressed(targets: str) -> _Rule:
    def rule(node: _Node) -> Sequence[Made]:
        return [(onnx.TensorProto.FLOAT, (_rows(node), node.integer(targets, 1)))]

    return rule


def _tree_ensemble(node: _Node) -> Sequence[Made]:
    return [(node.kind(0), (_rows(node), node.integer("n_targets", 1)))]


def _classified(labels: str) -> _Rule:
    def rule(node: _Node) -> Sequence[Made]:
        classes = node.integers(labels)
        if not classes:
            raise UnknownTypeError  # the labels are text
        scores = onnx.TensorProto.FLOAT, (_rows(node), len(classes))
        return [(onnx.TensorProto.INT64, (_rows(node),)), scores]

    return rule


ML_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("Binarizer", "Imputer"), _like_first),
    **dict.fromkeys(("Normalizer", "Scaler"), _as_float),
    "ArrayFeatureExtractor": _selected,
    "FeatureVectorizer": _joined,
    "LabelEncoder": _labelled,
    "LinearClassifier": _classified("classlabels_ints"),
    "LinearRegressor": _regressed("targets"),
    "OneHotEncoder": _one_hot,
    "SVMClassifier": _classified("classlabels_ints"),
    "SVMRegressor": _regressed("n_targets"),
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _classified("classlabels_int64s"),
    "TreeEnsembleRegressor": _regressed("n_targets"),
}
"""Operator of `ai.onnx.ml` → the types of its outputs. The others work on text or on maps."""

RULES_OF: Mapping[str, Mapping[str, _Rule]] = {DOMAIN: RULES, ML_DOMAIN: ML_RULES}

BEFORE_ONNX: Mapping[str, _Rule] = {
    "LayerNormalization": _normalised,
    "SimplifiedLayerNormalization": _normalised_by_root,
}
"""Operators that ONNX Runtime's optimiser writes under ONNX's own name into files of operator sets
that lack them.
"""


def macs(node: onnx.NodeProto, shapes: Callable[[int], Shape], output: Shape) -> int | None:
    """Return the multiply-accumulates of an attention; None for any other operator."""
    if node.domain != DOMAIN or not node.op_type.endswith("Attention"):
        return None
    batch, steps, width = output
    if node.op_type == "MultiHeadAttention":
        depth = shapes(0)[-1]
        return batch * steps * shapes(1)[-2] * (depth + width)
    weight = shapes(1)
    projected = batch * steps * math.prod(weight)
    depth = (weight[1] - width) // 2
    return projected + batch * steps * steps * (depth + width)
