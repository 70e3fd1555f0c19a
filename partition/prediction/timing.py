"""Period and latency of a plan, from the times of its phases.

In the steady state every device fires each of its phases once per period, and phases of different
devices run at the same time (`csdf.conversion.skew`). So the period is that of whatever is busiest:
a device's processor (its phases, what each firing costs besides, and, unless its wire is free, what
sending and receiving costs), a network interface in one direction (the launcher's too), or the
cores that devices of one machine share. The latency is the number of periods that a frame spends in
the pipeline times the period.

These are what a plan can reach; `partition.prediction.simulated_run` predicts what a saturated run
does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from csdf.conversion.from_network import HOST, SOURCE
from partition.devices import Device, launcher_s
from partition.plan import PlannedChannel, PlannedPhase
from partition.pricing import busy


@dataclass(frozen=True, slots=True)
class Load:
    """What one device does per frame. `link_*` leaves out what stays on its own machine."""

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
    for phase in phases:
        compute[phase.device] += phase.predicted_s * share[phase.copy]
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
                total[end] += channel.tensor.bytes * share[channel.copy]
                on_link[end] += 0 if stays else channel.tensor.bytes * share[channel.copy]
    found = {}
    for device in devices:
        name = device.name
        busy_s = busy.rates_of(device).busy_s(
            compute[name], firings[name], messages[name], sent[name] + received[name]
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
        channel.tensor.bytes * dealing.count(channel.copy)
        for channel in channels
        if not channel.is_local
    )
    return in_a_cycle // len(dealing)
