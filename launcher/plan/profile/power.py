"""Measures the power of nodes whose agents have a meter, while they wait and while they compute.

All agents of a machine measure the same: what the whole machine takes. Waiting is shared evenly by
the nodes of a machine; the energy that one node takes beyond that while it alone computes is its
own. Other nodes do nothing meanwhile. The same is measured of runs of layers, because arithmetic
takes more power than waiting for memory does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cnn.model import Model
from cnn.network import Network
from launcher.config.node import NodeConfig
from launcher.plan.profile.bench import Bench
from launcher.plan.profile.links import tiny_plan
from nodes.protocol.messages import Stats
from partition.devices import Device
from partition.measured.layer_phases import as_one, useful_layers

MOST_PIECES = 8
"""Runs of consecutive layers whose power is measured, each about as long as the others."""

LONG_ENOUGH_S, MOST_FRAMES = 1.0, 512
"""A run of layers computes frames for `LONG_ENOUGH_S`, and at most `MOST_FRAMES` frames."""

LEAST_BUSY = 0.2
"""A node must have computed for at least this share of the time. Otherwise most of the power that
was measured is that of waiting."""


def idle_watts(bench: Bench, configs: Sequence[NodeConfig]) -> dict[str, float]:
    """Return by node the watts of its machine while agents wait for frames.

    Nodes that cannot be measured are missing.
    """
    plan, model = tiny_plan(bench, configs)
    stats = bench.wait_between_frames(plan, model).stats
    watts = {name: machine_w(own) for name, own in stats.items()}
    return {name: found for name, found in watts.items() if found is not None}


def machine_w(stats: Stats) -> float | None:
    """Return the mean watts of the machine between `Start` and `Stop`; None if not measured."""
    if stats.energy_j is None or stats.elapsed_s <= 0:
        return None
    return stats.energy_j / stats.elapsed_s


def power_pieces(
    network: Network, layer_s: Mapping[str, float], most: int = MOST_PIECES
) -> list[tuple[str, ...]]:
    """Divide the layers, in order, into at most `most` runs that take about as long each."""
    useful = useful_layers(network)
    total_s = sum(layer_s[name] for name in useful) or 1.0
    found: dict[int, list[str]] = {}
    before_s = 0.0
    for name in useful:
        middle_s = before_s + layer_s[name] / 2
        found.setdefault(min(most - 1, int(most * middle_s / total_s)), []).append(name)
        before_s += layer_s[name]
    return [tuple(names) for names in found.values()]


def layer_watts(
    bench: Bench,
    model: Model,
    device: Device,
    layer_s: Mapping[str, float],
    idle_w: float,
    nodes: int,
) -> dict[str, float]:
    """Return by layer the watts of a device while it computes, of `nodes` nodes on its machine,
    which takes `idle_w` while none computes.

    One run of layers after the other is streamed as a single phase; all layers of a run have its
    watts. Layers of a run that computes too rarely to tell are missing.
    """
    found: dict[str, float] = {}
    pieces = power_pieces(model.network, layer_s)
    for number, piece in enumerate(pieces, start=1):
        plan = as_one(model.network, model.digest, device, piece)
        piece_s = sum(layer_s[name] for name in piece)
        frames = max(2, min(MOST_FRAMES, math.ceil(LONG_ENOUGH_S / max(piece_s, 1e-6))))
        stage = f"measuring power on {device.name}, part {number} of {len(pieces)}"
        stats = bench.run(plan, model, frames, stage).stats.get(device.name)
        busy_w = None if stats is None else device_watts(stats, idle_w, nodes)[0]
        if busy_w is not None:
            found |= dict.fromkeys(piece, busy_w)
    return found


def device_watts(stats: Stats, idle_w: float, nodes: int) -> tuple[float | None, float]:
    """Return the (busy, idle) watts of one of `nodes` nodes on a machine.

    `stats` are of a run in which that node alone computed, and the machine takes `idle_w` while
    none does. The first is None if the power was not measured, or the node computed too rarely.
    """
    share_w, mean_w = idle_w / nodes, machine_w(stats)
    busy = min(1.0, sum(stats.busy_s) / stats.elapsed_s) if stats.elapsed_s else 0.0
    if mean_w is None or busy < LEAST_BUSY:
        return None, share_w
    return share_w + max(0.0, mean_w - idle_w) / busy, share_w
