"""The plan: everything that deployment needs, and the predictions for the run.

A plan follows from a network (with the strategy's rewrites), devices and an assignment of layers to
devices, and from nothing else: phases, channels, capacities, proofs and predictions are derived
(`partition.planner`). If the assignment of a saved plan is edited, all of them are derived again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cnn.network import Tensor
from cnn.rewrite.rewrites import Copies, Rewrite
from csdf.conversion.from_network import balanced_pattern
from partition.devices import Device
from partition.errors import PartitionError
from partition.pricing.memory_budget import START_UP_BYTES
from partition.wire import Encoding


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """A phase (see `csdf.conversion.from_network.Phase`) with its skew (periods) and predicted
    time.

    `copy` numbers the copy of the network that the phase belongs to (0 if the network was not
    copied). `state` lists the tensors that it keeps for its next frame: each tensor as the phase
    reads it, and the name of the output that it was one frame before. `busy_w` are the watts of its
    device while it fires (None: the device's `busy_w`).
    """

    name: str
    device: str
    index: int
    layers: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    skew: int
    predicted_s: float
    copy: int = 0
    state: tuple[tuple[Tensor, str], ...] = ()
    busy_w: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedChannel:
    """A flow (see `csdf.conversion.from_network.Flow`) with its capacity in frames.

    `unsent_frames` of the `capacity_frames` of both ends together are the producer's
    (`csdf.conversion.skew.Pipeline`). `copy` numbers the copy of the network that the flow belongs
    to (0 if it was not copied). `encoded_bytes` is the expected size of a frame whose `encoding` is
    not raw.
    """

    tensor: Tensor
    source: str
    source_device: str
    target_device: str
    targets: tuple[str, ...]
    capacity_frames: int
    copy: int = 0
    encoding: Encoding = "raw"
    encoded_bytes: int = 0
    unsent_frames: int = 0

    @property
    def is_local(self) -> bool:
        """Whether the channel stays on one device."""
        return self.source_device == self.target_device

    @property
    def consumer_frames(self) -> int:
        """The most frames at the consumer."""
        return self.capacity_frames - self.unsent_frames

    @property
    def wire_bytes(self) -> int:
        """The expected bytes of a frame on its way, and while it waits to be read."""
        return self.tensor.bytes if self.encoding == "raw" else self.encoded_bytes

    @property
    def most_wire_bytes(self) -> int:
        """The most bytes that a frame may have on its way."""
        return self.tensor.bytes if self.encoding == "lossless" else self.wire_bytes


@dataclass(frozen=True, slots=True)
class MemoryPrediction:
    """The predicted memory of a device, in bytes, with the paper's Eq. 2 for comparison.

    `packing_bytes` is what the engine needs for a moment while it loads, before it allocates
    tensors.
    """

    weights_bytes: int
    activations_bytes: int
    channels_bytes: int
    engine_bytes: int
    eq2_bytes: int
    packing_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Weights + live activations + channels + engine, but at least what loading takes."""
        tensors = self.weights_bytes + self.activations_bytes + self.channels_bytes
        return max(tensors + self.engine_bytes, START_UP_BYTES + self.packing_bytes)


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """The costs of a layer: seconds on each of the plan's devices, and bytes of its weights.

    Weights that layers share count for the first of them only.
    """

    seconds: tuple[float, ...]
    weight_bytes: int


@dataclass(frozen=True)
class Plan:
    """A plan; see the module's docstring.

    `period_s` and `latency_s` are predictions, and `proof` is a sentence that says what was proved.
    `times` says whether the seconds of the phases, and with them the period and the latency, are
    estimates or were measured on the devices.

    `rewrites` lead from the network as it was read to the network whose layers are assigned.
    `optimal` says whether the strategy proved that no assignment is better by its objective (None:
    it does not prove anything); `gap` is the largest fraction by which a better assignment could
    beat this one.

    A firing computes `batch` frames (`cnn.rewrite.batches`): the seconds of phases, the period, the
    latency and the sizes of tensors are those of a batch. What is stated per frame is `frame_s`,
    `bytes_per_frame` and energy.

    `layers` has what each layer takes by the cost model. Certificates bound the period and the
    memory of every assignment by it.
    """

    network: str
    model_digest: str
    strategy: str
    explanation: str
    devices: tuple[Device, ...]
    assignment: Mapping[str, str]
    phases: tuple[PlannedPhase, ...]
    channels: tuple[PlannedChannel, ...]
    memory: Mapping[str, MemoryPrediction]
    period_s: float
    latency_s: float
    bytes_per_frame: int
    proof: str
    times: Literal["estimated", "measured"] = "estimated"
    rewrites: tuple[Rewrite, ...] = ()
    optimal: bool | None = None
    gap: float | None = None
    batch: int = 1
    layers: Mapping[str, LayerCosts] = field(default_factory=dict)

    @property
    def frame_s(self) -> float:
        """The predicted seconds per frame in the steady state: the period over the batch."""
        return self.period_s / self.batch

    @property
    def dealing(self) -> tuple[int, ...]:
        """The copy of the network that computes each frame of a cycle; (0,) if it was not copied.

        Period, loads and bytes per frame are averages over a cycle.
        """
        return dealing_of(self.rewrites)


def dealing_of(rewrites: Sequence[Rewrite]) -> tuple[int, ...]:
    """Return the copy of the network that computes each frame of a cycle, (0,) without copies.

    Raises `PartitionError` if copies are copied again.

    >>> dealing_of([Copies((2, 1))])
    (0, 1, 0)
    """
    copies = [rewrite for rewrite in rewrites if isinstance(rewrite, Copies)]
    if len(copies) > 1:
        raise PartitionError("the network is copied twice; copy it once, as often as needed")
    return balanced_pattern(copies[0].frames) if copies else (0,)
