"""What a network is: an immutable layer graph read from ONNX, and how subnets are cut from it."""

from cnn.errors import CnnError, ModelError
from cnn.model import Model, read
from cnn.network import Layer, Network, Tensor
from cnn.subnet import Subnet

__all__ = ["CnnError", "Layer", "Model", "ModelError", "Network", "Subnet", "Tensor", "read"]
