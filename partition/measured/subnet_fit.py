"""The most likely costs of layers, of cutting and of a run, after measurements of subnets.

A device computes a subnet, several layers that the engine fuses, in

    Σ over its layers: (macs × a + bytes of weights × b + bytes touched × c) × deviation
    + bytes that enter or leave it × `cut_s_per_byte`
    + `run_s`

where `partition.pricing.compute_time.layer_work` counts the work of layers. Sums of layers measured
alone do not say that: alone, nothing is fused with a layer, its tensors are converted to and from
the engine's layout, and the factor by which this is slower differs from layer to layer. Meeting the
measured subnets exactly would not help either, because their own errors would spoil other subnets.
So the fit is a maximum-likelihood estimate of all terms, in which

- a, b, c, `cut_s_per_byte` and `run_s` are, to within factors of about `FIGURES`, those of the
  device as it is described, all scaled by one factor;
- each layer deviates from the sum by a factor of about `DEVIATING`, or `WITHOUT_MACS` if it has no
  multiply-accumulates;
- layers measured alone are all too slow by one unknown factor, and each is about `ALONE` off. They
  run repeatedly, so they have no part in `run_s`;
- fused subnets are measured to within about `FUSED`.

All errors are of logarithms (a factor of two up is as likely as one down) and independent. Their
squares count by the loss ρ(z) = 2(√(1 + z) − 1), which SciPy calls soft L1: beyond one standard
deviation an error counts about in proportion to its size, so a subnet that another process has
slowed, or a layer that an engine lacks a kernel for, spoils little else.

Errors of foreseen subnets of ResNet50 on emulated boards (rms of logarithms, each subnet without
those that share half of its layers; `tests/partition/test_foreseen_subnets.py` has the first three
rows). Before, a, b and c had fixed ratios, layers deviated from them by a factor of about exp(0.5),
runs cost nothing, and errors counted by their squares:

| | before | this fit |
|---|---|---|
| ten boards of 0.08 core, 29 subnets | 5.9 % | 2.4 % |
| the same, one of the others measured 35 % too long | 5.8 % | 2.5 % |
| the same, only 5 of the subnets measured | 6.5 % | 2.8 % |
| another profile, 93 subnets; equal subnets differ by about 5 % | 7.5 % | 5.8 % |
| the same, three of the others measured 35 % too long | 8.5 % | 6.0 % |

Without `run_s` the first and the fourth are 4.7 and 6.8 %; with squares the second and the last are
2.7 and 7.1 %. A `DEVIATING` of 0.1 foresees the fourth slightly better (5.7 %), but not networks
whose layers deviate more: in simulated ones, where they do by 0.3, errors are 9.3 % with 0.1, 6.2 %
with 0.2 and 6.8 % with 0.5.

What remains is not additive: how layers are fused depends on where the network is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.devices import Device
from partition.errors import PartitionError
from partition.pricing.compute_time import layer_parts, layer_work

Floats = NDArray[np.float64]

DEVIATING, WITHOUT_MACS, ALONE, FUSED = 0.2, 0.7, 0.12, 0.05
"""Standard deviations of logarithms; see the module's docstring."""

FIGURES = (0.5, 0.7, 0.7, 0.7, 1.0)
"""Figures for a device's seconds per multiply-accumulate, per byte of weights, per byte touched and
per byte cut, and for its seconds per run.
"""

ALONE_TOGETHER = 0.5
"""That of the factor by which layers alone are too slow."""

RUN_MACS = 1.2e7
"""The multiply-accumulates whose time a run costs, where the device has no `run_s`. On boards of
0.08 core, which take 0.1 ns for each, the fit finds 1.0 ms (least squares without deviations of
layers: 1.6 to 2.5 ms). Among 0.8, 1.2, 1.6 and 2 times 10⁷ it predicted best.
"""

FREE = 1e-3
"""A layer that is estimated to cost nothing counts as this part of the mean layer. Its time when it
runs alone carries no information."""


