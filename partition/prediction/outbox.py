"""The room that devices have for tensors that they have made and not yet sent.

Agents hold firings back while there is no room (`nodes.core.outbox`), so a device holds no more of
these tensors. The room is enough for four firings in a row: two whose tensors leave, one that runs,
and one that waits for the executor. With fewer than four phases on a device, the same fire again.
Where the link is busy for more than `BUSY` of the period, tensors of several firings wait for it,
so the four may be of the same phase, that with the largest tensors.

Only tensors of `LONG_BYTES` or more count. ZeroMQ copies shorter ones at once and holds them until
they are sent, so their channels' capacities bound them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from csdf.conversion.from_network import Dataflow, Flow
from partition.devices import Device
from partition.prediction.timing import Load
from partition.pricing.traffic import BUSY, FIRINGS, LONG_BYTES


def is_long(flow: Flow) -> bool:
    """Return whether a flow's frames count in the room for tensors that are not yet sent."""
    return not flow.is_local and not flow.tensor.varies and flow.tensor.bytes >= LONG_BYTES


def link_shares(
    dataflow: Dataflow, devices: Sequence[Device], load: Mapping[str, Load], period_s: float
) -> dict[str, float]:
    """Return by device name the share of the period for which the busiest interface on the way of
    what it sends is busy: its own, or that of a device that it sends to."""
    rate = {device.name: device.link_bytes_per_s * period_s for device in devices}
    shares = {name: own.link_sent_bytes / rate[name] for name, own in load.items() if rate[name]}
    for flow in dataflow.flows:
        source, target = flow.source_device, flow.target_device
        if source in shares and target in shares and not flow.is_local:
            shares[source] = max(shares[source], load[target].link_received_bytes / rate[target])
    return shares


def unsent_bytes(
    dataflow: Dataflow,
    capacity_frames: Mapping[str, int],
    shares: Mapping[str, float],
    encoded_bytes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return by device name the room for long tensors that are not yet sent, in bytes.

    `shares` are those of `link_shares`, and `encoded_bytes` has the most bytes of a frame of each
    flow that is encoded. Devices that send no long tensors are missing.
    """
    size: dict[str, dict[tuple[str, int], int]] = {}
    frames: dict[str, int] = {}
    for flow in dataflow.flows:
        if is_long(flow) and flow.source in dataflow.phase:
            sent = encoded_bytes.get(flow.name, flow.tensor.bytes)
            size.setdefault(flow.source, {})[flow.tensor.name, sent] = sent
            most = max(frames.get(flow.source, 0), capacity_frames[flow.name])
            frames[flow.source] = most
    found = {}
    for device, phases in dataflow.devices.items():
        again = FIRINGS if shares.get(device, 1.0) > BUSY else -(-FIRINGS // len(phases))
        fired = [
            sum(size[phase.name].values())
            for phase in phases
            if phase.name in size
            for _ in range(min(again, frames[phase.name]))
        ]
        if fired:
            found[device] = sum(sorted(fired)[-FIRINGS:])
    return found
