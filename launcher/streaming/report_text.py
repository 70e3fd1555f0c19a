"""Shows the report of a stream to people, as text and on the page of its run."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from launcher.quantities import megabytes, rate, seconds
from launcher.results.energy_text import energy_lines
from launcher.results.page.comparison import Compared, per_second
from launcher.results.report_text import (
    absence_lines,
    choice_lines,
    nodes_table,
    recovery_lines,
)
from launcher.streaming.report import LatencyReport, SinkReport, StreamReport
from nodes.protocol.fields import printable
from partition.plan import Plan


def stream_text(report: StreamReport) -> RenderableType:
    """Return the table of nodes, then a line for each count."""
    lines = [Text(printable(line)) for line in stream_lines(report)]
    return Group(*([nodes_table(report.nodes)] if report.nodes else []), *lines)


def stream_lines(report: StreamReport) -> Iterator[str]:
    """Return the sentences of a report."""
    planned = f"{1 / report.period_planned_s:.2f} frames/s" if report.period_planned_s > 0 else "0"
    yield (
        f"{report.results} results in {report.seconds:.2f} s: {report.frames_per_second:.2f} "
        f"frames/s; {planned} were planned; {report.in_flight} frames in flight"
    )
    yield f"{report.source}: {_read(report)}"
    yield from _gaps(report)
    yield f"latency from reading a frame to its result: {_latency(report.latency)}"
    yield from map(_sink, report.sinks)
    yield from choice_lines(report.batch_choice)
    yield from energy_lines(report.nodes)
    yield from absence_lines(report.absences)
    yield from recovery_lines(report.recoveries)
    if report.infinite is not None and report.infinite.results:
        yield (
            f"{report.infinite.results} results contain NaN or infinity, the first is frame "
            f"{report.infinite.first_frame}, output {report.infinite.first_output!r}"
        )
    yield f"{megabytes(report.bytes_per_frame)} per frame between nodes"
    yield f"proof: {report.proof}"
    yield f"strategy: {report.strategy}: {report.explanation}"


def _read(report: StreamReport) -> str:
    parts = [f"{report.read} frames read, {report.dropped} of them dropped"]
    if report.refused:
        parts.append(f"{report.refused} could not be used")
    if lost := report.read - report.dropped - report.refused - report.results:
        parts.append(f"{lost} were given up when the stream was stopped")
    if report.signal is not None:
        parts.append("stopped by a signal")
    return ", ".join(parts)


def _gaps(report: StreamReport) -> Iterator[str]:
    gaps = report.gaps
    if gaps.number:
        last = gaps.last[-1]
        yield (
            f"the source was lost {_times(gaps.number)}, for {seconds(gaps.total_s)} in all and "
            f"{seconds(gaps.longest_s)} at the longest, the last time after frame "
            f"{last.after_frame} ({last.reason})"
        )


def _latency(latency: LatencyReport) -> str:
    if latency.median_s is None or latency.percentile_99_s is None:
        return "none"
    return f"{seconds(latency.median_s)} in the median, {seconds(latency.percentile_99_s)} at 99 %"


def _sink(sink: SinkReport) -> str:
    counts = [f"{sink.delivered} of {sink.given} results delivered"]
    for number, what in (
        (sink.dropped, "dropped"),
        (sink.refused, "refused"),
        (sink.not_delivered, "not delivered before the end"),
    ):
        if number:
            counts.append(f"{number} {what}")
    if sink.losses:
        counts.append(f"lost {_times(sink.losses)}")
    return f"{sink.sink}: {', '.join(counts)}; latency {_latency(sink.latency)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def stream_problems(report: StreamReport) -> list[str]:
    """Return sentences on what went wrong in a stream, beyond its events."""
    found = recovery_lines(report.recoveries)
    counts = {
        "frames were dropped, as the source was faster": report.dropped,
        "frames could not be used": report.refused,
        "results contain NaN or infinity": 0
        if report.infinite is None
        else report.infinite.results,
        "times the source was lost": report.gaps.number,
    }
    found += [f"{number} {what}" for what, number in counts.items() if number]
    for sink in report.sinks:
        if missing := sink.dropped + sink.refused + sink.not_delivered:
            found.append(f"{sink.sink}: {missing} of {sink.given} results were not delivered")
    return found


def of_stream(report: StreamReport, plan: Plan) -> list[Compared]:
    """Return the figures of a stream, whose source may be slower than the nodes."""
    latency, planned = report.latency, per_second(report.period_planned_s)
    measured = [
        "" if s is None else seconds(s) for s in (latency.median_s, latency.percentile_99_s)
    ]
    return [
        Compared("frames/s", planned, "", rate(report.frames_per_second)),
        Compared("median latency", seconds(plan.latency_s), "", measured[0]),
        Compared("latency of 99 %", "", "", measured[1]),
        Compared("frames read", "", "", str(report.read)),
        Compared("frames dropped", "", "", str(report.dropped)),
    ]  # fmt: skip
