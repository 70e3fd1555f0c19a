"""Period, latency and energy of a plan, from estimated or measured times of its phases.

**Phases.** A phase takes the seconds of its layers and three costs of dividing the network:

- *Cutting.* An engine fuses layers and keeps tensors in its own layout. A tensor that enters
  or leaves a phase breaks a fusion, is converted and leaves the caches. It costs its bytes times
  the device's `cut_s_per_byte`, once for each device that reads it (in the phase that reads it
  first) and once where it is made. Of the terms tried (a constant per phase, per tensor, per byte)
  only the one per byte is needed where one process runs all phases in turn: ONNX Runtime 1.31 on
  five networks in 1 to 259 phases takes 0.11 ns per byte, which leaves 2 ms (rms) of the cost of
  cutting unexplained, where whole networks take 8 to 292 ms.
- *Runs.* On a board each run of a phase costs its `run_s` in addition: 1.0 ms on boards of 0.08
  core, 0.08 ms of processor time. Profiles find it (`partition.measured.subnet_fit`); it is 0
  without.
- *Cache.* Weights beyond a device's cache are fetched again for each frame
  (`Device.cache_s_per_byte`); its phases share that time by their weights.

**Period.** In the steady state every device fires each of its phases once per period, and phases of
different devices run at the same time (`csdf.conversion.skew`). So the period is that of the
busiest resource: a device's processor, a network interface in one direction (the launcher's too),
or the cores that devices of one machine share (`partition.pricing.busy`). The **latency** is the
number of periods that a frame spends in the pipeline times the period. Both are what a plan can
reach; `partition.prediction.simulation` predicts a saturated run.

**Energy** is Eq. 4 of Velasco-Montero et al. (2023), with waiting and sending added: with `idle_w`
and `sent_j_per_byte` at 0 it is their Eq. 4. A device without layers counts as switched off. Where
the power of layers was measured, it replaces `busy_w` for their seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from csdf.conversion.from_network import HOST, SOURCE, Dataflow
from partition.devices import Device, launcher_s
from partition.errors import PartitionError
from partition.measured.profiles import Profile, fused_phases
from partition.plan import Plan, PlannedChannel, PlannedPhase
from partition.pricing import busy
from partition.pricing.busy import rates_of
from partition.pricing.compute_time import layer_seconds
from partition.pricing.spill import uncached_bytes
from partition.wire import Encoding, decode_s, encode_s


def phase_seconds(
    dataflow: Dataflow, devices: Sequence[Device], layer_s: NDArray[np.float64] | None = None
) -> dict[str, float]:
    """Return by phase name the estimated seconds per frame on its device.

    `layer_s` [layers, devices] replaces the estimate of `partition.pricing.compute_time`.
    """
    seconds = layer_seconds(dataflow.network, devices) if layer_s is None else layer_s
    row = dataflow.network.place
    column = {device.name: number for number, device in enumerate(devices)}
    rates = {device.name: rates_of(device) for device in devices}
    cut, uncached = cut_bytes(dataflow), _uncached_bytes(dataflow, devices)
    return {
        phase.name: float(
            rates[phase.device].phases_s(
                sum(float(seconds[row[layer], column[phase.device]]) for layer in phase.layers),
                cut[phase.name],
                uncached[phase.name],
                1,
            )
        )
        for phase in dataflow.phases
    }


def cut_bytes(dataflow: Dataflow) -> dict[str, int]:
    """Return by phase name the bytes that enter or leave it; what a device reads twice counts
    once."""
    cut = {phase.name: 0 for phase in dataflow.phases}
    leaving: set[tuple[str, str]] = set()
    for flow in dataflow.flows:
        if flow.target_device != HOST:
            cut[flow.targets[0]] += flow.tensor.bytes
        if flow.source != SOURCE and (flow.source, flow.tensor.name) not in leaving:
            leaving.add((flow.source, flow.tensor.name))
            cut[flow.source] += flow.tensor.bytes
    return cut


def _uncached_bytes(dataflow: Dataflow, devices: Sequence[Device]) -> dict[str, float]:
    """Return by phase name its share of the weights that its device's cache has no room for."""
    found = {phase.name: 0.0 for phase in dataflow.phases}
    network = dataflow.network
    if all(device.cache_bytes is None for device in devices):
        return found
    for device in devices:
        phases = dataflow.devices.get(device.name, ())
        layers = {layer for phase in phases for layer in phase.layers}
        received = sum(
            flow.tensor.bytes for flow in dataflow.flows if flow.target_device == device.name
        )
        uncached = float(
            uncached_bytes(
                device,
                network.layer_weight_bytes,
                np.array([layer.name in layers for layer in network.layers]),
                np.array(float(network.weight_bytes(layers))),
                np.array(float(received)),
            )
        )
        own = {phase.name: network.weight_bytes(phase.layers) for phase in phases}
        for name, size in own.items():
            found[name] = uncached * size / max(sum(own.values()), 1)
    return found


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one device per frame. `link_*` excludes traffic within its own machine."""

    compute_s: float
    busy_s: float
    sent_bytes: float
    received_bytes: float
    link_sent_bytes: float
    link_received_bytes: float


def loads(
    devices: Sequence[Device],
    phases: Iterable[PlannedPhase],
    channels: Iterable[PlannedChannel],
    dealing: Sequence[int] = (0,),
) -> dict[str, Load]:
    """Return by device name its load, from the phases' predicted or measured seconds.

    Where frames are dealt out (see `Plan.dealing`), loads are averages over a cycle's frames.
    """
    compute = {device.name: 0.0 for device in devices}
    firings = dict.fromkeys(compute, 0.0)
    messages = dict.fromkeys(compute, 0.0)
    sent, received = dict.fromkeys(compute, 0.0), dict.fromkeys(compute, 0.0)
    link_sent, link_received = dict.fromkeys(compute, 0.0), dict.fromkeys(compute, 0.0)
    host = {device.name: device.host for device in devices}
    share = {copy: dealing.count(copy) / len(dealing) for copy in dealing}
    channels = tuple(channels)
    encoding = encoding_seconds(devices, channels)
    coded = dict.fromkeys(compute, 0.0)
    for phase in phases:
        compute[phase.device] += phase.predicted_s * share[phase.copy]
        coded[phase.device] += encoding.get(phase.name, 0.0) * share[phase.copy]
        firings[phase.device] += share[phase.copy]
    for channel in channels:
        if channel.is_local:
            continue
        ends = (host.get(channel.source_device), host.get(channel.target_device))
        stays = ends[0] is not None and ends[0] == ends[1]
        for end, total, on_link in (
            (channel.source_device, sent, link_sent),
            (channel.target_device, received, link_received),
        ):
            if end != HOST:
                messages[end] += share[channel.copy]
                total[end] += channel.wire_bytes * share[channel.copy]
                on_link[end] += 0 if stays else channel.wire_bytes * share[channel.copy]
    found = {}
    for device in devices:
        name = device.name
        busy_s = busy.rates_of(device).busy_s(
            compute[name] + coded[name],
            firings[name],
            messages[name],
            sent[name] + received[name],
        )
        found[name] = Load(
            compute[name],
            busy_s,
            sent[name],
            received[name],
            link_sent[name],
            link_received[name],
        )
    return found


def encoding_seconds(
    devices: Sequence[Device], channels: Iterable[PlannedChannel]
) -> dict[str, float]:
    """Return by phase the seconds per frame in which its device encodes what it makes and decodes
    what it reads; phases without such tensors are missing.

    A tensor is encoded once for all devices that read it in the same encoding, and decoded for each
    phase.
    """
    by_name = {device.name: device for device in devices}
    found: dict[str, float] = {}
    made: set[tuple[str, str, Encoding]] = set()
    for channel in channels:
        if channel.encoding == "raw":
            continue
        size, source = channel.tensor.bytes, (channel.source, channel.tensor.name, channel.encoding)
        if source not in made:
            made.add(source)
            spent_s = encode_s(by_name[channel.source_device], channel.encoding, size)
            found[channel.source] = found.get(channel.source, 0.0) + spent_s
        for target in channel.targets:
            spent_s = decode_s(by_name[channel.target_device], channel.encoding, size)
            found[target] = found.get(target, 0.0) + spent_s
    return found


def period_s(
    devices: Sequence[Device],
    phases: Iterable[PlannedPhase],
    channels: Iterable[PlannedChannel],
    dealing: Sequence[int] = (0,),
) -> float:
    """Return the seconds per frame in the steady state."""
    channels = tuple(channels)
    load = [*loads(devices, phases, channels, dealing).values()]
    busy_s = np.array([each.busy_s for each in load])
    link_s = [
        busy.rates_of(device).link_s(each.link_sent_bytes, each.link_received_bytes)
        for device, each in zip(devices, load, strict=True)
    ]
    passing_s = _launcher_s(devices, channels, dealing)
    shared = busy.shared_machines(devices)
    return float(busy.period_s(shared, busy_s, np.array(link_s), passing_s))


def _launcher_s(
    devices: Sequence[Device], channels: Sequence[PlannedChannel], dealing: Sequence[int]
) -> float:
    """Return the seconds per frame of the launcher's link to the devices behind it."""
    behind = {each.name for each in devices if each.launcher_bytes_per_s is not None}
    share = {copy: dealing.count(copy) / len(dealing) for copy in dealing}
    sent = received = 0.0
    for channel in channels:
        if channel.source_device == HOST and channel.target_device in behind:
            sent += channel.tensor.bytes * share[channel.copy]
        if channel.target_device == HOST and channel.source_device in behind:
            received += channel.tensor.bytes * share[channel.copy]
    return launcher_s(devices, sent, received)


