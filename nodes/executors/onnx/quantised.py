"""Names the optimisers of ONNX Runtime that would change a quantised network beyond rounding.

Found with ONNX Runtime 1.31, by networks whose results went wrong:

- `WeightBiasQuantization` rounds weights that are not quantised to 8 bits, where a `Conv`, a
  `ConvTranspose`, a `Gemm`, or a `MatMul` that it makes a `Gemm` of, computes from dequantised
  values. And it rounds biases to multiples of input scale × weight scale. That is fine for most,
  but a channel of zeros may have any scale, and a bias may be more than 2³¹ multiples of a tiny
  one, or more than float16 can hold.
- `TransposeOptimizer` moves a quantiser from behind a `Transpose` to before it. If the tensor there
  is an output of the graph, the output is quantised too. A cut makes outputs, so a plan would be
  wrong where the whole network is right.
- `QDQPropagationTransformer` writes quantisers to int8 that cannot be loaded, from operator set 21
  on.
- `QDQSelectorActionTransformer` makes a `QLinearConcat` of float16 scales, which cannot be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nodes.executors.onnx.protobuf import (
    fields,
    nested,
    number_field,
    submessages,
    text_field,
    texts,
)
from nodes.executors.onnx.schema import (
    FLOAT,
    AttributeField,
    GraphField,
    NodeField,
    TensorField,
    ValueInfoField,
    external_entries,
    graphs,
)

_FLOAT16, _INT8 = 10, 3

_WEIGHED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

_LARGEST_COPIED_BYTES = 1 << 16
"""Scales and biases are smaller; of larger constants only the names are kept."""

_LARGEST_SCALE_TO_MEDIAN = 64.0
"""Up to this ratio of the scales of a weight's channels, all channels count as in use."""

_OPERATOR_SET_OF_INT8_FAULT = 21


def faulty_for_quantised(model: bytes, operator_set: int, folder: Path | None) -> list[str]:
    """Return the names of optimisers to switch off; `folder` holds the model's external data.

    Raises ValueError or IndexError if the bytes are not an ONNX model.
    """
    if b"QuantizeLinear" not in model and b"DequantizeLinear" not in model:
        return []
    found = {
        name
        for graph in graphs(memoryview(model))
        for name in _Scope(folder, operator_set).faults(graph)
    }
    return sorted(found)


@dataclass
class _Scope:
    """The constants and scales known when a node is reached, also those from around a body."""

    folder: Path | None
    operator_set: int
    constants: dict[str, bytes] = field(default_factory=dict)
    """The serialised tensor of each name, b"" if it is large or computed from other constants."""

    scales: dict[str, str] = field(default_factory=dict)
    """The name of the scale of each dequantised tensor, and of each made of one such tensor."""

    products: dict[str, list[str]] = field(default_factory=dict)
    """The inputs of each `MatMul`, by its output."""

    def faults(self, graph: memoryview) -> Iterator[str]:
        """Yield the names of faulty optimisers, some of them repeatedly."""
        for tensor in nested(graph, (GraphField.INITIALIZER,)):
            self._add_constant(text_field(tensor, TensorField.NAME) or "", tensor)
        operators, read = set(), set()
        for node in nested(graph, (GraphField.NODE,)):
            operator = text_field(node, NodeField.OP_TYPE) or ""
            inputs, outputs = texts(node, NodeField.INPUT), texts(node, NodeField.OUTPUT)
            operators.add(operator)
            read.update(inputs)
            yield from self._faults_at(operator, inputs)
            for attribute in nested(node, (NodeField.ATTRIBUTE,)):
                for part, body in submessages(attribute):
                    if part in (AttributeField.G, AttributeField.GRAPHS):
                        yield from deepcopy(self).faults(body)
                    elif part == AttributeField.T and operator == "Constant":
                        self._add_constant(outputs[0], body)
            self._pass_on(operator, inputs, outputs)
        values = nested(graph, (GraphField.OUTPUT,))
        results = {text_field(value, ValueInfoField.NAME) for value in values}
        if {"Transpose", "QuantizeLinear"} <= operators and results & read:
            yield from ("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider")

    def _add_constant(self, name: str, tensor: memoryview) -> None:
        is_small = len(tensor) <= _LARGEST_COPIED_BYTES
        self.constants[name] = bytes(tensor) if is_small else b""

    def _pass_on(self, operator: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        if operator == "DequantizeLinear":
            self.scales.update(dict.fromkeys(outputs, inputs[1]))
            return
        if operator == "MatMul":
            self.products[outputs[0]] = list(inputs)
        varying = [name for name in inputs if name and name not in self.constants]
        if not varying:
            for name in outputs:
                self.constants.setdefault(name, b"")
        elif len(varying) == 1 and varying[0] in self.scales:
            self.scales.update(dict.fromkeys(outputs, self.scales[varying[0]]))

    def _faults_at(self, operator: str, inputs: Sequence[str]) -> Iterator[str]:
        if operator in _WEIGHED and inputs[0] in self.scales:
            if inputs[1] in self.constants or self._rounds_bias(*inputs):
                yield "WeightBiasQuantization"
        elif operator == "Add":
            for product, bias in (inputs, reversed(inputs)):
                if product in self.products and self._rounds_bias(*self.products[product], bias):
                    yield "WeightBiasQuantization"
        elif operator == "Concat":
            kinds = (self._kind(self.scales[name]) for name in inputs if name in self.scales)
            if _FLOAT16 in kinds:
                yield "QDQSelectorActionTransformer"
        elif (
            operator == "DequantizeLinear"
            and self.operator_set >= _OPERATOR_SET_OF_INT8_FAULT
            and inputs[0] not in self.constants
            and any(self._kind(name) == _INT8 for name in inputs[2:])
        ):
            yield "QDQPropagationTransformer"

    def _rounds_bias(self, given: str, weight: str, bias: str = "", *_: str) -> bool:
        """Return whether rounding a constant bias may change the results of a channel."""
        if bias not in self.constants or not {given, weight} <= self.scales.keys():
            return False
        values = [self._values(name) for name in (self.scales[given], self.scales[weight], bias)]
        if any(array is None for array in values):
            return True
        steps, scales, biases = (np.asarray(array, np.float64) for array in values)
        if steps.size != 1 or scales.size not in (1, biases.size):
            return True
        is_uneven = scales.max() > _LARGEST_SCALE_TO_MEDIAN * np.median(scales)
        return bool(is_uneven or (np.abs(biases) >= 2.0**31 * steps * scales).any())

    def _kind(self, name: str) -> int:
        return number_field(memoryview(self.constants.get(name, b"")), TensorField.DATA_TYPE)

    def _values(self, name: str) -> NDArray[np.float32] | None:
        """Return the values of a constant, None if they are not float32 or not to be found."""
        tensor = memoryview(self.constants.get(name, b""))
        if self._kind(name) != FLOAT:
            return None
        where = dict(external_entries(tensor) or ())
        if where:
            return self._read(where)
        kept = (TensorField.RAW_DATA, TensorField.FLOAT_DATA)
        parts = (value for number, value in fields(tensor) if number in kept)
        content = b"".join(bytes(x) for x in parts if isinstance(x, memoryview))
        return np.frombuffer(content, np.float32) if content else None

    def _read(self, where: Mapping[str, str]) -> NDArray[np.float32] | None:
        location, size = where.get("location", ""), int(where.get("length", 0))
        if self.folder is None or "/" in location or not 0 < size <= _LARGEST_COPIED_BYTES:
            return None
        with (self.folder / location).open("rb") as file:
            file.seek(int(where.get("offset", 0)))
            return np.frombuffer(file.read(size), np.float32)
