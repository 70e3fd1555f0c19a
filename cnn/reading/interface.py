"""Apply the user's choice of outputs and of constant inputs to a model.

Both change the model before any other step, so the unsimplified model that results are compared
with ends at the same tensors.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, Union

import numpy as np
import onnx
from onnx import helper

from cnn.errors import ModelError
from cnn.network import Array
from cnn.operators.bodies import names_read, reads
from cnn.operators.supported import numpy_dtype

Constant: TypeAlias = Union[bool, int, float, Sequence["Constant"]]  # noqa: UP007 - of Python 3.10
"""A number, or a list of numbers for a tensor of one axis, and so on."""


_LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Interface:
    """The `outputs` at which the network ends (none: the file's), and inputs as `constants`."""

    outputs: tuple[str, ...] = ()
    constants: Mapping[str, Constant] = field(default_factory=dict)

    def apply(self, proto: onnx.ModelProto, weights: dict[str, Array], label: str) -> bytes:
        """Change `proto` and `weights` in place; return a hash of the choice, b"" if there is none.

        Operators that no output needs are removed. A tensor that is both an input and an output of
        the model becomes two: the output is renamed `NAME_output`. Raises `ModelError` for a name
        that the model does not have, and for a constant that does not suit its input.
        """
        if self.outputs:
            _stop_at(self.outputs, proto.graph, weights, label)
        _separate_ends(proto.graph, weights)
        digest = hashlib.sha256(repr(self.outputs).encode())
        for name in sorted(self.constants):
            array = _bound(name, self.constants[name], proto.graph, label)
            weights[name] = array
            digest.update(f"{name}\0{array.dtype.name}{array.shape}\0".encode() + array.tobytes())
        kept = [value for value in proto.graph.input if value.name not in self.constants]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        return digest.digest() if self.outputs or self.constants else b""


def _stop_at(
    outputs: Sequence[str], graph: onnx.GraphProto, weights: dict[str, Array], label: str
) -> None:
    made = [name for node in graph.node for name in node.output if name]
    known = {*made, *weights, *(value.name for value in graph.input)}
    for index, name in enumerate(outputs):
        if name not in known:
            own = f"; its outputs are {', '.join(value.name for value in graph.output)}"
            raise ModelError(
                f"{label}: outputs: the model has no tensor {name!r}{_suggestion(name, known, own)}"
            )
        if name in outputs[:index]:
            raise ModelError(f"{label}: outputs: {name!r} is listed twice")
    typed = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    ends = [typed.get(name, onnx.ValueInfoProto(name=name)) for name in outputs]
    ends = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in ends]
    del graph.output[:]
    graph.output.extend(ends)
    _remove_unneeded(graph)
    for name in weights.keys() - set(names_read(graph)):
        del weights[name]


def _remove_unneeded(graph: onnx.GraphProto) -> None:
    """Remove the nodes that no output depends on; the nodes may stand in any order."""
    maker = {name: node for node in graph.node for name in node.output if name}
    waiting = [value.name for value in graph.output]
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in needed or name not in maker:
            continue
        node = maker[name]
        needed.update(filter(None, node.output))
        waiting.extend(reads(node))
    kept = [node for node in graph.node if not needed.isdisjoint(node.output)]
    del graph.node[:]
    graph.node.extend(kept)


def _separate_ends(graph: onnx.GraphProto, weights: Mapping[str, Array]) -> None:
    """List each output once; copy an output that is also an input to a separate tensor.

    Otherwise no layer would produce that output.
    """
    inputs = {value.name for value in graph.input} - weights.keys()
    taken = {*inputs, *weights, *(name for node in graph.node for name in node.output)}
    ends = {value.name: value for value in graph.output}
    if len(ends) == len(graph.output) and inputs.isdisjoint(ends):
        return
    kept = []
    for name, value in ends.items():
        end = onnx.ValueInfoProto()
        end.CopyFrom(value)
        if name in inputs:
            end.name = f"{name}_output"
            while end.name in taken:
                end.name += "_"
            taken.add(end.name)
            graph.node.append(helper.make_node("Identity", [name], [end.name]))
        kept.append(end)
    del graph.output[:]
    graph.output.extend(kept)


def _bound(name: str, value: Constant, graph: onnx.GraphProto, label: str) -> Array:
    """Return a constant in the dtype and shape of its input."""
    what = f"{label}: inputs: the constant for {name!r}"
    known = {found.name: found for found in graph.input}
    if name not in known:
        own = f"; its inputs are {', '.join(known)}"
        raise ModelError(
            f"{label}: inputs: the model has no input {name!r}{_suggestion(name, known, own)}"
        )
    if not known[name].type.HasField("tensor_type"):
        raise ModelError(f"{what} cannot be set: this input is not a tensor")
    tensor = known[name].type.tensor_type
    dtype = np.dtype(numpy_dtype(tensor.elem_type, f"{label}: input {name!r}"))
    try:
        array = np.array(value)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in {"b": "b", "f": "iuf"}.get(dtype.kind, "iu"):
        wanted = {"b": "true or false", "f": "numbers"}.get(dtype.kind, "whole numbers")
        raise ModelError(
            f"{what} is {_brief(value)}, but the input holds {dtype.name} values: write {wanted}, "
            "and lists of equal length for its axes"
        )
    if dtype.kind != "b" and not _holds(dtype, array):
        raise ModelError(f"{what} is {_brief(value)}, which {dtype.name} cannot represent")
    sizes = [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim]
    if not array.ndim and all(size in (1, None) for size in sizes):
        array = array.reshape((1,) * len(sizes))
    if tensor.HasField("shape") and (
        len(sizes) != array.ndim
        or any(size not in (None, own) for size, own in zip(sizes, array.shape, strict=True))
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in sizes)
        raise ModelError(f"{what} has the shape {list(array.shape)}, and the input has [{wanted}]")
    return array.astype(dtype)


def _holds(dtype: np.dtype[np.generic], array: Array) -> bool:
    if dtype.kind == "f":
        return bool(np.all(np.abs(array.astype(np.float64)) <= float(np.finfo(dtype.name).max)))
    known = np.iinfo(dtype.name)
    return all(known.min <= number <= known.max for number in array.reshape(-1).tolist())


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _suggestion(wrong: str, known: Iterable[str], otherwise: str) -> str:
    close = difflib.get_close_matches(wrong, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else otherwise
