"""Lower bounds on a problem's objective that hold for every assignment of whole layers.

They cost no search: work and weights can at best be shared evenly, in proportion to the devices'
speed and room, and no layer can be divided.

**Period.** The longest layer takes its seconds somewhere. Further, for any prices y ≥ 0 of the
devices, Σ y_d busy_d ≥ Σ_l min_d y_d s_ld, and the left side is at most the period times the sum of
the prices (linear programming duality). Two choices of prices are tried: equal ones, and each
device's speed, which makes the bound exact for devices whose times are proportional. Devices of one
machine with fewer cores than devices count as one device per core.

**Latency** and **energy** sum over layers, each of which costs at least what its best device asks.
**Memory** holds every weight at least once, and the engine on each device that is used.
"""

from __future__ import annotations

import numpy as np

from partition.pricing.busy import shared_machines
from partition.pricing.memory_budget import least_engine_bytes, room_bytes
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem


def least_value(problem: Problem) -> float:
    """Return a lower bound on `partition.strategies.chosen.objective_value`."""
    match problem.objective:
        case "both" | "paper" | "period":
            return least_period_s(problem)
        case "latency":
            return float(_seconds(problem).min(axis=1).sum())
        case "energy":
            return least_energy_j(problem)
        case "memory":
            return least_memory_share(problem)


def gap_of(problem: Problem, value: float) -> float:
    """Return the largest fraction by which another assignment of whole layers can be better than
    one of this `value` (`partition.strategies.chosen.objective_value`)."""
    return max(0.0, 1 - least_value(problem) / value) if value > 0 else 0.0


def least_period_s(problem: Problem) -> float:
    """Return a lower bound on the period of every assignment, in seconds.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from partition.devices import Device
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xyz"}
    >>> layers = tuple(
    ...     Layer(f"l{i}", "Conv", (source,), (result,), (), 10**9)
    ...     for i, (source, result) in enumerate(["xy", "yz"])
    ... )
    >>> network = Network("net", layers, tensors, {}, ("x",), ("z",))
    >>> fast, slow = Device("fast", macs_per_s=3e9), Device("slow", macs_per_s=1e9)
    >>> round(least_period_s(Problem(network, (fast, slow))), 3)
    0.5
    """
    seconds = _seconds(problem)
    longest = float(seconds.min(axis=1).max())
    own = problem.costs.layer_s.sum(axis=0)
    speeds = 1 / np.maximum(own, 1e-300)
    even = (_shared_out(problem, seconds, prices) for prices in (np.ones_like(speeds), speeds))
    return max(longest, *even)


def least_energy_j(problem: Problem) -> float:
    """Return a lower bound on the joules per frame of every assignment."""
    watts = np.array([device.busy_w for device in problem.devices])
    return float((_seconds(problem) * watts).min(axis=1).sum())


def least_memory_share(problem: Problem) -> float:
    """Return a lower bound on the memory of the fullest device relative to its room, in bytes if no
    device has a limit."""
    network, room = problem.network, room_bytes(problem.devices)
    total = network.weight_bytes(tuple(network.layer))
    heaviest = max(network.layer_weight_bytes)
    engine = least_engine_bytes(problem.devices)
    return float(max(total / room.sum() + engine / room.max(), (heaviest + engine) / room.max()))


def _seconds(problem: Problem) -> Floats:
    """Return the seconds [layers, devices], infinite on devices that a layer's pin excludes."""
    seconds, pinned = problem.costs.layer_s, problem.pinned
    elsewhere = (pinned >= 0)[:, None] & (np.arange(seconds.shape[1]) != pinned[:, None])
    return np.where(elsewhere, np.inf, seconds)


def _shared_out(problem: Problem, seconds: Floats, prices: Floats) -> float:
    """Return the bound on the period that these prices [devices] give."""
    capacity = prices.copy()
    for machine in shared_machines(problem.devices):
        members = list(machine.members)
        capacity[members] = prices[members].max() * machine.cores / len(members)
    return float((seconds * prices).min(axis=1).sum() / capacity.sum())
