"""Searches for one plan, prints its figures, and can save it (`csdf-edge partition solve`).

**Speed-up bound**: the time of one device alone (`partition.alone`) for all layers, divided by the
time of the busiest device for its own. It leaves out links, firings and the cost of cutting, which
`period_s` includes. **Memory saving**: how much less memory the fullest device needs than one
device alone, as predicted (`partition.prediction.memory`) and by Eq. 2 of Tang & Stefanov (2021).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from launcher.commands.options import SolveOptions
from launcher.commands.problems import Search, read_search
from launcher.errors import BadInputError
from launcher.plan.batch_size import BatchChoice, check_latency, fill_s
from launcher.plan.engine_check import EngineCheck, check_tensorrt, tensorrt_unchecked
from launcher.plan.files import SUBNETS, check_save_folder, save_plan
from launcher.plan.planner import search
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import ProgressDisplay, open_progress
from launcher.quantities import megabytes
from launcher.results.energy_text import energy_text, joules
from launcher.results.report_text import print_table
from launcher.results.sentences import batches_text
from launcher.results.tables import RowTable
from partition.alone import (
    alone_as_json,
    fullest_bytes,
    fullest_eq2_bytes,
    plan_alone,
    saved_percent,
    saved_text,
)
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import Planned
from partition.prediction.timing import device_energies_j, energy_j, power_w
from partition.strategies.base import divided_seconds


@dataclass(frozen=True)
class DeviceShare:
    """One device's layers (each part of a layer counts), bytes, and what it takes per frame."""

    name: str
    layers: int
    weight_bytes: int
    memory_bytes: int
    memory_eq2_bytes: int
    compute_s: float
    joules_per_frame_predicted: float


@dataclass(frozen=True)
class Solved:
    """A plan, and how it was found.

    `alone` is the whole network on one device. `engines` are those that were built from the plan's
    subnets, and not run. `batch` says how the number of frames in a batch was chosen, if it was.
    """

    found: Planned
    seconds: float
    alone: Plan
    engines: EngineCheck | None = None
    batch: BatchChoice | None = None

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.found.plan

    @property
    def devices(self) -> tuple[DeviceShare, ...]:
        """The share of every device, also of those without layers."""
        plan, network = self.plan, self.found.network
        busy, energies_j = _layer_seconds(self.found), device_energies_j(plan, plan.frame_s)
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
                    energies_j.get(device.name, 0.0),
                )
            )
        return tuple(shares)

    @property
    def speedup_bound(self) -> float:
        """See the module's docstring; 0 if no layer takes any time."""
        busiest = max(share.compute_s for share in self.devices)
        names = [device.name for device in self.found.problem.devices]
        column = names.index(self.alone.phases[0].device)
        alone_s = float(self.found.problem.costs.layer_s[:, column].sum()) / self.plan.batch
        return alone_s / busiest if busiest else 0.0

    @property
    def memory_saving_percent(self) -> float:
        """See the module's docstring."""
        return saved_percent(fullest_bytes(self.plan), fullest_bytes(self.alone))

    @property
    def memory_eq2_saving_percent(self) -> float:
        """See the module's docstring."""
        return saved_percent(fullest_eq2_bytes(self.plan), fullest_eq2_bytes(self.alone))

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data; `seconds` is the duration of the search."""
        plan = self.plan
        return {
            "network": plan.network,
            "strategy": plan.strategy,
            "objective": self.found.problem.objective,
            "explanation": plan.explanation,
            "devices": [vars(share) for share in self.devices],
            "batch": plan.batch,
            "period_s": plan.frame_s,
            "latency_s": plan.latency_s,
            "joules_per_frame_predicted": energy_j(plan),
            "watts_predicted": power_w(plan),
            "alone": alone_as_json(self.alone),
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
                    "period_s": candidate.period_s / plan.batch,
                    "memory_bytes": candidate.memory_bytes,
                    "bytes_per_frame": candidate.wire_bytes,
                }
                for candidate in self.found.solution.front
            ],
            "generations": [dict(record) for record in self.found.solution.generations],
            "batch_choice": None if self.batch is None else asdict(self.batch),
            "engines_built": None if self.engines is None else asdict(self.engines),
        }

    def print(self) -> None:
        """Print a table of devices, and the figures of the whole plan."""
        print_table(_table(self), _lines(self))


def solve(asked: Search, progress: ProgressDisplay) -> Solved:
    """Search for the plan; raises `BadInputError`."""
    began_s = time.monotonic()
    try:
        found = search(asked.problem, asked.strategy, progress)
        alone = plan_alone(asked.problem)
    except PartitionError as error:
        raise BadInputError(str(error)) from error
    return Solved(found, time.monotonic() - began_s, alone, batch=asked.choice)


def _measured(found: Planned) -> NDArray[np.float64] | None:
    """Return the measured seconds of the assigned layers; None without measurements."""
    problem = found.problem
    if problem.layer_s is None or found.network is problem.network:
        return problem.layer_s
    return divided_seconds(problem.network, problem.layer_s, found.network)


def _layer_seconds(found: Planned) -> dict[str, float]:
    """Return each device's seconds per frame for its layers, without cutting and firing."""
    plan, network = found.plan, found.network
    problem = replace(found.problem, network=network, pins={}, layer_s=_measured(found))
    column = {device.name: number for number, device in enumerate(plan.devices)}
    seconds = np.zeros(len(column))
    share = {copy: plan.dealing.count(copy) / len(plan.dealing) for copy in plan.dealing}
    for phase in plan.phases:
        number = column[phase.device]
        own = problem.costs.layer_s[[network.place[layer] for layer in phase.layers], number]
        seconds[number] += share[phase.copy] * own.sum()
    return {name: float(seconds[number]) / plan.batch for name, number in column.items()}


