"""Models in bfloat16, read as what they are in float32.

Every bfloat16 number is a float32 number: the same sign and exponent, and a longer mantissa. NumPy
does not have bfloat16, and ONNX Runtime has hardly an operator for it on a CPU, so such a model
could be run neither in parts nor as a whole. Here its weights keep their exact values, and its
activations are float32: a `Cast` to bfloat16 becomes one to float32 and does not round any more.
What a run is compared with is therefore the model in float32; by how much the model in bfloat16 is
further from it cannot be measured where nothing runs that.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from cnn.errors import ModelError
from cnn.read.form import messages
from cnn.read.weights import widened

_BFLOAT16, _FLOAT = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT

_TYPES = frozenset({"to", "dtype", "output_dtype", "stash_type"})
"""Attributes that are element types."""


def widen(proto: onnx.ModelProto, label: str) -> None:
    """Let everything in `proto`, whose weights are apart, be float32 that is bfloat16; in place.

    Raises `ModelError` for a constant that does not hold the values it names.
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
                    f"{label}: the constant {message.name!r} does not hold the values it names"
                ) from error
            message.CopyFrom(numpy_helper.from_array(array, message.name))
