"""Read bfloat16 models as float32, and write float16 models with every rounding made explicit.

**bfloat16.** Every bfloat16 number is a float32 number: the same sign and exponent, with a longer
mantissa. NumPy lacks bfloat16, and ONNX Runtime has almost no operators for it on a CPU, so such a
model could run neither in parts nor as a whole. `widen` therefore keeps the exact values of the
weights and makes activations float32; a `Cast` to bfloat16 becomes one to float32 and no longer
rounds. Results are compared with the model in float32. The distance to the bfloat16 model cannot be
measured where nothing runs that model.

**float16.** Where a processor has no float16 kernels, ONNX Runtime computes in float32 and omits
the roundings between consecutive operators. `write_rounded` restores them with `Identity`
operators, which have a kernel for every type, in a session that fuses nothing. It takes two in a
row, because a single half-precision operator among others is computed in float32 too.
"""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from cnn.errors import ModelError
from cnn.reading.weights import messages, widened

_BFLOAT16, _FLOAT = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT

_TYPES = frozenset({"to", "dtype", "output_dtype", "stash_type"})
"""Attributes that are element types."""


def write_rounded(graph: Path, folder: Path) -> Path:
    """Write a copy of the model `graph` that rounds each float16 tensor; return its path.

    External weights are copied next to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    proto = onnx.load(str(graph), load_external_data=False)
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    half = {
        value.name
        for value in (*inferred.value_info, *inferred.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    }
    nodes = []
    for node in proto.graph.node:
        copy = deepcopy(node)
        nodes.append(copy)
        for index, name in enumerate(copy.output):
            if name in half and copy.op_type != "Constant":
                copy.output[index], between = f"{name}~1", f"{name}~2"
                nodes.append(helper.make_node("Identity", [copy.output[index]], [between]))
                nodes.append(helper.make_node("Identity", [between], [name]))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    for location in {y.value for x in proto.graph.initializer for y in x.external_data
                     if y.key == "location"}:  # fmt: skip
        # A copy, because readers refuse weights in links, even hard links.
        shutil.copyfile(graph.parent / location, folder / location)
    target = folder / f"{graph.name} rounded"
    target.write_bytes(proto.SerializeToString())
    return target


def widen(proto: onnx.ModelProto, label: str) -> None:
    """Replace bfloat16 by float32 throughout `proto`, whose weights are separate, in place.

    Raises `ModelError` for a constant that does not contain as many values as its shape has.
    """
    for message in messages(proto):
        if isinstance(message, onnx.TypeProto.Tensor):
            if message.elem_type == _BFLOAT16:
                message.elem_type = _FLOAT
        elif isinstance(message, onnx.AttributeProto):
            if message.name in _TYPES and message.i == _BFLOAT16:
                message.i = _FLOAT
        elif isinstance(message, onnx.TensorProto) and message.data_type == _BFLOAT16:
            try:
                array = widened(numpy_helper.to_array(message))
            except (TypeError, ValueError) as error:
                raise ModelError(
                    f"{label}: the constant {message.name!r} does not contain the values of "
                    "its shape"
                ) from error
            message.CopyFrom(numpy_helper.from_array(array, message.name))
