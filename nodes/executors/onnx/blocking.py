"""Lets ONNX Runtime keep its blocked layout after tensors that enter a subnet.

On x86-64 processors ONNX Runtime computes convolutions in blocks of channels (NCHWc; 16 with
AVX-512). It converts what a convolution or a pooling reads, but fuses a sum, a concatenation or an
activation only where everything that it reads is blocked already. A tensor that enters a subnet and
goes into a sum first is not, nor is then the result of the sum, nor that of the next one. So a
residual block that is cut off from the one before loses its fusions, and so do all blocks after it:
ResNet50's phases of a plan for four devices took 10 % longer together than the whole network, and
take 6 % longer now; DenseNet121 in seven parts took 6.0 % longer, and takes 3.9 %. On ARM nothing
is blocked, and a sum is fused whatever it reads, so all this changes nothing there.

`with_pools` therefore lets such a tensor pass through a pooling of one element, which the optimiser
converts and after which everything is blocked as in the whole network. `without_pools` removes it
from what the optimiser has written, so that only the conversion remains. Neither changes a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodes.executors.onnx.protobuf import (
    field,
    fields,
    integer_field,
    nested,
    parts,
    submessages,
    text_field,
)
from nodes.executors.onnx.schema import (
    SHAPE_DIM,
    TENSOR_ELEMENT_TYPE,
    TENSOR_SHAPE,
    TYPE_TENSOR,
    AttributeField,
    DimensionField,
    GraphField,
    ModelField,
    NodeField,
    ValueInfoField,
    graphs,
    has_bodies,
)

BLOCK = 16
"""The largest block of channels of any processor; smaller ones divide it."""

_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})

_BLOCKED_IF_READ = frozenset(
    {
        *("Add", "Sum", "Mul", "Concat", "BatchNormalization"),
        *("Relu", "LeakyRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish"),
    }
)
"""Operators that ONNX Runtime computes in blocks, or fuses, only after blocked tensors."""

_MARK = "csdf-edge blocked "
"""How the names of the poolings begin."""

_FLOAT, _INTS = 1, 7
"""`TensorProto.DataType.FLOAT` and `AttributeProto.AttributeType.INTS`."""


def with_pools(model: bytes) -> bytes | None:
    """Return a subnet with a pooling of one element after each input that should be blocked.

    None if there is no such input, or if operators have graphs inside, which may also read inputs.
    Raises ValueError or IndexError if the bytes are not an ONNX model.
    """
    if has_bodies(memoryview(model)):
        return None
    inputs: list[str] = []
    read_by: dict[str, set[str]] = {}
    operators = set()
    for graph in graphs(memoryview(model)):
        for number, message in submessages(graph):
            if number == GraphField.INPUT and _can_be_blocked(message):
                inputs.append(text_field(message, ValueInfoField.NAME) or "")
            elif number == GraphField.NODE:
                operator = text_field(message, NodeField.OP_TYPE) or ""
                operators.add(operator)
                for name in _texts(message, NodeField.INPUT):
                    read_by.setdefault(name, set()).add(operator)
    renamed = {name: _MARK + name for name in inputs if read_by.get(name, set()) & _BLOCKED_IF_READ}
    if not renamed or not operators & _CONVOLUTIONS:
        return None
    pools = b"".join(field(GraphField.NODE, _pool(*pair)) for pair in renamed.items())
    return _edited(model, renamed, first=pools)


def without_pools(model: bytes) -> bytes:
    """Return an optimised subnet without the poolings of `with_pools`; raises as that does."""
    renamed = {}
    for graph in graphs(memoryview(model)):
        for number, node in submessages(graph):
            if number == GraphField.NODE and _is_ours(node):
                renamed[_texts(node, NodeField.OUTPUT)[0]] = _texts(node, NodeField.INPUT)[0]
    return _edited(model, renamed) if renamed else model


def image_channels(value_info: memoryview) -> int:
    """Return C of a float32 tensor [N, C, H, W]; 0 if it is unknown, and for any other tensor."""
    kinds = [
        kind
        for tensor in nested(value_info, (ValueInfoField.TYPE, TYPE_TENSOR))
        for number, kind in fields(tensor)
        if number == TENSOR_ELEMENT_TYPE
    ]
    sizes = []
    for each in nested(value_info, (ValueInfoField.TYPE, TYPE_TENSOR, TENSOR_SHAPE, SHAPE_DIM)):
        size = [size for key, size in fields(each) if key == DimensionField.DIM_VALUE]
        sizes.append(size[0] if size and isinstance(size[0], int) else 0)
    return sizes[1] if kinds == [_FLOAT] and len(sizes) == 4 else 0


def _can_be_blocked(value_info: memoryview) -> bool:
    """Whether the channels of an image fill whole blocks."""
    channels = image_channels(value_info)
    return channels > 0 and channels % BLOCK == 0


def _pool(source: str, target: str) -> bytes:
    kernel = (
        field(AttributeField.NAME, b"kernel_shape")
        + integer_field(AttributeField.INTS, 1) * 2
        + integer_field(AttributeField.TYPE, _INTS)
    )
    return (
        field(NodeField.INPUT, source.encode())
        + field(NodeField.OUTPUT, target.encode())
        + field(NodeField.NAME, target.encode())
        + field(NodeField.OP_TYPE, b"MaxPool")
        + field(NodeField.ATTRIBUTE, kernel)
    )


def _is_ours(node: memoryview) -> bool:
    name = text_field(node, NodeField.NAME) or ""
    return text_field(node, NodeField.OP_TYPE) == "MaxPool" and name.startswith(_MARK)


def _texts(message: memoryview, wanted: int) -> list[str]:
    return [str(text, "utf-8") for number, text in submessages(message) if number == wanted]


def _edited(model: bytes, renamed: Mapping[str, str], first: bytes = b"") -> bytes:
    """Return the model without our poolings, in which other nodes read the tensors that `renamed`
    names instead; `first` goes before all nodes."""
    return b"".join(
        field(ModelField.GRAPH, first + b"".join(_edited_graph(value, renamed)))
        if number == ModelField.GRAPH and isinstance(value, memoryview)
        else bytes(part)
        for number, value, part in parts(memoryview(model))
    )


def _edited_graph(graph: memoryview, renamed: Mapping[str, str]) -> Iterator[bytes]:
    for number, value, part in parts(graph):
        if number != GraphField.NODE or not isinstance(value, memoryview):
            yield bytes(part)
        elif not _is_ours(value):
            yield field(number, b"".join(_edited_node(value, renamed)))


def _edited_node(node: memoryview, renamed: Mapping[str, str]) -> Iterator[bytes]:
    for number, value, part in parts(node):
        name = str(value, "utf-8") if number == NodeField.INPUT else ""  # type: ignore[arg-type]
        yield field(number, renamed[name].encode()) if name in renamed else bytes(part)