def perform(options: SolveOptions) -> Solved:
    """Search for a plan; raises `BadInputError`, also for options that contradict each other."""
    if options.save is not None:
        if options.cluster is None:
            raise BadInputError("--save needs --cluster: name the cluster that will run the plan")
        check_save_folder(options.save)
    if options.convergence is not None and options.convergence.suffix != ".svg":
        raise BadInputError(f"--convergence {str(options.convergence)!r}: must end in .svg")
    unchecked = tensorrt_unchecked()
    if options.engine == "tensorrt" and unchecked is not None:
        raise BadInputError(f"--engine tensorrt: {unchecked}")
    with open_progress() as progress:
        asked = read_search(options, progress, options.objective)
        solved = solve(asked, progress)
        if options.convergence is not None and not solved.found.solution.generations:
            raise BadInputError(
                f"--convergence: the plan of {solved.plan.strategy} has no generations to plot; "
                "choose --strategy vertical, vertical-paper or vertical-paper-seeded"
            )
        cluster = None if asked.planner is None else asked.planner.cluster
        if cluster is not None:
            fill = fill_s(cluster, is_pushed=cluster.config.has_source)
            check_latency(cluster, solved.plan, fill)
        on_tensorrt = _tensorrt_devices(options, asked, solved.plan)
        if on_tensorrt and unchecked is not None:
            progress.say(f"engines of {', '.join(on_tensorrt)} are not checked: {unchecked}")
        elif on_tensorrt:
            engines = check_tensorrt(
                asked.model,
                solved.plan,
                on_tensorrt,
                lambda done, total: progress.update("building engines", done, total),
            )
            solved = replace(solved, engines=engines)
        if options.save is not None and cluster is not None:
            save_plan(options.save, solved.plan, cluster)
            cut_subnets(
                asked.model,
                solved.plan,
                options.save / SUBNETS,
                lambda done, total: progress.update("cutting subnets", done, total),
            )
            progress.say(f"saved in {options.save}; launch {options.save} runs it")
    return solved


def _tensorrt_devices(options: SolveOptions, asked: Search, plan: Plan) -> tuple[str, ...]:
    """Return the devices with layers whose engine is TensorRT, by --engine or else the cluster."""
    used = dict.fromkeys(phase.device for phase in plan.phases)
    if options.engine is not None:
        return tuple(used) if options.engine == "tensorrt" else ()
    nodes = () if asked.planner is None else asked.planner.nodes
    return tuple(node.name for node in nodes if node.engine == "tensorrt" and node.name in used)


def _table(solved: Solved) -> RowTable:
    heads = ("device", "layers", "weights", "memory", "by Eq. 2", "compute/frame", "energy/frame")
    rows = [
        (
            share.name,
            str(share.layers),
            megabytes(share.weight_bytes),
            megabytes(share.memory_bytes),
            megabytes(share.memory_eq2_bytes),
            f"{share.compute_s * 1e3:.2f} ms",
            joules(share.joules_per_frame_predicted) if share.layers else "switched off",
        )
        for share in solved.devices
    ]
    return RowTable(heads, rows)


def _lines(solved: Solved) -> list[str]:
    plan = solved.plan
    lines = [
        f"period {plan.frame_s * 1e3:.2f} ms{batches_text(plan.batch)}, "
        f"latency {plan.latency_s * 1e3:.1f} ms, "
        f"{megabytes(plan.bytes_per_frame)} per frame between devices, {len(plan.phases)} phases; "
        f"times are {plan.times}",
        f"energy {energy_text(plan)}, by the `busy_w` and `idle_w` of the devices",
        f"at most {solved.speedup_bound:.2f} times as fast as the fastest device alone "
        f"({len(plan.devices)} devices); the fullest device needs "
        f"{saved_text(solved.memory_saving_percent)} memory than one alone, "
        f"{saved_text(solved.memory_eq2_saving_percent)} by Eq. 2",
        f"proof: {plan.proof}",
        f"strategy: {plan.strategy}: {plan.explanation}",
    ]
    if plan.optimal:
        lines.append("proved optimal")
    elif plan.gap is not None:
        lines.append(f"not proved optimal: at most {plan.gap:.1%} from it")
    if solved.batch is not None:
        lines.append(f"batches of {solved.batch.batch}: {solved.batch.reason}")
    if solved.engines is not None:
        lines.append(str(solved.engines))
    return [*lines, f"found in {solved.seconds:.1f} s"]
