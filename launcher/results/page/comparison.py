"""Compares the predictions of a run with its measurements, as rows of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launcher.quantities import megabytes, rate, seconds
from launcher.results.energy_text import joules
from launcher.results.report import NodeReport, Report
from launcher.results.report_text import recovery_lines
from launcher.view.model import RunView
from launcher.view.shown import latency_texts
from partition.plan import Plan

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The heads of a table, and its rows."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of a whole run: before it, simulated with the agents' warm-up times, measured."""

    what: str
    planned: str
    predicted: str
    measured: str


def per_second(period_s: float) -> str:
    """Return the rate of frames at this period, as a text; empty if there is none."""
    return rate(1 / period_s) if period_s > 0 else ""


def of_run(report: Report, plan: Plan) -> list[Compared]:
    """Return the figures of a run over files."""
    held = sum(node.fifo_measured_bytes for node in report.nodes)
    expected = sum(node.fifo_predicted_bytes for node in report.nodes)
    return [
        Compared(
            "frames/s, once the pipeline is full",
            per_second(report.period_planned_s),
            per_second(report.period_predicted_s),
            per_second(report.period_measured_s),
        ),
        Compared("frames/s in all", "", "", rate(report.frames_per_second)),
        Compared(
            "median latency",
            seconds(plan.latency_s),
            seconds(report.latency_predicted_s),
            seconds(report.latency_s),
        ),
        Compared("worst latency", "", "", seconds(report.latency_worst_s)),
        Compared("most in FIFOs", "", megabytes(expected), megabytes(held)),
        Compared(
            "sent per frame", megabytes(report.bytes_per_frame), "",
            megabytes(report.bytes_per_frame_measured),
        ),
        Compared(
            "energy per frame", "", joules(report.joules_per_frame_predicted),
            "" if report.joules_per_frame is None else joules(report.joules_per_frame),
        ),
    ]  # fmt: skip


def run_problems(report: Report) -> list[str]:
    """Return sentences on what went wrong in a run, beyond its events."""
    found = recovery_lines(report.recoveries)
    if report.agreement is not None and not report.agrees:
        found.append(report.agreement.disagreement)
    if report.infinite is not None and report.infinite.results:
        found.append(f"{report.infinite.results} results contain NaN or infinity")
    if report.pace is not None and report.pace.dropped:
        found.append(f"{report.pace.dropped} frames were dropped, as the source was faster")
    return found


def of_view(view: RunView, plan: Plan) -> list[Compared]:
    """Return the figures of a run whose frames came from elsewhere, such as requests."""
    median, worst = latency_texts(view.latency)
    lasted_s = view.taken_s - view.started_s
    mean = rate(view.frames_total / lasted_s) if lasted_s > 0 else ""
    return [
        Compared("frames/s", rate(view.predicted_rate), "", f"{mean} over all the time"),
        Compared("median latency", seconds(plan.latency_s), "", median),
        Compared("latency of 99 %", "", "", worst),
        Compared("frames", "", "", str(view.frames_total)),
        Compared("recoveries", "", "", str(view.recoveries_total)),
    ]


def node_rows(nodes: Sequence[NodeReport]) -> Rows:
    """Return the nodes: memory, FIFOs, load and energy, predicted and measured."""
    heads = (
        "node", "layers", "phases", "memory: Eq. 2", "predicted", "peak", "limit",
        "FIFOs predicted", "most in FIFOs", "busy", "energy predicted", "measured", "computes with",
    )  # fmt: skip
    return heads, [_node_row(node) for node in nodes]


def _node_row(node: NodeReport) -> list[str]:
    used = node.phases > 0
    limit = node.memory_limit_bytes
    return [
        node.name,
        str(node.layers),
        str(node.phases),
        megabytes(node.memory_eq2_bytes),
        megabytes(node.memory_predicted_bytes),
        megabytes(node.memory_measured_bytes) if used else "not used",
        "none" if limit is None else megabytes(limit),
        megabytes(node.fifo_predicted_bytes),
        megabytes(node.fifo_measured_bytes) if used else "",
        f"{node.busy_fraction:.0%}" if used else "",
        joules(node.joules_per_frame_predicted),
        "" if node.joules_per_frame is None else joules(node.joules_per_frame),
        " ".join(filter(None, (node.engine, node.device, node.precision))),
    ]


def is_plan_of(plan: Plan, view: RunView) -> bool:
    """Return whether the view shows this plan, and not one that has replaced it."""
    planned = {(phase.device, phase.name): len(phase.layers) for phase in plan.phases}
    shown = ((node, phase) for node in view.nodes for phase in node.phases)
    return planned == {(node.name, phase.name): phase.layers for node, phase in shown}


def phase_rows(plan: Plan, view: RunView) -> Rows:
    """Return the phases: seconds per firing, predicted and measured, and how often each fired.

    Figures that only a plan has are left out if the view shows another plan.
    """
    heads = (
        "phase", "node", "skew", "layers", "planned", "predicted", "measured", "firings",
        "first layers",
    )  # fmt: skip
    planned = {phase.name: phase for phase in plan.phases} if is_plan_of(plan, view) else {}
    rows = []
    for node in view.nodes:
        for seen in node.phases:
            phase = planned.get(seen.name)
            rows.append(
                [
                    seen.name,
                    node.name,
                    str(phase.skew) if phase else "",
                    str(seen.layers),
                    seconds(phase.predicted_s) if phase else "",
                    seconds(seen.predicted_s),
                    seconds(seen.busy_s / seen.firings) if seen.firings else "",
                    str(seen.firings),
                    ", ".join(phase.layers[:3]) + ", …" * (len(phase.layers) > 3) if phase else "",
                ]
            )
    return heads, rows
