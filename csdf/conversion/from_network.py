"""Convert a network and a partition to phases and flows (§4.3 of Tang & Stefanov, 2021).

The paper's symbols, and where they are computed:

- Actor a_i executes partition nL_i, all layers of device i. In phase p ∈ [1, P_i] it executes the
  function Subnet_i^p, the layers nL_i^p: here a `Phase`. The layers are split into phases so that
  the graph of all phases is acyclic (`csdf.conversion.grouping`).
- Channel c_ij carries the tensor of an edge e_sp from a_i to a_j: here a `Flow`, one for each
  tensor and device that reads it.
- The production sequence U_ij and the consumption sequence V_ij of c_ij are those of
  `csdf.conversion.dataflow_graphs.device_graph`.
- The buffer rule, space for at least U_ij + V_ij tokens in c_ij, is in `csdf.conversion.skew`.

A phase has layers of one connected component of the network only. Networks that run side by side
are components of one graph (`cnn.merge`), so no phase of one waits for another's frame.

A network may consist of several copies of one, to which frames are dealt in a fixed cyclic pattern.
The pattern names the copy of each frame of a cycle: (0, 0, 1) gives two frames of three to copy 0
and one to copy 1. The host's source then has as many phases as the cycle has frames. On the
channels of a copy it produces one frame in the phases that deal to that copy, and nothing in the
others; the sink consumes likewise, so results arrive in frame order. A copy that gets c frames of a
cycle fires its phases c times per iteration.

Source of the latter: the split of a batch over unequal processors is that of Vanishree et al.,
"CoIn: Accelerated CNN Co-Inference through data partitioning on heterogeneous devices", ICACCS
2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cnn.network import Network, Tensor
from csdf.conversion.grouping import Edge, group
from csdf.errors import ConversionError

HOST = "@host"
"""The device that feeds frames in and takes results out; it fires `SOURCE` and `SINK`."""

SOURCE = "@source"
SINK = "@sink"
"""The host's two phases: one sends every network input, the other receives every network output."""

STATE_FRAMES = 2
"""Frames of a state that exist at the same time: one is read while the next is written."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A group of one device's layers that are fired together.

    `inputs` are the tensors that it reads but does not make, `outputs` those that other phases or
    the host read; `index` counts the device's phases in their order within a period. `state` are
    the pairs of its layers (see `cnn.network.Layer`): a tensor that is read in a frame, and the
    tensor of the frame before that it is.
    """

    name: str
    device: str
    index: int
    layers: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    state: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """One tensor on its way from the phase that makes it to all phases of one device that read it.

    `source` and `targets` are phase names (`SOURCE` and `SINK` on the host). A flow is one physical
    FIFO: a frame occupies a place in it until the last of `targets` has ended. In the CSDF graph it
    is one channel per target, all of the same capacity, which means the same.
    """

    tensor: Tensor
    source: str
    source_device: str
    target_device: str
    targets: tuple[str, ...]

    @property
    def name(self) -> str:
        """The names of tensor and target device, which are unique in a dataflow."""
        return f"{self.tensor.name} → {self.target_device}"

    @property
    def is_local(self) -> bool:
        """Whether source and target are the same device."""
        return self.source_device == self.target_device


@dataclass(frozen=True)
class Dataflow:
    """The phases of a partition, acyclic among themselves, and the flows between them.

    `phases` stand in a topological order, and a device's phases in the order of their `index`;
    `flows` in the order in which their tensors are made, network inputs first.

    `dealing` is the copy of the network to which each frame of a cycle goes; without copies, a
    cycle has one frame. A device has phases of one copy only.
    """

    network: Network
    partition: Mapping[str, str]
    phases: tuple[Phase, ...]
    flows: tuple[Flow, ...]
    dealing: tuple[int, ...] = (0,)

    @cached_property
    def phase(self) -> Mapping[str, Phase]:
        """Phases by name, without `SOURCE` and `SINK`."""
        return {phase.name: phase for phase in self.phases}

    @cached_property
    def devices(self) -> Mapping[str, tuple[Phase, ...]]:
        """The phases of each device in the order of their index, without the host."""
        found: dict[str, list[Phase]] = {}
        for phase in self.phases:
            found.setdefault(phase.device, []).append(phase)
        return {device: tuple(phases) for device, phases in found.items()}

    @cached_property
    def copy_of(self) -> Mapping[str, int]:
        """The copy of the network to which each tensor belongs."""
        return _copies(self.network, max(self.dealing) + 1)

    @cached_property
    def firings(self) -> Mapping[str, int]:
        """How often each phase fires in a cycle of `dealing`: once without copies."""
        return {
            phase.name: self.dealing.count(self.copy_of[phase.inputs[0]]) for phase in self.phases
        }

    def state_bytes(self, phase: Phase) -> int:
        """Return the memory of a phase's state: the frame that is read and the one written."""
        sizes = (self.network.tensors[tensor].bytes for tensor, _ in phase.state)
        return STATE_FRAMES * sum(sizes)


