"""Measurements on the devices, and how they replace the assumptions of the cost model.

- **Layers**, run one by one, give each layer's seconds on each device, for any assignment.
- **Subnets**, several layers that an engine fuses, correct these sums and tell what cutting and a
  run cost (`partition.measured.subnet_fit`). Where a phase of a plan is exactly a measured subnet,
  the plan has its measured time.
- **Links** and messages replace the rates of a device's wire.
- **Batches**, frames streamed through a whole copy on one device, give the speed of a copy
  (`partition.pricing.linear_models`).
- **Curves**, layers and a whole copy that compute several frames in one firing, give the times of a
  plan in batches (`Profile.in_batches`).
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from cnn.rewrite.rewrites import Copies, Rewrite, original_name, to_data
from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.batch_curves import seconds_at
from partition.measured.subnet_fit import MeasuredSubnet, fit_to_subnets, slowness
from partition.plan import Plan, PlannedPhase
from partition.pricing.compute_time import layer_seconds
from partition.pricing.layer_power import LayerWatts
from partition.pricing.linear_models import LinearTime, fit
from partition.pricing.run_costs import ThreadCosts

AGENTS_PART = 0.4
"""The part of the usual `Device.firing_s` that the agent takes; the rest is that of `run_s`."""

MOST_SUBNETS = 200
"""The most subnets that are kept of a device that has rehearsed many plans."""

CHANGED = 1.5
"""Earlier times of a device are dropped if new ones differ from them by this factor."""

LEAST_S = 1e-9
"""Seconds; a measured time below the resolution of clocks counts as this much."""

SubnetKey = tuple[str, frozenset[str], tuple[str, ...], tuple[str, ...]]
"""The identity of a subnet of a model: rewrites, layers, inputs, outputs."""


@dataclass(frozen=True, slots=True)
class SubnetTime:
    """`layers`, run as one model, took `seconds` per frame.

    `rewrites` is the digest of the rewrites that lead from the model's layers to these
    (`rewrites_digest`). If `is_derived`, the time follows from batches of another size: it informs
    the fit, but does not count as measured.
    """

    layers: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rewrites: str
    seconds: float
    is_derived: bool = False

    @property
    def key(self) -> SubnetKey:
        """The identity of the subnet, without its seconds."""
        return self.rewrites, frozenset(self.layers), self.inputs, self.outputs


Batch = tuple[int, float]
"""(frames, seconds): the time that this number of frames took, one after the other."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The times of firings of `frames` frames on a device: seconds of layers, run one by one, and
    of fused subnets. Layers may be missing.
    """

    frames: int
    layer_s: Mapping[str, float]
    subnets: tuple[SubnetTime, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeProfile:
    """The measurements of one device.

    `layer_s` maps layer names to seconds, and `subnets` are fused subnets. `message_s` and `byte_s`
    are the processor seconds that a message and a byte cost sender and receiver together (0: not
    measured). `busy_w` and `idle_w` are its watts while it computes and while it waits (None: no
    sensor). `batches` are two batches that a whole copy of the network computed, frame after frame
    (empty: the device has no room for a copy). `batched` has the times of firings of several
    frames, each of another number (None: not measured; empty: the device has no room for two).
    `layer_w` maps layer names to the watts of the device while it computes them (None: not
    measured; layers may be missing).
    """

    layer_s: Mapping[str, float] = field(default_factory=dict)
    subnets: tuple[SubnetTime, ...] = ()
    message_s: float = 0.0
    byte_s: float = 0.0
    busy_w: float | None = None
    idle_w: float | None = None
    batches: tuple[Batch, ...] = ()
    batched: tuple[BatchTimes, ...] | None = None
    layer_w: Mapping[str, float] | None = None

    @property
    def copy(self) -> LinearTime | None:
        """The linear time of a whole copy; None if batches were not measured or give no line."""
        try:
            return fit(*self.batches) if len(self.batches) == 2 else None
        except PartitionError:
            return None

    def with_subnets(self, measured: Iterable[SubnetTime]) -> NodeProfile:
        """Return the profile with `measured` added; the later of two times of one subnet counts."""
        return replace(self, subnets=_latest((*self.subnets, *measured)))

    def with_batched(self, measured: BatchTimes) -> NodeProfile:
        """Return the profile with the times of firings of several frames added; the later of two
        times counts."""
        known = {times.frames: times for times in self.batched or ()}
        before = known.get(measured.frames, BatchTimes(measured.frames, {}))
        known[measured.frames] = BatchTimes(
            measured.frames,
            {**before.layer_s, **measured.layer_s},
            _latest((*before.subnets, *measured.subnets)),
        )
        return replace(self, batched=tuple(known[frames] for frames in sorted(known)))

    def with_rehearsal(
        self, plan: Plan, device: str, phase_s: Sequence[float], message_s: float, byte_s: float
    ) -> NodeProfile:
        """Return the profile with what a device has measured of its phases of a plan, in order.

        Earlier measurements are dropped if the device has become `CHANGED` times as fast or as slow
        since.
        """
        own = sorted((p for p in plan.phases if p.device == device), key=lambda p: p.index)
        times = [subnet_time(plan, p, seconds) for p, seconds in zip(own, phase_s, strict=True)]
        known, at = self, 1 if plan.batch == 1 else plan.batch
        before = {
            subnet.key: subnet.seconds
            for subnet in (
                self.subnets
                if at == 1
                else (s for each in self.batched or () if each.frames == at for s in each.subnets)
            )
        }
        ratios = [math.log(t.seconds / before[t.key]) for t in times if t.key in before]
        if ratios and abs(statistics.median(ratios)) > math.log(CHANGED):
            known = NodeProfile(busy_w=self.busy_w, idle_w=self.idle_w)
        known = replace(
            known, message_s=message_s or known.message_s, byte_s=byte_s or known.byte_s
        )
        if at == 1:
            found = known.with_subnets(times)
            return replace(found, subnets=found.subnets[-MOST_SUBNETS:])
        return known.with_batched(BatchTimes(at, {}, tuple(times)))

    def in_batches(self, frames: int) -> NodeProfile:
        """Return the profile of a device that computes `frames` frames in one firing.

        Every time is then that of a firing. Layers follow their own curves, as do subnets that were
        measured with several numbers of frames; other subnets follow the curves of their layers.
        """
        if frames == 1:
            return self
        points = (BatchTimes(1, self.layer_s, self.subnets), *(self.batched or ()))
        layer_s = {
            name: seconds_at(
                [(at.frames, at.layer_s[name]) for at in points if name in at.layer_s], frames
            )
            for name in self.layer_s
        }
        grown = sum(layer_s.values()) / max(sum(self.layer_s.values()), LEAST_S)
        return replace(
            self,
            layer_s=layer_s,
            subnets=tuple(_subnets_at(points, layer_s, frames)),
            batches=tuple((number, seconds * grown) for number, seconds in self.batches),
            batched=None,
        )


def pooled(profiles: Sequence[NodeProfile]) -> NodeProfile:
    """Return the measurements that equal devices share: of layers, subnets, messages and bytes.

    What several have measured is the median of theirs.
    """
    subnets: dict[SubnetKey, list[SubnetTime]] = {}
    layers: dict[str, list[float]] = {}
    for each in profiles:
        for subnet in each.subnets:
            subnets.setdefault(subnet.key, []).append(subnet)
        for name, seconds in each.layer_s.items():
            layers.setdefault(name, []).append(seconds)
    return NodeProfile(
        layer_s={name: statistics.median(times) for name, times in layers.items()},
        subnets=tuple(
            replace(times[-1], seconds=statistics.median(each.seconds for each in times))
            for times in subnets.values()
        ),
        message_s=_median_of(each.message_s for each in profiles),
        byte_s=_median_of(each.byte_s for each in profiles),
    )


def sharing(own: NodeProfile, shared: NodeProfile) -> NodeProfile:
    """Return a device's profile with what equal devices share (`pooled`) for its own."""
    return replace(
        own,
        layer_s=shared.layer_s,
        subnets=shared.subnets,
        message_s=shared.message_s,
        byte_s=shared.byte_s,
    )


