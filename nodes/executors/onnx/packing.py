"""Which subnets gain nothing from ONNX Runtime's packing of weights.

It packs the weights of matrices while it loads a model, even those that lie packed in a file: one
after the other, they are read and copied before the copy is dropped for the file's. For the largest
layers of VGG16 that is 300 MB in passing, on top of as much in pages of the file. But packing pays
for products of many rows only; a network that computes one frame at a time multiplies one row, for
which weights as they are take as long (measured: 8.4 and 8.3 ms for 25088 × 2926).

A subnet tells how many rows its products have by the shapes of what they make (`value_info`), which
the launcher writes into it. The numbers are those of onnx.proto3.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodes.executors.onnx.protobuf import fields, submessages, text_field

UNPACKED = "unpacked"
"""A file in an entry whose weights are not packed."""

_GRAPH = 7
_NODE, _INITIALIZER, _OUTPUT, _VALUE_INFO = 1, 5, 12, 13
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_GRAPHS = (6, 11)
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TENSOR_TYPE, _SHAPE, _DIMENSION, _DIMENSION_VALUE = 1, 2, 1, 1

_PRODUCTS = frozenset({"Gemm", "MatMul"})
_OWN_LAYOUT = "com.microsoft.nchwc"
_NEVER_PACKED = frozenset(
    {"Add", "Sub", "Mul", "Div", "Sum", "Concat", "Gemm", "MatMul", "FusedGemm", "FusedMatMul"}
)


def multiplies_single_rows(model: bytes) -> bool:
    """Whether a subnet has products of matrices, each with one row, as far as it tells.

    Raises ValueError or IndexError for what is no ONNX model.
    """
    graph = _graph(model)
    rows = dict(_rows(graph))
    products = []
    for number, node in submessages(graph):
        if number == _NODE and text_field(node, _NODE_OPERATOR) in _PRODUCTS:
            products.append(text_field(node, _NODE_OUTPUT))
    return bool(products) and all(rows.get(name or "") == 1 for name in products)


def packs_others(model: bytes) -> bool:
    """Whether an optimised model has weights in files that something else than a product may pack,
    or bodies. Raises as `multiplies_single_rows`."""
    graph = _graph(model)
    weights = set()
    for number, tensor in submessages(graph):
        if number == _INITIALIZER and _has(tensor, _TENSOR_EXTERNAL):
            weights.add(text_field(tensor, _TENSOR_NAME))
    for number, node in submessages(graph):
        if number != _NODE:
            continue
        known = text_field(node, _NODE_OPERATOR) in _NEVER_PACKED
        if known or text_field(node, _NODE_DOMAIN) == _OWN_LAYOUT:
            continue
        for part, content in submessages(node):
            if part == _NODE_INPUT and str(content, "utf-8") in weights:
                return True
            if part == _NODE_ATTRIBUTE and any(_has(content, n) for n in _ATTRIBUTE_GRAPHS):
                return True
    return False


def _graph(model: bytes) -> memoryview:
    for number, value in fields(memoryview(model)):
        if number == _GRAPH and isinstance(value, memoryview):
            return value
    raise ValueError("no ONNX model")


def _rows(graph: memoryview) -> Iterator[tuple[str, int]]:
    """Tensors of known shape, each with the product of its dimensions but the last."""
    for number, value in submessages(graph):
        if number in (_OUTPUT, _VALUE_INFO):
            rows = 1
            for dimension in _dimensions(value)[:-1]:
                rows *= dimension
            yield text_field(value, _VALUE_NAME) or "", rows


def _dimensions(value: memoryview) -> list[int]:
    """Of a tensor's type; 0 for one that has no number."""
    found = []
    for each in _all(value, (_VALUE_TYPE, _TENSOR_TYPE, _SHAPE, _DIMENSION)):
        numbers = [n for key, n in fields(memoryview(each)) if key == _DIMENSION_VALUE]
        found.append(numbers[0] if numbers and isinstance(numbers[0], int) else 0)
    return found


def _all(message: memoryview, path: tuple[int, ...]) -> Iterator[bytes]:
    """All messages that are reached by these fields, one in the other."""
    if not path:
        yield bytes(message)
        return
    for number, value in submessages(message):
        if number == path[0]:
            yield from _all(value, path[1:])


def _has(message: memoryview, wanted: int) -> bool:
    return any(number == wanted for number, _ in fields(message))
