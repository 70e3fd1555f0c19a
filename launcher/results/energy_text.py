"""Prints energies for people."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.results.report import NodeReport, total_j
from partition.plan import Plan
from partition.prediction.timing import energy_j, power_w

_MOST_NODES = 8


def energy_lines(nodes: Sequence[NodeReport]) -> list[str]:
    """Return the lines of a report on energy: of all nodes, then of each measured one."""
    used = [node for node in nodes if node.phases]
    if not used:
        return []
    total = total_j(used)
    predicted = f"{joules(sum(node.joules_per_frame_predicted for node in used))} predicted"
    assumed = assumed_text(used)
    lines = [f"energy: {predicted} per frame{assumed}"]
    if total is not None:
        watts = sum(node.watts or 0.0 for node in used)
        lines = [
            f"energy: {joules(total)} per frame measured ({watts:.1f} W), {predicted}{assumed}"
        ]
    missing: dict[str, list[str]] = {}
    for node in used:
        if node.joules_per_frame is None or node.watts is None:
            missing.setdefault(node.unmetered, []).append(node.name)
        elif len(lines) <= _MOST_NODES:
            lines.append(
                f"  {node.name}: {joules(node.joules_per_frame)} per frame ({node.watts:.1f} W) by "
                f"{node.meter}, {joules(node.joules_per_frame_predicted)} predicted"
            )
    lines += [f"  not measured on {', '.join(names)}: {why}" for why, names in missing.items()]
    return lines


def assumed_text(nodes: Sequence[NodeReport]) -> str:
    """Return a clause on the nodes whose predicted energy rests on assumed watts; empty if none
    does."""
    used = [node for node in nodes if node.phases]
    assumed = [node.name for node in used if node.assumed_watts]
    if not assumed:
        return ""
    whose = "all nodes" if len(assumed) == len(used) else ", ".join(assumed)
    return f", by assumed watts of {whose} (write `busy_w` and `idle_w`)"


def energy_text(plan: Plan) -> str:
    """Return what a plan takes, such as `3.10 J per frame, 12.4 W`."""
    return f"{joules(energy_j(plan))} per frame, {power_w(plan):.1f} W"


def joules(energy_j: float) -> str:
    """Format an energy, such as `12.3 mJ`."""
    if energy_j < 1e-3:
        return f"{energy_j * 1e6:.0f} µJ"
    return f"{energy_j * 1e3:.1f} mJ" if energy_j < 1 else f"{energy_j:.2f} J"
