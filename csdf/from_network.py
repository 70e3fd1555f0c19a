"""From a network and a partition to phases and to CSDF graphs (§4.3 of Tang & Stefanov, 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cnn.network import Network, Tensor

HOST = "@host"
"""The device that feeds frames in and takes results out; it fires `SOURCE` and `SINK`."""

SOURCE = "@source"
SINK = "@sink"
"""The host's two phases: one sends every network input, the other receives every network output."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A group of one device's layers that are fired together.

    `inputs` are the tensors that it needs from outside itself, `outputs` those that others (or the
    user) need from it; `index` counts the device's phases in their order within a period.
    """

    name: str
    device: str
    index: int
    layers: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """One tensor on its way from the phase that makes it to all phases of one device that read it.

    `source` and `targets` are phase names (`SOURCE` and `SINK` on the host). A flow is one physical
    FIFO: a frame occupies a place in it until the last of `targets` has ended. In CSDF it is one
    channel per target, all of the same capacity, which says exactly that.
    """

    tensor: Tensor
    source: str
    source_device: str
    target_device: str
    targets: tuple[str, ...]

    @property
    def name(self) -> str:
        """Unique in a dataflow: tensor and target device."""
        return f"{self.tensor.name} → {self.target_device}"


@dataclass(frozen=True)
class Dataflow:
    """The phases of a partition, acyclic among themselves, and the flows between them."""

    network: Network
    partition: Mapping[str, str]
    phases: tuple[Phase, ...]
    flows: tuple[Flow, ...]