@dataclass(frozen=True, slots=True)
class MeasuredSubnet:
    """`layers` run as one model took `seconds` per frame on device number `device`.

    A single layer was run repeatedly by itself, unless it `is_phase` of a plan.
    """

    device: int
    layers: tuple[str, ...]
    seconds: float
    is_phase: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether it is a layer that was run by itself."""
        return len(self.layers) == 1 and not self.is_phase


def fit_to_subnets(
    network: Network, devices: Sequence[Device], measured: Sequence[MeasuredSubnet]
) -> tuple[tuple[Device, ...], Floats]:
    """Return the devices with their most likely `cut_s_per_byte` and `run_s`, and the most likely
    seconds of layers [layers, devices] without either, given `measured`.

    Devices without a measured subnet have the estimate of `partition.pricing.compute_time`, times
    the factors that all devices have in common (`_in_common`); `run_s` stays where only single
    layers were measured. Raises `PartitionError` for a subnet of no or unknown layers, of an
    unknown device, or of a time that is not above 0.
    """
    for subnet in measured:
        _check(network, devices, subnet)
    row = network.place
    work, fitted = layer_work(network), list(devices)
    parts = [layer_parts(network, work, device) for device in devices]
    known: dict[int, _Measurements] = {}
    for number in dict.fromkeys(subnet.device for subnet in measured):
        own = [subnet for subnet in measured if subnet.device == number]
        member = np.zeros((len(own), len(row)))
        for index, subnet in enumerate(own):
            member[index, [row[name] for name in subnet.layers]] = 1.0
        sizes = np.array([_cut_bytes(network, subnet) for subnet in own], dtype=np.float64)
        alone = np.array([subnet.is_alone for subnet in own])
        known[number] = _Measurements(member, sizes, np.array([s.seconds for s in own]), alone)
    factors = _in_common(devices, parts, known)
    found = np.zeros((len(row), len(devices)))
    for number, device in enumerate(devices):
        if number not in known or not known[number].alone.any():
            parts[number] = parts[number] * factors
        if number in known:
            fitted[number], found[:, number] = _most_likely(
                device, work, parts[number], known[number]
            )
        else:
            found[:, number] = parts[number].sum(axis=1)
    return tuple(fitted), found


@dataclass(frozen=True, slots=True)
class _Measurements:
    """The subnets that were measured on a device.

    Subnet i has the layers of row i of `member` [subnets, layers]; `sizes` [subnets] are the bytes
    that enter or leave it, `seconds` [subnets] its measured time, and `alone` [subnets] says
    whether it is a layer that was run by itself.
    """

    member: Floats
    sizes: Floats
    seconds: Floats
    alone: NDArray[np.bool_]


def _in_common(
    devices: Sequence[Device], parts: Sequence[Floats], known: Mapping[int, _Measurements]
) -> Floats:
    """Return the factors [3] that correct the figures of all devices, fitted to the fused subnets
    of all of them; 1 unless several devices have fused subnets.

    All devices have measured their figures in the same way, so these have a common error. A device
    that has computed only layers of many weights says little about the error of its arithmetic, but
    other devices do.
    """
    fused = [(n, own) for n, own in known.items() if not own.alone.any()]
    if len(fused) < 2:
        return np.ones(3)
    described = np.concatenate([own.member @ parts[n] for n, own in fused])
    others = np.concatenate(
        [own.sizes * devices[n].cut_s_per_byte + _run_s(devices[n]) for n, own in fused]
    )
    seconds = np.log(np.concatenate([own.seconds for _, own in fused]))
    priors = 1 / np.array(FIGURES[:3])

    def errors(logs: Floats) -> Floats:
        whole = np.maximum(described @ np.exp(logs) + others, 1e-12)
        return _softened(np.concatenate(((np.log(whole) - seconds) / DEVIATING, logs * priors)))

    from scipy.optimize import least_squares  # noqa: PLC0415 (slow to import)

    return np.asarray(np.exp(least_squares(errors, np.zeros(3), method="lm").x))


def _most_likely(
    device: Device, work: Floats, parts: Floats, measured: _Measurements
) -> tuple[Device, Floats]:
    """Return a device with its most likely figures, and the most likely seconds [layers].

    `work` [layers, 3] is that of `layer_work`, `parts` that of `layer_parts`.
    """
    member, sizes, seconds = measured.member, measured.sizes, measured.seconds
    alone = measured.alone
    informative = ~alone | (member @ work.sum(axis=1) > 0)  # excludes free layers measured alone
    if not informative.any():
        informative[:] = True
    member, sizes, seconds, alone = (
        array[informative] for array in (member, sizes, seconds, alone)
    )
    parts, cut, run = _as_described(device, parts, sizes, alone)
    scaled_by = np.ones_like(alone) if alone.all() else ~alone
    described = member @ parts.sum(axis=1) + cut + run
    scale = seconds[scaled_by].sum() / described[scaled_by].sum()
    parts, cut, run = parts * scale, cut * scale, run * scale

    layers = len(work)
    deviating = np.where(work[:, 0] > 0, DEVIATING, WITHOUT_MACS)
    priors = 1 / np.r_[deviating, FIGURES, ALONE_TOGETHER]
    weight = 1 / np.where(alone, ALONE, FUSED)
    slowed = alone & (not alone.all())

    def terms(logs: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the seconds of layers by figure [layers, 3], and of cutting and of the run
        [subnets]."""
        deviation, figures = np.exp(logs[:layers]), np.exp(logs[layers : layers + len(FIGURES)])
        return parts * figures[:3] * deviation[:, None], cut * figures[3], run * figures[4]

    def errors(logs: Floats) -> Floats:
        of_layers, of_cut, of_run = terms(logs)
        whole = member @ of_layers.sum(axis=1) + of_cut + of_run
        off = np.log(whole) + slowed * logs[-1] - np.log(seconds)
        return np.concatenate((off * weight, logs * priors))

    def slopes(logs: Floats) -> Floats:
        of_layers, of_cut, of_run = terms(logs)
        each = member * of_layers.sum(axis=1)
        whole = each.sum(axis=1) + of_cut + of_run
        columns = np.c_[each, member @ of_layers, of_cut, of_run] / whole[:, None]
        return np.concatenate((np.c_[columns, slowed] * weight[:, None], np.diag(priors)))

    from scipy.optimize import least_squares  # noqa: PLC0415 (slow to import)

    # SciPy's own loss needs another method, whose decompositions were seen not to converge.
    logs = least_squares(
        lambda logs: _softened(errors(logs)),
        np.zeros(len(priors)),
        jac=lambda logs: slopes(logs) * _softening(errors(logs))[:, None],
        method="lm",
    ).x
    figures = scale * np.exp(logs[layers : layers + len(FIGURES)])
    fitted = replace(
        device,
        cut_s_per_byte=device.cut_s_per_byte * float(figures[3]),
        run_s=device.run_s if alone.all() else _run_s(device) * float(figures[4]),
    )
    return fitted, terms(logs)[0].sum(axis=1)


