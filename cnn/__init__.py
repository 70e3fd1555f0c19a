"""Read networks from ONNX files as immutable layer graphs, and cut them into subnets.

`cnn.network` describes layers and tensors without `onnx`, which is imported only when a model is
read:

>>> import cnn
>>> model = cnn.read("examples/digits/digits.onnx")
>>> len(model.network.layers), model.network.inputs, model.network.outputs
(26, ('image',), ('probabilities',))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cnn.errors import CnnError, ModelError
from cnn.network import Layer, Network, Tensor

if TYPE_CHECKING:
    from cnn.model import Model, read
    from cnn.subnet import Subnet

__all__ = ["CnnError", "Layer", "Model", "ModelError", "Network", "Subnet", "Tensor", "read"]


def __getattr__(name: str) -> Any:
    if name in {"Model", "Subnet", "read"}:
        from cnn import model, subnet  # noqa: PLC0415

        return getattr(subnet if name == "Subnet" else model, name)
    raise AttributeError(f"module 'cnn' has no attribute {name!r}")