def _median_of(seconds: Iterable[float]) -> float:
    """Return the median of the measured times, 0 if there are none."""
    return statistics.median([each for each in seconds if each] or [0.0])


def measured_factor(node: NodeProfile, network: Network, device: Device) -> float | None:
    """Return the time of a device's fused subnets as a multiple of the estimated one.

    None if no subnet of the network as it was read was measured.
    """
    own = [each for each in node.subnets if not each.rewrites]
    return slowness(network, device, [MeasuredSubnet(0, s.layers, s.seconds) for s in own])


def _latest(subnets: Iterable[SubnetTime]) -> tuple[SubnetTime, ...]:
    return tuple({subnet.key: subnet for subnet in subnets}.values())


def _subnets_at(
    points: Sequence[BatchTimes], layer_s: Mapping[str, float], frames: int
) -> Iterator[SubnetTime]:
    """Yield the subnets in `points` with the time of a firing of `frames` frames.

    `layer_s` are the seconds of layers in such a firing. A subnet of layers that a rewrite has made
    is left out if it was measured with another number of frames only.
    """
    known: dict[SubnetKey, list[tuple[BatchTimes, SubnetTime]]] = {}
    for at in points:
        for subnet in at.subnets:
            known.setdefault(subnet.key, []).append((at, subnet))
    for found in known.values():
        at, subnet = found[-1]
        exact = next((own for each, own in found if each.frames == frames), None)
        if exact is not None:
            yield exact
        elif len(found) > 1:
            seconds = seconds_at([(each.frames, own.seconds) for each, own in found], frames)
            yield replace(subnet, seconds=max(seconds, LEAST_S), is_derived=True)
        elif all(name in layer_s and name in at.layer_s for name in subnet.layers):
            alone_s = sum(at.layer_s[name] for name in subnet.layers)
            grown = sum(layer_s[name] for name in subnet.layers) / max(alone_s, LEAST_S)
            yield replace(subnet, seconds=max(subnet.seconds * grown, LEAST_S), is_derived=True)


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """A link between two devices: seconds for a small tensor, and bytes per second for a large one.

    `bytes_per_s` is None where the link is so fast that the size makes no measurable difference.
    """

    ends: tuple[str, str]
    latency_s: float
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Profile:
    """All measurements of one model on some devices, by device name."""

    nodes: Mapping[str, NodeProfile]
    links: tuple[LinkProfile, ...] = ()

    def copies(self) -> dict[str, LinearTime]:
        """Return by device name the linear time of a whole copy, where it was measured."""
        found = {name: node.copy for name, node in self.nodes.items()}
        return {name: line for name, line in found.items() if line is not None}

    def layer_w(self, own_watts: Collection[str] = ()) -> LayerWatts:
        """Return the measured watts of layers, by device; those in `own_watts` are left out."""
        return {
            name: node.layer_w
            for name, node in self.nodes.items()
            if node.layer_w and name not in own_watts
        }

    def in_batches(self, frames: int) -> Profile:
        """Return the measurements for firings of `frames` frames (`NodeProfile.in_batches`)."""
        nodes = {name: node.in_batches(frames) for name, node in self.nodes.items()}
        return replace(self, nodes=nodes)