def convert(
    network: Network, partition: Mapping[str, str], dealing: tuple[int, ...] = (0,)
) -> Dataflow:
    """Split each device's layers into phases, and route the tensors between them.

    `partition` maps the name of every layer to that of a device; `dealing` is as in `Dataflow`.
    Raises `ConversionError` if a layer has no device, if `partition` names a layer that the network
    lacks, or if a device is called `HOST`; and if frames are dealt to a copy that does not exist,
    if a copy gets no frame, or if two copies share a device.

    The middle layer is on another device, so the first device has two phases:

    >>> from cnn.network import Layer, Network, Tensor
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xabc"}
    >>> layers = [Layer(made, "Relu", (read,), (made,)) for read, made in ("xa", "ab", "bc")]
    >>> network = Network("chain", tuple(layers), tensors, {}, ("x",), ("c",))
    >>> dataflow = convert(network, {"a": "d1", "b": "d2", "c": "d1"})
    >>> [phase.name for phase in dataflow.phases]
    ['d1/0', 'd2/0', 'd1/1']
    >>> [flow.name for flow in dataflow.flows]
    ['x → d1', 'a → d2', 'b → d1', 'c → @host']
    """
    dataflow = Converter(network)(partition)
    if dealing == (0,):
        return dataflow
    dealt = replace(dataflow, dealing=dealing)
    _check_dealing(dealt)
    return dealt