def _as_described(
    device: Device, parts: Floats, sizes: Floats, alone: NDArray[np.bool_]
) -> tuple[Floats, Floats, Floats]:
    """Return the seconds of layers by figure [layers, 3], and of cutting and of the run [subnets],
    by the device's own figures."""
    parts = parts.copy()
    least = FREE * float(parts.sum(axis=1).mean()) or 1.0
    parts[:, 0] += np.maximum(least - parts.sum(axis=1), 0.0)
    return parts, device.cut_s_per_byte * sizes, np.where(alone, 0.0, _run_s(device))


def _run_s(device: Device) -> float:
    return device.run_s or RUN_MACS / device.macs_per_s


def _softened(errors: Floats) -> Floats:
    """Return what squares to soft L1 of the errors, with their signs."""
    return np.asarray(errors * np.sqrt(2 / (1 + np.sqrt(1 + errors**2))))


def _softening(errors: Floats) -> Floats:
    """Return the derivative of `_softened`."""
    root = np.sqrt(1 + errors**2)
    return np.asarray(np.sqrt((1 + root) / 2) / root)


def slowness(network: Network, device: Device, measured: Sequence[MeasuredSubnet]) -> float | None:
    """Return the seconds of measured subnets as a multiple of what they are estimated to take on
    `device`; None without any."""
    layer_s = dict(
        zip(
            (layer.name for layer in network.layers),
            layer_parts(network, layer_work(network), device).sum(axis=1),
            strict=True,
        )
    )
    estimated_s = sum(
        sum(layer_s[name] for name in subnet.layers)
        + _cut_bytes(network, subnet) * device.cut_s_per_byte
        + device.run_s
        for subnet in measured
    )
    return sum(subnet.seconds for subnet in measured) / estimated_s if measured else None


def _cut_bytes(network: Network, subnet: MeasuredSubnet) -> int:
    """Return the bytes of the tensors that enter or leave the subnet."""
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
        raise PartitionError(
            f"a measured subnet is of device {subnet.device}, which does not exist"
        )
    if not 0 < subnet.seconds < np.inf:
        raise PartitionError(
            f"the subnet that begins with layer {subnet.layers[0]!r} was measured as "
            f"{subnet.seconds} s; measure it again"
        )