def rewrites_digest(rewrites: Sequence[Rewrite]) -> str:
    """Return a SHA-256 of the rewrites, or "" for none."""
    if not rewrites:
        return ""
    data = json.dumps([to_data(rewrite) for rewrite in rewrites])
    return hashlib.sha256(data.encode()).hexdigest()


def subnet_time(plan: Plan, phase: PlannedPhase, seconds: float) -> SubnetTime:
    """Return the measurement of a phase of `plan` that took `seconds` per frame.

    A phase of one copy of the network counts as the same layers of the network that was copied.
    """
    rewrites, seconds = plan.rewrites, max(seconds, LEAST_S)
    names = phase.layers, phase.inputs, phase.outputs
    if rewrites and isinstance(rewrites[-1], Copies):
        copies = {name.removeprefix(original_name(name)) for name in phase.layers}
        if len(copies) == 1:
            layers, inputs, outputs = (tuple(map(original_name, each)) for each in names)
            return SubnetTime(layers, inputs, outputs, rewrites_digest(rewrites[:-1]), seconds)
    return SubnetTime(*names, rewrites_digest(rewrites), seconds)


def measured_costs(
    network: Network, devices: Sequence[Device], profile: Profile
) -> tuple[tuple[Device, ...], NDArray[np.float64]]:
    """Return the devices with their measured `cut_s_per_byte` and `run_s`, and the seconds of
    layers [layers, devices] without either.

    Both serve a search. They follow from the layers measured by themselves and from the fused
    subnets of the network as it was read (`partition.measured.subnet_fit`); those of a device of
    which nothing was measured are estimates. `firing_s` keeps `AGENTS_PART` of what it was, less
    where a device computes faster than was assumed, but no less than measured. Raises
    `PartitionError` for a device of which some layers were measured by themselves, and one was not.
    """
    measured: list[MeasuredSubnet] = []
    for number, device in enumerate(devices):
        node = profile.nodes.get(device.name, NodeProfile())
        if node.layer_s:
            for layer in network.layers:
                if layer.name not in node.layer_s:
                    raise PartitionError(
                        f"layer {layer.name!r} was not measured on {device.name!r}; measure again"
                    )
                seconds = max(node.layer_s[layer.name], LEAST_S)
                measured.append(MeasuredSubnet(number, (layer.name,), seconds))
        measured += [
            MeasuredSubnet(number, subnet.layers, subnet.seconds, is_phase=not node.layer_s)
            for subnet in node.subnets
            if not subnet.rewrites and (len(subnet.layers) > 1 or not node.layer_s)
        ]
    found, layer_s = fit_to_subnets(network, devices, measured)
    estimated_s = np.maximum(layer_seconds(network, devices).sum(axis=0), LEAST_S)
    faster = np.minimum(layer_s.sum(axis=0) / estimated_s, 1.0)
    nodes = [profile.nodes.get(device.name, NodeProfile()) for device in devices]
    return tuple(
        replace(
            device,
            firing_s=max(_firing_s(node), AGENTS_PART * device.firing_s * float(part)),
        )
        for device, node, part in zip(found, nodes, faster, strict=True)
    ), layer_s


