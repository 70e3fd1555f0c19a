"""Maximum-likelihood seconds of layers and of cuts, fitted to measurements of subnets.

A layer measured by itself takes longer than the same layer among others: nothing is fused with it,
and its tensors are converted from and to the engine's own layout. By how much differs from layer to
layer, so that stages foreseen by such times alone are further off than those foreseen by estimates
(`partition.pricing.compute_time`); and subnets that a fit meets exactly make others worse, because
what they were measured to take has an error of its own. So the most likely times are sought, given

- the estimate, scaled to the device: each layer's true time is a factor of about `ESTIMATED` away;
- layers measured alone, all of them by one unknown factor too slow, each of them about `ALONE` off;
- fused subnets, each measured to within about `FUSED`;

where a subnet takes the sum of its layers and the bytes that enter or leave it times the device's
`cut_s_per_byte`, which is unknown too. All errors are of logarithms (a factor of two up is as
likely as one down), normal and independent: nonlinear least squares.

On ten boards, ResNet50, 75 and 68 subnets of five plans each: by layers measured alone, this
foresees subnets to within 7 and 6 % (rms, overall scale apart), which sums of those times do to
within 16 and 14 %; with some of the subnets given, the others to within 7 to 10 and 6 to 7 %. What
is left is not the sum of anything: how layers are fused depends on where the network is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from cnn.network import Network
from partition.devices import Device
from partition.errors import PartitionError

Floats = NDArray[np.float64]

ESTIMATED, ALONE, FUSED = 0.5, 0.15, 0.06
"""Standard deviations of logarithms, see above."""

ALONE_TOGETHER, CUTTING = 0.5, 0.7
"""Likewise: of the factor by which layers alone are too slow, and of `cut_s_per_byte`."""

FREE = 1e-4
"""A layer that is estimated to cost nothing counts as this part of the mean layer. What it takes
alone says nothing of it."""


@dataclass(frozen=True, slots=True)
class MeasuredSubnet:
    """`layers` run as one model took `seconds` per frame on device number `device`."""

    device: int
    layers: tuple[str, ...]
    seconds: float


def fit_to_subnets(
    network: Network,
    devices: Sequence[Device],
    layer_s: Floats,
    measured: Sequence[MeasuredSubnet],
) -> tuple[tuple[Device, ...], Floats]:
    """Return the most likely `cut_s_per_byte` of the devices and seconds of layers, given
    `measured`.

    `layer_s` [layers, devices] are the estimates; the seconds returned leave out what cutting
    costs.

    Devices without a measured subnet stay as they are. Raises `PartitionError` for a subnet of no
    or unknown layers, of an unknown device, or of a time that is not above 0.
    """
    for subnet in measured:
        _check(network, devices, subnet)
    row = {layer.name: number for number, layer in enumerate(network.layers)}
    found, fitted_devices = layer_s.copy(), list(devices)
    for number, device in enumerate(devices):
        own = [subnet for subnet in measured if subnet.device == number]
        if not own:
            continue
        member = np.zeros((len(own), len(row)))
        for index, subnet in enumerate(own):
            member[index, [row[name] for name in subnet.layers]] = 1.0
        sizes = np.array([_cut_bytes(network, subnet) for subnet in own], dtype=np.float64)
        seconds = np.array([subnet.seconds for subnet in own])
        found[:, number], cut_s_per_byte = _most_likely(
            layer_s[:, number], device.cut_s_per_byte, member, sizes, seconds
        )
        fitted_devices[number] = replace(device, cut_s_per_byte=cut_s_per_byte)
    return tuple(fitted_devices), found


def _most_likely(
    estimate: Floats, cut_s_per_byte: float, member: Floats, sizes: Floats, seconds: Floats
) -> tuple[Floats, float]:
    """Seconds [layers] and per byte that is cut, from subnets with their `member` layers [subnets,
    layers], the bytes that enter or leave them, and what they took."""
    alone = member.sum(axis=1) == 1
    mean = float(estimate.mean()) or 1.0
    informative = ~alone | ((member @ estimate) > 0)  # all but free layers measured alone
    if not informative.any():
        informative[:] = True
    member, sizes, seconds, alone = (
        array[informative] for array in (member, sizes, seconds, alone)
    )
    base = np.maximum(estimate, FREE * mean)
    scaled_by = np.ones_like(alone) if alone.all() else ~alone
    scale = seconds[scaled_by].sum() / (member @ base + cut_s_per_byte * sizes)[scaled_by].sum()
    base, cutting = base * scale, cut_s_per_byte * scale * sizes
    layers = len(base)
    priors = np.r_[np.full(layers, 1 / ESTIMATED), 1 / CUTTING, 1 / ALONE_TOGETHER]
    weight = 1 / np.where(alone, ALONE, FUSED)
    slowed = alone & (not alone.all())

    def terms(logs: Floats) -> tuple[Floats, Floats, Floats]:
        """Of each subnet: its layers, its cutting, and both as they would be measured."""
        each = member * (base * np.exp(logs[:layers]))
        cut = cutting * np.exp(logs[layers])
        return each, cut, (each.sum(axis=1) + cut) * np.exp(np.where(slowed, logs[-1], 0.0))

    def errors(logs: Floats) -> Floats:
        off = (np.log(terms(logs)[2]) - np.log(seconds)) * weight
        return np.concatenate((off, logs * priors))

    def slopes(logs: Floats) -> Floats:
        each, cut, _ = terms(logs)
        whole = each.sum(axis=1) + cut
        columns = np.c_[each / whole[:, None], cut / whole, slowed]
        return np.concatenate((columns * weight[:, None], np.diag(priors)))

    logs = least_squares(errors, np.zeros(layers + 2), jac=slopes, method="lm").x
    return base * np.exp(logs[:layers]), cut_s_per_byte * scale * float(np.exp(logs[layers]))


def _cut_bytes(network: Network, subnet: MeasuredSubnet) -> int:
    """Of the tensors that enter or leave it."""
    inside = set(subnet.layers)
    made = {name for layer in subnet.layers for name in network.layer[layer].outputs}
    read = {name for layer in subnet.layers for name in network.layer[layer].inputs} - made
    leaving = [
        name
        for name in made
        if name in network.outputs or not inside.issuperset(network.consumers[name])
    ]
    return sum(network.tensors[name].bytes for name in (*read, *leaving))


def _check(network: Network, devices: Sequence[Device], subnet: MeasuredSubnet) -> None:
    unknown = [name for name in subnet.layers if name not in network.layer]
    if unknown or not subnet.layers:
        named = f"layer {unknown[0]!r}" if unknown else "no layer"
        raise PartitionError(
            f"a measured subnet has {named}, which network {network.name!r} does not have; "
            "was it measured for another model?"
        )
    if not 0 <= subnet.device < len(devices):
        raise PartitionError(f"a measured subnet is of device {subnet.device}, which there is not")
    if not 0 < subnet.seconds < np.inf:
        raise PartitionError(
            f"the subnet that begins with layer {subnet.layers[0]!r} was measured as "
            f"{subnet.seconds} s; measure it again"
        )
