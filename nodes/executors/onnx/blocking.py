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

from collections.abc import Mapping

from nodes.executors.onnx.protobuf import (
    edited,
    field,
    nested,
    number_field,
    submessages,
    text_field,
    texts,
)
from nodes.executors.onnx.schema import (
    FLOAT,
    TENSOR_ELEMENT_TYPE,
    TYPE_TENSOR,
    GraphField,
    ModelField,
    NodeField,
    ValueInfoField,
    dimensions,
    graphs,
    has_bodies,
)
from nodes.executors.onnx.writing import node

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
                for name in texts(message, NodeField.INPUT):
                    read_by.setdefault(name, set()).add(operator)
    renamed = {name: _MARK + name for name in inputs if read_by.get(name, set()) & _BLOCKED_IF_READ}
    if not renamed or not operators & _CONVOLUTIONS:
        return None
    kernel = {"kernel_shape": (1, 1)}
    pools = b"".join(
        field(GraphField.NODE, node("MaxPool", (source,), (target,), kernel, target))
        for source, target in renamed.items()
    )
    return _edited(model, renamed, first=pools)


def without_pools(model: bytes) -> bytes:
    """Return an optimised subnet without the poolings of `with_pools`; raises as that does."""
    renamed = {}
    for graph in graphs(memoryview(model)):
        for number, pool in submessages(graph):
            if number == GraphField.NODE and _is_ours(pool):
                renamed[texts(pool, NodeField.OUTPUT)[0]] = texts(pool, NodeField.INPUT)[0]
    return _edited(model, renamed) if renamed else model


def image_channels(value_info: memoryview) -> int:
    """Return C of a float32 tensor [N, C, H, W]; 0 if it is unknown, and for any other tensor."""
    path = (ValueInfoField.TYPE, TYPE_TENSOR)
    kinds = [number_field(each, TENSOR_ELEMENT_TYPE) for each in nested(value_info, path)]
    sizes = dimensions(value_info)
    return sizes[1] if kinds == [FLOAT] and len(sizes) == 4 else 0


def _can_be_blocked(value_info: memoryview) -> bool:
    """Whether the channels of an image fill whole blocks."""
    channels = image_channels(value_info)
    return channels > 0 and channels % BLOCK == 0


def _is_ours(layer: memoryview) -> bool:
    name = text_field(layer, NodeField.NAME) or ""
    return text_field(layer, NodeField.OP_TYPE) == "MaxPool" and name.startswith(_MARK)


def _edited(model: bytes, renamed: Mapping[str, str], first: bytes = b"") -> bytes:
    """Return the model without our poolings, in which other nodes read the tensors that `renamed`
    names instead; `first` goes before all nodes."""

    def edited_name(name: memoryview) -> bytes:
        return renamed.get(text := str(name, "utf-8"), text).encode()

    def edited_node(layer: memoryview) -> bytes | None:
        return None if _is_ours(layer) else edited(layer, NodeField.INPUT, edited_name)

    def edited_graph(graph: memoryview) -> bytes:
        return first + edited(graph, GraphField.NODE, edited_node)

    return edited(memoryview(model), ModelField.GRAPH, edited_graph)
