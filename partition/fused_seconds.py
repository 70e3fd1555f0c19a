"""Seconds of layers, corrected by measured subnets.

Layers measured one by one take longer together than apart or, more often, shorter: an engine fuses
them, and keeps tensors in a layout of its own. So seconds of layers are scaled until their sums are
those of subnets that have been measured as a whole, less what cutting the subnets out has cost
(`partition.phase_time`). Each layer is multiplied, again and again, by the geometric mean of what
its subnets are off by: the simultaneous multiplicative algebraic reconstruction technique. Sums of
subnets that do not contradict each other come out exactly; of those that do, between them. Layers
that no subnet of a device has are scaled by what all its subnets together are off by.

Source: C. L. Byrne, "Iterative image reconstruction algorithms based on cross-entropy
minimization", IEEE Transactions on Image Processing, 1993.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.devices import Device
from partition.errors import PartitionError

ROUNDS = 200
LEAST_SHARE = 0.05
"""What cutting has cost is taken off a measured time down to this share of it."""


@dataclass(frozen=True, slots=True)
class MeasuredSubnet:
    """`layers` run as one model took `seconds` per frame on device number `device`."""

    device: int
    layers: tuple[str, ...]
    seconds: float


def corrected(
    network: Network,
    devices: Sequence[Device],
    layer_s: NDArray[np.float64],
    measured: Sequence[MeasuredSubnet],
) -> NDArray[np.float64]:
    """Seconds of layers [layers, devices] that agree with `measured`; see the module's docstring.

    Columns of devices without a measured subnet stay as they are. Raises `PartitionError` for a
    subnet of no or unknown layers, of an unknown device, or of a time that is not above 0.
    """
    for subnet in measured:
        _check(network, devices, subnet)
    row = {layer.name: number for number, layer in enumerate(network.layers)}
    found = layer_s.copy()
    for number, device in enumerate(devices):
        own = [subnet for subnet in measured if subnet.device == number]
        if not own:
            continue
        member = np.zeros((len(own), len(network.layers)))
        for index, subnet in enumerate(own):
            member[index, [row[name] for name in subnet.layers]] = 1.0
        sums = np.array([_layers_s(network, device, subnet) for subnet in own])
        found[:, number] = _scaled(layer_s[:, number], member, sums)
    return found


def _scaled(
    seconds: NDArray[np.float64], member: NDArray[np.float64], sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`seconds` [layers] such that `member` [subnets, layers] @ them comes to `sums` [subnets]."""
    found = seconds.copy()
    nothing = (member @ found) <= 0
    # A subnet of layers that were thought to cost nothing: its time is shared out evenly.
    even = (member[nothing] * (sums[nothing] / member[nothing].sum(axis=1))[:, None]).sum(axis=0)
    found = np.where(found > 0, found, even)
    known = member.any(axis=0)
    overall = float(sums.sum() / (member @ found).sum())
    subnets = np.maximum(member.sum(axis=0), 1.0)
    for _ in range(ROUNDS):
        off = np.log(sums / (member @ found))
        found = np.where(known, found * np.exp(off @ member / subnets), found)
        if np.abs(off).max() < 1e-12:
            break
    return np.where(known, found, found * overall)


def _layers_s(network: Network, device: Device, subnet: MeasuredSubnet) -> float:
    """The measured time without what it took to cut the subnet out."""
    inside = set(subnet.layers)
    made = {name for layer in subnet.layers for name in network.layer[layer].outputs}
    read = {name for layer in subnet.layers for name in network.layer[layer].inputs} - made
    leaving = [
        name
        for name in made
        if name in network.outputs or not inside.issuperset(network.consumers[name])
    ]
    cut_bytes = sum(network.tensors[name].bytes for name in (*read, *leaving))
    cutting_s = cut_bytes * device.cut_s_per_byte
    return max(subnet.seconds - cutting_s, LEAST_SHARE * subnet.seconds)


def _check(network: Network, devices: Sequence[Device], subnet: MeasuredSubnet) -> None:
    unknown = [name for name in subnet.layers if name not in network.layer]
    if unknown or not subnet.layers:
        told = f"layer {unknown[0]!r}" if unknown else "no layer"
        raise PartitionError(
            f"a measured subnet has {told}, which network {network.name!r} does not have; "
            "was it measured for another model?"
        )
    if not 0 <= subnet.device < len(devices):
        raise PartitionError(f"a measured subnet is of device {subnet.device}, which there is not")
    if not 0 < subnet.seconds < np.inf:
        raise PartitionError(
            f"the subnet that begins with layer {subnet.layers[0]!r} was measured as "
            f"{subnet.seconds} s; measure it again"
        )
