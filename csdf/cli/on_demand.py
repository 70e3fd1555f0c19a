"""Run rarely used analyses; `csdf.cli.command` imports this module only when one is asked for.

Each function returns the command's output: a value for `json.dumps`, and a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from csdf.buffers.capacities import Unit
from csdf.buffers.latency_front import LatencyFront, Progress, latency_front
from csdf.buffers.shared_memory import SharedMemory, shared_memory
from csdf.cli.report import counted, cut, exact
from csdf.execution.static_orders import Orders
from csdf.formats.sdf3_scenarios import read_scenarios
from csdf.model.graph import Graph
from csdf.model.scenarios import Scenarios
from csdf.timing import best_orders
from csdf.timing.best_orders import BestOrders
from csdf.timing.k_periodic import KPeriodic, k_periodic_schedule
from csdf.timing.max_plus import max_plus_matrix
from csdf.timing.scenarios import ScenarioPeriods, scenario_periods
from csdf.timing.schedule import Schedule
from csdf.timing.tdma import Slice, with_slices

Printed = tuple[dict[str, object], str]

__all__ = ["read_scenarios"]


def capacities_for_latencies(
    graph: Graph,
    ends: tuple[str, str],
    period: Fraction | None,
    channels: Sequence[str] | None,
    unit: Unit,
    effort: int,
    progress: Progress,
) -> Printed:
    """Find the smallest capacities for each latency between `ends`."""
    found = latency_front(graph, *ends, period, channels, unit, effort, progress)
    return {"unit": unit, **found.as_json()}, _latency_front_text(found, unit)


def with_worst_times(graph: Graph, given: Sequence[tuple[str, Fraction, Fraction]]) -> Graph:
    """Return `graph` with the worst times of actors that have slices of a time wheel."""
    return with_slices(graph, {name: Slice(time, wheel) for name, time, wheel in given})


def k_periodic(
    graph: Graph, cycles: int | Mapping[str, int]
) -> tuple[dict[str, object] | None, str]:
    """Find a K-periodic schedule; None if there is none."""
    found = k_periodic_schedule(graph, cycles)
    return None if found is None else found.as_json(), _k_periodic_text(found)


def searched_orders(
    graph: Graph, on: Sequence[tuple[str, Sequence[str]]], effort: int | None
) -> tuple[Orders, Printed]:
    """Find the best static orders of processors."""
    processors = {name: processor for processor, names in on for name in names}
    most = best_orders.EFFORT if effort is None else effort
    found = best_orders.best_orders(graph, processors, most)
    return found.orders, ({"at_least": str(found.at_least)}, _best_orders_text(found))


def memory(graph: Graph, schedule: Schedule) -> Printed:
    """Let the buffers of channels share memory."""
    found = shared_memory(graph, schedule)
    return {"memory": found.as_json()}, _memory_text(found)


def worst_period(scenarios: Scenarios, effort: int) -> Printed:
    """Analyse scenarios."""
    found = scenario_periods(scenarios, effort)
    return found.as_json(), _scenarios_text(found)


def matrix(graph: Graph) -> dict[str, object]:
    """Return the max-plus matrix of an iteration."""
    return max_plus_matrix(graph).as_json()


def _latency_front_text(front: LatencyFront, unit: Unit) -> str:
    """Return a table of the points of size, period and latency."""
    rows = [[f"size ({unit})", "period", "latency", "capacities"]]
    for point in front.points:
        listed = ", ".join(f"{name} {count}" for name, count in point.capacities.items())
        rows.append([str(point.size), exact(point.pace), exact(point.latency), listed])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row[:3], widths, strict=False))
        + f"  {row[3]}"
        for row in rows
    ]
    if front.complete:
        lines.append(
            "Each row is proved: nothing smaller has its latency at its period or a shorter one."
        )
    else:
        lines.append("The effort did not suffice: rows may not be the smallest, or be missing.")
    return "\n".join(lines)


def _k_periodic_text(found: KPeriodic | None) -> str:
    """Return a K-periodic schedule as text."""
    if found is None:
        return (
            "There is no such schedule: channels have too little room, or too few initial tokens, "
            "for firings at even distances. Try more cycles (--cycles)."
        )
    lines = [f"period {exact(found.period)} per iteration; actors start at"]
    lines += [
        f"{name}: {' '.join(map(str, own))}, again after {found.turns[name]}"
        for name, own in found.starts.items()
    ]
    return "\n".join(lines)


def _scenarios_text(found: ScenarioPeriods) -> str:
    """Return the periods of scenarios, and the worst of any run."""
    lines = [f"{name}: period {exact(period)}" for name, period in found.periods.items()]
    if not found.critical:
        return "\n".join([*lines, "any run: nothing bounds the throughput"])
    lines.append(f"any run: at most {exact(found.worst)} per iteration in the long run")
    around = cut(found.critical, " → ")
    return "\n".join([*lines, f"as slow as that: {around}, repeated"])


def _memory_text(memory: SharedMemory) -> str:
    """Return the addresses of buffers."""
    lines = []
    for name, own in memory.buffers.items():
        size, tokens = counted(own.size_bytes, "byte"), counted(own.tokens, "token")
        lines.append(f"{name}: {size} at {own.address}, {tokens}")
    least = (
        "and no less is enough"
        if memory.at_least_bytes == memory.total_bytes
        else f"and at least {memory.at_least_bytes} are needed"
    )
    separate = f"{memory.separate_bytes} without sharing"
    lines.append(f"{counted(memory.total_bytes, 'byte')} together, {least}; {separate}")
    return "\n".join(lines)


def _best_orders_text(best: BestOrders) -> str:
    """Return whether the orders are proved to be the best."""
    if best.exact:
        return f"No static orders have a shorter period than {exact(best.period)}."
    return (
        f"The effort did not suffice: better orders may exist, with a period of at least "
        f"{exact(best.at_least)}."
    )