class Converter:
    """Convert many partitions of one network; what depends on the network alone is done once."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._numbers = network.place
        outputs = frozenset(network.outputs)
        producers = [(tensor, -1) for tensor in dict.fromkeys(network.inputs)]
        for number, layer in enumerate(network.layers):
            producers.extend((tensor, number) for tensor in layer.outputs)
        self._edges: dict[str, Edge] = {}
        for name, producer in producers:
            tensor = network.tensors[name]
            readers = tuple(self._numbers[reader] for reader in network.consumers[name])
            if tensor.elements == 0 and (readers or name in outputs):
                raise ConversionError(
                    f"tensor {name!r} of shape {list(tensor.shape)} has no elements, so it cannot "
                    "be sent; remove its layer from the model or fix the input shape"
                )
            self._edges[name] = Edge(producer, readers, tensor.bytes, name in outputs)

    def __call__(self, partition: Mapping[str, str]) -> Dataflow:
        """Return what `convert` does."""
        layers = self._network.layers
        devices = self._devices(partition)
        # Networks side by side get separate phases, as if each had its own devices.
        places = list(zip(devices, self._network.component, strict=True))
        numbering = {place: number for number, place in enumerate(dict.fromkeys(places))}
        groups = group(list(self._edges.values()), [numbering[place] for place in places])
        names: list[str] = [""] * len(layers)
        indices: list[tuple[str, int]] = []
        used: dict[str, int] = {}
        for members in groups:
            device = devices[members[0]]
            index = used.get(device, 0)
            used[device] = index + 1
            indices.append((device, index))
            for member in members:
                names[member] = f"{device}/{index}"
        phases = tuple(
            self._phase(members, names, device, index)
            for members, (device, index) in zip(groups, indices, strict=True)
        )
        for phase in phases:
            if not phase.inputs:
                raise ConversionError(
                    f"layer {phase.layers[0]!r} reads no tensor, so nothing paces its firings; "
                    "fold it into the model as a constant"
                )
        order = {phase.name: phase.index for phase in phases}
        return Dataflow(
            self._network,
            {layer.name: device for layer, device in zip(layers, devices, strict=True)},
            phases,
            tuple(self._flows(names, devices, order)),
        )

    def _devices(self, partition: Mapping[str, str]) -> list[str]:
        missing = [name for name in self._numbers if name not in partition]
        if missing:
            raise ConversionError(
                f"the partition gives no device to {_listed(missing)}; assign every layer"
            )
        unknown = [name for name in partition if name not in self._numbers]
        if unknown:
            raise ConversionError(
                f"the partition names {_listed(unknown)}, which network {self._network.name!r} "
                "does not have; was it made for another model?"
            )
        devices = [partition[name] for name in self._numbers]
        if HOST in devices:
            raise ConversionError(f"no device can be called {HOST!r}: that is the launcher's name")
        return devices

    def _phase(self, members: list[int], names: list[str], device: str, index: int) -> Phase:
        own = f"{device}/{index}"
        inputs: dict[str, None] = {}
        outputs: list[str] = []
        for member in members:
            layer = self._network.layers[member]
            for tensor in layer.inputs:
                producer = self._edges[tensor].producer
                if producer < 0 or names[producer] != own:
                    inputs[tensor] = None
            for tensor in layer.outputs:
                edge = self._edges[tensor]
                if edge.is_output or any(names[reader] != own for reader in edge.readers):
                    outputs.append(tensor)
        layers = [self._network.layers[member] for member in members]
        return Phase(
            own,
            device,
            index,
            tuple(layer.name for layer in layers),
            tuple(inputs),
            tuple(outputs),
            tuple(pair for layer in layers for pair in layer.state),
        )

    def _flows(self, names: list[str], devices: list[str], order: Mapping[str, int]) -> list[Flow]:
        flows = []
        for name, edge in self._edges.items():
            source, source_device = SOURCE, HOST
            if edge.producer >= 0:
                source, source_device = names[edge.producer], devices[edge.producer]
            targets: dict[str, dict[str, None]] = {}
            for reader in edge.readers:
                if names[reader] != source:
                    targets.setdefault(devices[reader], {})[names[reader]] = None
            tensor = self._network.tensors[name]
            flows += [
                Flow(
                    tensor,
                    source,
                    source_device,
                    device,
                    tuple(sorted(read, key=order.__getitem__)),
                )
                for device, read in targets.items()
            ]
            if edge.is_output:
                flows.append(Flow(tensor, source, source_device, HOST, (SINK,)))
        return flows


def balanced_pattern(frames: Sequence[int]) -> tuple[int, ...]:
    """Return a pattern that deals `frames[i]` ≥ 0 frames of a cycle to copy i, spread evenly.

    Frame k goes to the copy whose next frame is due first, where copy i's j-th frame is due at
    (j + ½) / frames[i] of the cycle. So no copy is ever a whole frame ahead of its share or behind.

    >>> balanced_pattern([2, 1])
    (0, 1, 0)
    """
    due = [
        ((2 * turn + 1) / (2 * count), copy)
        for copy, count in enumerate(frames)
        for turn in range(count)
    ]
    return tuple(copy for _, copy in sorted(due))


def longest_wait(pattern: Sequence[int], copy: int) -> int:
    """Return the most frames of `copy` between two consecutive ones of any other copy, at least 1.

    >>> longest_wait((0, 0, 1), copy=0)
    2
    """
    most = 1
    for other in set(pattern) - {copy}:
        turns = [place for place, dealt in enumerate(pattern) if dealt == other]
        for start, stop in zip(turns, [*turns[1:], turns[0] + len(pattern)], strict=True):
            between = (pattern[place % len(pattern)] for place in range(start, stop))
            most = max(most, sum(dealt == copy for dealt in between))
    return most


def _copies(network: Network, count: int) -> Mapping[str, int]:
    """Return the copy to which each tensor belongs, in a network of `count` copies side by side.

    The network's inputs are those of one copy, then those of the next. Raises `ConversionError` if
    that cannot be, or if a layer does not read tensors of exactly one copy.
    """
    inputs = network.inputs
    if count < 1 or len(inputs) % count:
        raise ConversionError(f"{len(inputs)} network inputs are not those of {count} copies")
    each = len(inputs) // count
    copy = {tensor: number // each for number, tensor in enumerate(inputs)}
    for layer in network.layers:
        copies = {copy[tensor] for tensor in layer.inputs}
        if len(copies) != 1:
            raise ConversionError(f"layer {layer.name!r} reads tensors of {len(copies)} copies")
        copy.update(dict.fromkeys(layer.outputs, copies.pop()))
    return copy


def _check_dealing(dataflow: Dataflow) -> None:
    idle = set(range(max(dataflow.dealing) + 1)) - set(dataflow.dealing)
    if idle or min(dataflow.dealing) < 0:
        raise ConversionError(f"no frame of the cycle {dataflow.dealing} goes to some copies")
    copy = dataflow.copy_of
    for device, phases in dataflow.devices.items():
        copies = {copy[phase.inputs[0]] for phase in phases}
        if len(copies) > 1:
            raise ConversionError(
                f"device {device!r} has layers of {len(copies)} copies of the network; "
                "give it layers of one"
            )


def _listed(layers: list[str]) -> str:
    shown = ", ".join(repr(name) for name in layers[:3])
    more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
    return f"layer{'s' if len(layers) > 1 else ''} {shown}{more}"
