"""The joules per frame of a run's nodes, measured and predicted.

Agents measure what their whole machine takes from `Start` to `Stop`, waiting included. Agents of
one machine therefore measure the same joules; each gets the share that its processor time has in
that of all of them. Other programs count too, the launcher among them if it runs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.run.runtime import RunResult
from nodes.protocol.messages import Stats
from partition.plan import Plan
from partition.prediction.timing import device_energies_j

FAILED = "its meter could not be read all the time, see the agent's log"
SILENT = "its agent sent no statistics"


@dataclass(frozen=True, slots=True)
class NodeEnergy:
    """One node's energy; None where it was not measured, and `unmetered` says why."""

    joules_per_frame: float | None
    joules_per_frame_predicted: float
    watts: float | None
    meter: str
    unmetered: str


def node_energies(
    plan: Plan, result: RunResult, frames: int, period_s: float, machines: Mapping[str, str | None]
) -> dict[str, NodeEnergy]:
    """Return the energy of each node of `plan` that has layers, by name.

    `plan` has the agents' warm-up times, and `period_s` is the predicted one. `machines` maps nodes
    to their machines; a node with None, or a missing one, is a machine by itself.
    """
    beside: dict[str, list[str]] = {}
    predicted = device_energies_j(plan, period_s)
    for name in predicted:
        machine = machines.get(name)
        beside.setdefault(f"node {name}" if machine is None else machine, []).append(name)
    found: dict[str, NodeEnergy] = {}
    for members in beside.values():
        shares = _shares(members, result.stats)
        for name in members:
            stats, welcome = result.stats.get(name), result.welcome.get(name)
            meter = "" if welcome is None else welcome.meter
            joules = None if stats is None else stats.energy_j
            unmetered = SILENT if welcome is None or stats is None else welcome.unmetered or FAILED
            if stats is None or joules is None or not stats.elapsed_s:
                found[name] = NodeEnergy(None, predicted[name], None, meter, unmetered)
                continue
            own_j = joules * shares[name]
            found[name] = NodeEnergy(
                own_j / frames, predicted[name], own_j / stats.elapsed_s, meter, ""
            )
    return {name: found[name] for name in predicted}


def _shares(members: Sequence[str], stats: Mapping[str, Stats]) -> dict[str, float]:
    """Return the share of each node of a machine in the processor time of all of them."""
    spent = {name: stats[name].cpu_s if name in stats else 0.0 for name in members}
    total_s = sum(spent.values())
    return {name: cpu_s / total_s if total_s else 1 / len(spent) for name, cpu_s in spent.items()}
