"""What a network is: an immutable layer graph read from ONNX, and how subnets are cut from it.

`onnx` is imported by whoever reads a model, not by those who only look at layers.
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
