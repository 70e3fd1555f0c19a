"""Compares the predictions of a run with its measurements, as rows of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launcher.quantities import megabytes, rate, seconds
from launcher.results.energy_text import assumed_text, joules
from launcher.results.report import NodeReport, Report
from launcher.results.sentences import recovery_lines
from launcher.results.tables import RowTable
from launcher.view.model import RunView
from launcher.view.shown import latency_texts
from partition.plan import Plan


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
    """Return the figures of a run; a source may be slower than the nodes."""
    held = sum(node.fifo_measured_bytes for node in report.nodes)
    expected = sum(node.fifo_predicted_bytes for node in report.nodes)
    streamed, median_s, late_s = report.streamed, report.latency_s, None
    if streamed is not None:
        late_s = streamed.latency.percentile_99_s
        median_s = streamed.latency.median_s if median_s is None else median_s
    return [
        Compared(
            "frames/s, once the pipeline is full",
            per_second(report.period_planned_s),
            per_second(report.period_predicted_s or 0.0),
            per_second(report.period_measured_s or 0.0),
        ),
        Compared("frames/s in all", "", "", rate(report.frames_per_second)),
        Compared(
            "median latency",
            seconds(plan.latency_s),
            _seconds(report.latency_predicted_s),
            _seconds(median_s),
        ),
        Compared("worst latency", "", "", _seconds(report.latency_worst_s)),
        Compared("latency of 99 % since frames were read", "", "", _seconds(late_s)),
        Compared("frames read", "", "", str(report.frames if streamed is None else streamed.read)),
        Compared("frames dropped", "", "", str(0 if streamed is None else streamed.dropped)),
        Compared("most in FIFOs", "", megabytes(expected), megabytes(held)),
        Compared(
            "sent per frame", megabytes(report.bytes_per_frame), "",
            megabytes(report.bytes_per_frame_measured),
        ),
        Compared(
            "energy per frame", "",
            joules(report.joules_per_frame_predicted) + assumed_text(report.nodes),
            "" if report.joules_per_frame is None else joules(report.joules_per_frame),
        ),
    ]  # fmt: skip


def _seconds(found_s: float | None) -> str:
    return "" if found_s is None else seconds(found_s)


def run_problems(report: Report) -> list[str]:
    """Return sentences on what went wrong in a run, beyond its events."""
    found = recovery_lines(report.recoveries)
    if report.agreement is not None and not report.agrees:
        found.append(report.agreement.disagreement)
    if report.infinite is not None and report.infinite.results:
        found.append(f"{report.infinite.results} results contain NaN or infinity")
    streamed = report.streamed
    if streamed is not None:
        counts = {
            "frames were dropped, as the source was faster": streamed.dropped,
            "frames could not be used": streamed.refused,
            "times the source was lost": streamed.gaps.number,
        }
        found += [f"{number} {what}" for what, number in counts.items() if number]
        for sink in streamed.sinks:
            if missing := sink.dropped + sink.refused + sink.not_delivered:
                found.append(f"{sink.sink}: {missing} of {sink.given} results were not delivered")
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


def node_rows(nodes: Sequence[NodeReport]) -> RowTable:
    """Return the nodes: memory, FIFOs, load and energy, each measured and predicted in one cell."""
    heads = (
        "node", "layers", "phases", "memory: Eq. 2", "peak / predicted", "limit",
        "most in FIFOs / predicted", "busy", "energy / predicted", "computes with",
    )  # fmt: skip
    return RowTable(heads, [_node_row(node) for node in nodes])


def _node_row(node: NodeReport) -> list[str]:
    used = node.phases > 0
    limit, joules_measured = node.memory_limit_bytes, node.joules_per_frame
    assumed = " assumed" if used and node.assumed_watts else ""
    return [
        node.name,
        str(node.layers),
        str(node.phases),
        megabytes(node.memory_eq2_bytes),
        _both(
            megabytes(node.memory_measured_bytes) if used else "not used",
            megabytes(node.memory_predicted_bytes),
        ),
        "none" if limit is None else megabytes(limit),
        _both(
            megabytes(node.fifo_measured_bytes) if used else "-",
            megabytes(node.fifo_predicted_bytes),
        ),
        f"{node.busy_fraction:.0%}" if used else "",
        _both(
            "-" if joules_measured is None else joules(joules_measured),
            joules(node.joules_per_frame_predicted) + assumed,
        ),
        " ".join(filter(None, (node.engine, node.device, node.precision))),
    ]


def _both(measured: str, predicted: str) -> str:
    return f"{measured} / {predicted}"


def is_plan_of(plan: Plan, view: RunView) -> bool:
    """Return whether the view shows this plan, and not one that has replaced it."""
    planned = {(phase.device, phase.name): len(phase.layers) for phase in plan.phases}
    shown = ((node, phase) for node in view.nodes for phase in node.phases)
    return planned == {(node.name, phase.name): phase.layers for node, phase in shown}


def phase_rows(plan: Plan, view: RunView) -> RowTable:
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
    return RowTable(heads, rows)