def latency_s(
    phases: Sequence[PlannedPhase],
    channels: Iterable[PlannedChannel],
    frame_s: float,
    dealing: Sequence[int] = (0,),
) -> float:
    """Return the seconds from the start of the period in which a frame is sent to the end of the
    one in which its result arrives.

    `frame_s` is the period. A copy of the network gets one frame of several, so its own periods are
    that much longer; the latency is that of the slowest copy.
    """
    skew = {SOURCE: 0} | {phase.name: phase.skew for phase in phases}
    return max(
        (
            (1 + skew[channel.source]) * frame_s * len(dealing) / dealing.count(channel.copy)
            for channel in channels
            if channel.target_device == HOST
        ),
        default=frame_s,
    )


def wire_bytes(channels: Iterable[PlannedChannel], dealing: Sequence[int] = (0,)) -> int:
    """Return the bytes per frame that leave a device or the launcher for another, rounded down."""
    in_a_cycle = sum(
        channel.wire_bytes * dealing.count(channel.copy)
        for channel in channels
        if not channel.is_local
    )
    return in_a_cycle // len(dealing)


def energy_j(plan: Plan) -> float:
    """Return the joules that all devices of `plan` together take per frame in the steady state."""
    return sum(device_energies_j(plan, plan.frame_s).values())