def profiled_devices(
    devices: Sequence[Device],
    profile: Profile,
    *,
    own_link: Collection[str] = (),
    own_watts: Collection[str] = (),
) -> tuple[Device, ...]:
    """Return `devices` with the measured figures of their wires and their power.

    Devices in `own_link` and `own_watts` keep the rates and the watts that the user gave them. A
    device's interface is as fast as the fastest of its links, where one too fast to measure counts
    as assumed; devices of one host have no link between them. The two ends of a message share its
    processor time, and that of its bytes. The cost of a firing without its layers is a share of a
    message's cost (`partition.pricing.run_costs`), and at least the device's previous `firing_s`:
    messages are measured while caches are warm, and by threads that a limit on the computing thread
    does not affect.
    """
    host = {device.name: device.host for device in devices}
    found = []
    for device in devices:
        node = profile.nodes.get(device.name, NodeProfile())
        rates = [
            link.bytes_per_s or device.link_bytes_per_s
            for link in profile.links
            if device.name in link.ends and _is_wire(link, host)
        ]
        rate = max(rates, default=device.link_bytes_per_s)
        watts = node.busy_w is not None and device.name not in own_watts
        found.append(
            replace(
                device,
                firing_s=max(_firing_s(node), device.firing_s),
                wire_s_per_message=node.message_s / 2 or device.wire_s_per_message,
                wire_s_per_byte=node.byte_s / 2 or device.wire_s_per_byte,
                link_bytes_per_s=device.link_bytes_per_s if device.name in own_link else rate,
                busy_w=node.busy_w if watts and node.busy_w is not None else device.busy_w,
                idle_w=node.idle_w if watts and node.idle_w is not None else device.idle_w,
            )
        )
    return tuple(found)


def _firing_s(node: NodeProfile) -> float:
    """Return the processor seconds of a firing without its layers; 0 if not measured."""
    if not node.message_s:
        return 0.0
    costs = ThreadCosts.measured(node.message_s)
    return costs.executor_s + costs.ended_s


def _is_wire(link: LinkProfile, host: Mapping[str, str | None]) -> bool:
    one, other = (host.get(end) for end in link.ends)
    return one is None or one != other


def fused_phases(plan: Plan, profile: Profile) -> dict[str, float]:
    """Return by phase name the seconds of those phases of the plan that were measured as
    subnets."""
    known = {
        (name, subnet.key): subnet.seconds
        for name, node in profile.nodes.items()
        for subnet in node.subnets
        if not subnet.is_derived
    }
    found = {}
    for phase in plan.phases:
        key = subnet_time(plan, phase, LEAST_S).key
        if (phase.device, key) in known:
            found[phase.name] = known[phase.device, key]
    return found


def measured_part(plan: Plan, profile: Profile) -> str:
    """Return a clause that says where the times of a plan's phases are from."""
    fused = fused_phases(plan, profile)
    others = [phase.device in profile.nodes for phase in plan.phases if phase.name not in fused]
    numbers = {
        f"measured as {'it is' if len(fused) == 1 else 'they are'}": len(fused),
        "computed from other measurements of the node": sum(others),
        "estimated": len(others) - sum(others),
    }
    text = ", ".join(f"{number} {how}" for how, number in numbers.items() if number)
    return f"times of {len(plan.phases)} phase{'s' * (len(plan.phases) > 1)}: {text}"
