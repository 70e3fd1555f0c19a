"""Explanations of why there is no partition: the constraint that excludes it, and what to do.

A constraint is named only if it excludes every partition by itself. Where none does and the search
still found nothing, the search has a bug, and the user has made no mistake.
"""

from __future__ import annotations

from dataclasses import replace

from cnn.network import Layer
from partition.errors import DoesNotFitError, PartitionError
from partition.pricing.memory_budget import least_engine_bytes
from partition.pricing.traffic import frames_between_devices
from partition.strategies.base import Problem
from partition.strategies.exact.loads import LoadVariables
from partition.strategies.exact.placement import Placement, Shape
from partition.strategies.exact.search import SolverEffort, is_possible, megabytes
from partition.strategies.exact.terms import terms_of

QUICK = SolverEffort(deterministic=5.0, seconds=15.0)


def check(problem: Problem, shape: Shape) -> None:
    """Raise `PartitionError` for pins that separate layers which `shape` keeps together."""
    if not shape.siblings:
        return
    names = [layer.name for layer in problem.network.layers]
    for layers in terms_of(problem).siblings:
        pinned = {names[n]: problem.pins[names[n]] for n in layers if names[n] in problem.pins}
        if len(set(pinned.values())) > 1:
            shown = ", ".join(f"{layer!r} to {device!r}" for layer, device in pinned.items())
            raise PartitionError(
                "the pins separate layers that read the output of one layer and must stay "
                f"together: {shown}; pin them to one device, or choose a strategy that may "
                "separate them"
            )


def refusal(problem: Problem, shape: Shape) -> Exception:
    """Return the error for a problem that, according to the search, has no partition of this shape.

    It is a `PartitionError`, unless neither pins nor memory limits exclude all partitions: then it
    is a `RuntimeError`.
    """
    unpinned = replace(problem, pins={})
    limits = [device.memory_bytes for device in problem.devices if device.memory_bytes is not None]
    if problem.pins and _exists(problem, shape, limits=False) is False:
        return PartitionError(
            f"no contiguous partition respects these pins: {_pins(problem)}; pin layers to devices "
            "along the edges of the network only, or choose strategy 'vertical'"
        )
    if not limits or _exists(problem, shape, limits=True):
        return RuntimeError(
            f"strategy 'exact' finds no partition of network {problem.network.name!r} although no "
            "constraint excludes them all: a bug of csdf-edge; choose strategy 'vertical', and "
            "please report it"
        )
    if problem.pins and _exists(unpinned, shape, limits=True) is not False:
        return DoesNotFitError(
            f"the devices' memory holds no partition that respects these pins: {_pins(problem)}; "
            "pin fewer layers, or raise the memory of the devices that they are pinned to"
        )
    weights = sum(tensor.bytes for tensor in problem.network.weights.values())
    shown = f"{megabytes(weights)} of weights"
    engine = least_engine_bytes(problem.devices)
    room = sum(limits) - engine * len(limits)
    if len(limits) == len(problem.devices) and weights > room:
        return DoesNotFitError(
            f"network {problem.network.name!r} has {shown}, and all devices together have room "
            f"for {megabytes(room)} in addition to their engines; raise their memory, or add "
            "devices"
        )
    largest = max(problem.network.layers, key=lambda layer: _least_bytes(problem, layer))
    if len(limits) == len(problem.devices) and _least_bytes(problem, largest) > max(limits):
        return DoesNotFitError(
            f"layer {largest.name!r} alone has "
            f"{megabytes(problem.network.weight_bytes((largest.name,)))} of weights, for which no "
            f"device has room in addition to its engine ({megabytes(engine)}) and the layer's "
            "tensors; raise the memory of one, or choose strategy 'hybrid', which divides such "
            "layers"
        )
    kind = "contiguous " if shape.contiguous else ""
    return DoesNotFitError(
        f"no {kind}partition of network {problem.network.name!r} ({shown}) fits the memory of "
        "every device, even with two frames at each end of a channel; "
        + ("choose strategy 'vertical', " if shape.contiguous else "")
        + "raise the devices' memory, or add devices"
    )


def _exists(problem: Problem, shape: Shape, *, limits: bool) -> bool | None:
    """Return whether there is a partition; None if the solver cannot decide in a moment."""
    placement = Placement(terms_of(problem), shape)
    if limits:
        bounds = [device.memory_bytes for device in problem.devices]
        # As in the last search, which no slack makes larger.
        LoadVariables(placement).keep_within(bounds, frames_between_devices(slack_frames=0))
    return is_possible(placement, QUICK)


def _least_bytes(problem: Problem, layer: Layer) -> int:
    """Return the least bytes of a device that has this layer and no other."""
    own = problem.network.weight_bytes((layer.name,)) + problem.network.activation_bytes(layer.name)
    return own + least_engine_bytes(problem.devices)


def _pins(problem: Problem) -> str:
    shown = [f"{layer!r} to {device!r}" for layer, device in list(problem.pins.items())[:5]]
    more = f" and {len(problem.pins) - 5} more" if len(problem.pins) > 5 else ""
    return ", ".join(shown) + more