def power_w(plan: Plan) -> float:
    """Return the mean power of all devices of `plan` that have layers, in the steady state."""
    return energy_j(plan) / plan.frame_s if plan.period_s > 0 else 0.0


def device_energies_j(plan: Plan, frame_s: float) -> dict[str, float]:
    """Return by device name the joules per frame if a frame comes every `frame_s`.

    Devices without layers are missing.
    """
    load = loads(plan.devices, plan.phases, plan.channels, plan.dealing)
    working = {phase.device for phase in plan.phases}
    share = {copy: plan.dealing.count(copy) / len(plan.dealing) for copy in plan.dealing}
    surplus_j = dict.fromkeys(working, 0.0)
    device_w = {device.name: device.busy_w for device in plan.devices}
    for phase in plan.phases:
        if phase.busy_w is not None:
            seconds = phase.predicted_s * share[phase.copy]
            surplus_j[phase.device] += seconds * (phase.busy_w - device_w[phase.device])
    return {
        device.name: (
            float(
                rates_of(device).energy_j(
                    load[device.name].busy_s, frame_s * plan.batch, load[device.name].sent_bytes
                )
            )
            + surplus_j[device.name]
        )
        / plan.batch
        for device in plan.devices
        if device.name in working
    }


def with_measured_phases(plan: Plan, phase_s: Mapping[str, float]) -> Plan:
    """Return `plan` with the predicted time of each phase replaced by a measured one, `phase_s`.

    The period and the latency are derived again. Raises `PartitionError` if a phase of the plan has
    no time.
    """
    missing = [phase.name for phase in plan.phases if phase.name not in phase_s]
    if missing:
        raise PartitionError(
            f"no measured time for phase {missing[0]!r}; measure every phase of the plan"
        )
    phases = tuple(replace(phase, predicted_s=phase_s[phase.name]) for phase in plan.phases)
    period = period_s(plan.devices, phases, plan.channels, plan.dealing)
    return replace(
        plan,
        phases=phases,
        period_s=period,
        latency_s=latency_s(phases, plan.channels, period, plan.dealing),
        times="measured",
    )


def with_profile(plan: Plan, profile: Profile) -> Plan:
    """Return `plan`, made with measured seconds of layers, marked as measured unless one of its
    devices has no measurements.

    Phases that were measured as subnets (`fused_phases`) get these times.
    """
    estimated = {phase.name: phase.predicted_s for phase in plan.phases}
    found = with_measured_phases(plan, estimated | fused_phases(plan, profile))
    is_known = all(phase.device in profile.nodes for phase in plan.phases)
    return found if is_known else replace(found, times="estimated")
