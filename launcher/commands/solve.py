"""One search: a model, devices and a strategy lead to a plan and the figures that describe it.

**Speed-up bound**: what the whole network takes on the fastest device alone, divided by what the
busiest device takes for its layers. It leaves out links, firings and what cutting costs an engine,
which `period_s` has in it. **Memory saving**: by how much the fullest device holds less than one
device would that holds the whole network, as predicted (`partition.prediction.memory`), and by Eq.
2 of Tang & Stefanov (2021).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnn.model import Model
from cnn.network import Network
from ga.strategies import find_strategy
from launcher.errors import BadInputError
from launcher.progress import ProgressDisplay
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import make_plan, plan_solution
from partition.pricing.paper_equations import layer_beta_bytes
from partition.pricing.rewriting import divided_seconds
from partition.strategies.base import Candidate, Problem, SearchProgress, Strategy


@dataclass(frozen=True)
class DeviceShare:
    """What one device gets: layers (parts of layers count each), bytes, seconds per frame."""

    name: str
    layers: int
    weight_bytes: int
    memory_bytes: int
    memory_eq2_bytes: int
    compute_s: float


@dataclass(frozen=True)
class Solved:
    """A plan and how it was found; `alone_s`, `alone_bytes` and `alone_eq2_bytes` are those of one
    device that computes everything; `front` is what the strategy had to choose from.
    """

    problem: Problem
    plan: Plan
    network: Network
    seconds: float
    alone_s: float
    alone_bytes: int
    alone_eq2_bytes: int
    front: tuple[Candidate, ...] = ()
    generations: tuple[Mapping[str, float], ...] = ()

    @property
    def devices(self) -> tuple[DeviceShare, ...]:
        """Every device's share, those without layers too."""
        plan, network = self.plan, self.network
        busy = _layer_seconds(self)
        shares = []
        for device in plan.devices:
            mine = tuple(name for name, where in plan.assignment.items() if where == device.name)
            memory = plan.memory[device.name]
            shares.append(
                DeviceShare(
                    device.name,
                    len(mine),
                    network.weight_bytes(mine),
                    memory.total_bytes,
                    memory.eq2_bytes,
                    busy[device.name],
                )
            )
        return tuple(shares)

    @property
    def speedup_bound(self) -> float:
        """See the module's docstring; 0 if nothing takes any time."""
        busiest = max(share.compute_s for share in self.devices)
        return self.alone_s / busiest if busiest else 0.0

    @property
    def memory_saving_percent(self) -> float:
        """See the module's docstring."""
        fullest = max(share.memory_bytes for share in self.devices)
        return 100 * (1 - fullest / self.alone_bytes)

    @property
    def memory_eq2_saving_percent(self) -> float:
        """See the module's docstring."""
        fullest = max(share.memory_eq2_bytes for share in self.devices)
        return 100 * (1 - fullest / self.alone_eq2_bytes) if self.alone_eq2_bytes else 0.0

    def as_json(self) -> dict[str, Any]:
        """JSON-like data; seconds and bytes are per frame where the name does not say otherwise."""
        plan = self.plan
        return {
            "network": plan.network,
            "strategy": plan.strategy,
            "objective": self.problem.objective,
            "explanation": plan.explanation,
            "devices": [vars(share) for share in self.devices],
            "period_s": plan.period_s,
            "latency_s": plan.latency_s,
            "speedup_bound": self.speedup_bound,
            "memory_saving_percent": self.memory_saving_percent,
            "memory_eq2_saving_percent": self.memory_eq2_saving_percent,
            "bytes_per_frame": plan.bytes_per_frame,
            "phases": len(plan.phases),
            "optimal": plan.optimal,
            "gap": plan.gap,
            "seconds": self.seconds,
            "times": plan.times,
            "front": [
                {
                    "period_s": candidate.period_s,
                    "memory_bytes": candidate.memory_bytes,
                    "bytes_per_frame": candidate.wire_bytes,
                }
                for candidate in self.front
            ],
            "generations": [dict(record) for record in self.generations],
        }


def solve(
    problem: Problem,
    model: Model,
    strategy: str,
    progress: ProgressDisplay,
    find: Callable[[str], Strategy] = find_strategy,
) -> Solved:
    """Search with the strategy that `find` knows by this name, and plan; raises `BadInputError` in
    a sentence."""

    def show(search: SearchProgress) -> None:
        progress.update(f"searching ({strategy})", search.done, search.total, search.best)

    watched = replace(problem, on_progress=show)
    began_s = time.monotonic()
    try:
        solution = find(strategy).solve(watched)
        plan = plan_solution(watched, solution, model_digest=model.digest, strategy=strategy)
        alone_bytes = _alone_bytes(problem)
    except PartitionError as error:
        raise BadInputError(str(error)) from error
    return Solved(
        problem,
        plan,
        solution.network or problem.network,
        time.monotonic() - began_s,
        float(problem.costs.layer_s.sum(axis=0).min()),
        alone_bytes,
        int(layer_beta_bytes(problem.network).sum()),
        solution.front,
        solution.generations,
    )


def _alone_bytes(problem: Problem) -> int:
    device = replace(problem.devices[0], memory_bytes=None)
    everything = {layer.name: device.name for layer in problem.network.layers}
    plan = make_plan(
        problem.network,
        "",
        (device,),
        everything,
        strategy="",
        explanation="",
        slack_frames=problem.slack_frames,
    )
    return plan.memory[device.name].total_bytes


def _measured(solved: Solved) -> NDArray[np.float64] | None:
    """Measured seconds of the layers that are assigned; None without measurements."""
    problem = solved.problem
    if problem.layer_s is None or solved.network is problem.network:
        return problem.layer_s
    return divided_seconds(problem.network, problem.layer_s, solved.network)


def _layer_seconds(solved: Solved) -> dict[str, float]:
    """Device → seconds per frame of its layers, without what cutting and firing cost."""
    plan, network = solved.plan, solved.network
    problem = replace(
        solved.problem,
        network=network,
        pins={},
        layer_s=_measured(solved),
    )
    rows = {layer.name: row for row, layer in enumerate(network.layers)}
    column = {device.name: number for number, device in enumerate(plan.devices)}
    seconds = np.zeros(len(column))
    share = {copy: plan.dealing.count(copy) / len(plan.dealing) for copy in plan.dealing}
    for phase in plan.phases:
        number = column[phase.device]
        own = problem.costs.layer_s[[rows[layer] for layer in phase.layers], number]
        seconds[number] += share[phase.copy] * own.sum()
    return {name: float(seconds[number]) for name, number in column.items()}
