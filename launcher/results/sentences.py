"""Says in sentences what a run was like: all of them, for `--verbose` and the page of a report.

`launcher.results.summary` has the few that everybody reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from launcher.core.roll import Absence
from launcher.plan.batch_size import BatchChoice
from launcher.quantities import megabytes, seconds
from launcher.results.comparison.tolerance import Rule
from launcher.results.energy_text import energy_lines
from launcher.results.gaps import Gaps
from launcher.results.report import AloneReport, RecoveryReport, Report, removal_text
from launcher.results.streamed import LatencyReport, SinkReport, Streamed

_SHOWN_ROWS = 8


def report_lines(report: Report) -> list[str]:
    """Return the sentences of a report."""
    held = sum(node.fifo_measured_bytes for node in report.nodes)
    expected = sum(node.fifo_predicted_bytes for node in report.nodes)
    lines = [
        *_times(report),
        *_streamed(report),
        f"{megabytes(report.bytes_per_frame)} per frame between nodes; at most "
        f"{megabytes(held)} in FIFOs, predicted {megabytes(expected)}",
        *alone_lines(compared_alone(report)),
        *choice_lines(report.batch_choice),
        *energy_lines(report.nodes),
        *(
            f"engine of {node.name}: {node.engine}, {node.engine_reason}"
            for node in report.nodes
            if node.engine_reason
        ),
        agreement_line(report),
        *_networks(report),
        *_wire(report),
        *absence_lines(report.absences),
        *recovery_lines(report.recoveries),
        *_infinite(report),
        *_pace(report),
        *_journal(report),
    ]
    if report.accuracy is not None:
        whole = report.accuracy.whole_model
        beside = "" if whole is None else f"; the whole model's is {whole:.2%}"
        lines.append(f"accuracy {report.accuracy.distributed:.2%}{beside}")
    lines.append(f"proof: {report.proof}")
    lines.append(f"strategy: {report.strategy}: {report.explanation}")
    return lines


def _times(report: Report) -> list[str]:
    """Return sentences on rate and latency: of single frames, if their times were kept."""
    planned, streamed = rate_text(report.period_planned_s), report.streamed
    total = (
        f"{report.frames} frames in {report.seconds:.2f} s: "
        f"{report.frames_per_second:.2f} frames/s{batches_text(report.batch)}"
    )
    first = f"first result {report.first_result_s:.1f} s after the start"
    if (
        report.period_measured_s is None
        or report.period_predicted_s is None
        or report.latency_s is None
        or report.latency_predicted_s is None
        or report.latency_worst_s is None
    ):
        in_flight = f"; {streamed.in_flight} frames in flight" if streamed is not None else ""
        return [
            f"{total}; {planned} were planned{in_flight}" + (f"; {first}" if report.frames else "")
        ]
    return [
        f"{total}, {rate_text(report.period_measured_s)} once full; predicted "
        f"{rate_text(report.period_predicted_s)} from the agents' warm-up timings, {planned} "
        "before the run",
        f"latency {seconds(report.latency_s)} in the median, "
        f"predicted {seconds(report.latency_predicted_s)}; "
        f"{seconds(report.latency_worst_s)} at worst{bound_text(report, report.latency_s)}; "
        f"{first}",
    ]


def _streamed(report: Report) -> list[str]:
    """Return sentences on a source and sinks; files that go to no sink need none."""
    streamed = report.streamed
    if streamed is None or (report.latency_s is not None and not streamed.sinks):
        return []
    return [
        f"{report.input}: {_read(streamed)}",
        *_gaps(streamed.gaps),
        f"latency from reading a frame to its result: {quantiles_text(streamed.latency)}",
        *map(_sink, streamed.sinks),
    ]


def _read(streamed: Streamed) -> str:
    parts = [f"{streamed.read} frames read, {streamed.dropped} of them dropped"]
    if streamed.refused:
        parts.append(f"{streamed.refused} could not be used")
    if streamed.lost:
        parts.append(f"{streamed.lost} were abandoned when the stream was stopped")
    if streamed.signal is not None:
        parts.append("stopped by a signal")
    return ", ".join(parts)


def _gaps(gaps: Gaps) -> list[str]:
    if not gaps.number:
        return []
    last = gaps.last[-1]
    return [
        f"the source was lost {_how_often(gaps.number)}, for {seconds(gaps.total_s)} in all and "
        f"{seconds(gaps.longest_s)} at the longest, the last time after frame "
        f"{last.after_frame} ({last.reason})"
    ]


def quantiles_text(latency: LatencyReport) -> str:
    """Return the median and the 99th percentile as text."""
    if latency.median_s is None or latency.percentile_99_s is None:
        return "none"
    return f"{seconds(latency.median_s)} in the median, {seconds(latency.percentile_99_s)} at 99 %"


def _sink(sink: SinkReport) -> str:
    counts = [f"{sink.delivered} of {sink.given} results delivered"]
    for number, what in (
        (sink.dropped, "dropped"),
        (sink.refused, "refused"),
        (sink.not_delivered, "not delivered before the end"),
        (sink.left_out, "further ones not wanted"),
    ):
        if number:
            counts.append(f"{number} {what}")
    if sink.losses:
        counts.append(f"lost {_how_often(sink.losses)}")
    return f"{sink.sink}: {', '.join(counts)}; latency {quantiles_text(sink.latency)}"


def _how_often(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def events_of(report: Report) -> list[str]:
    """Return a line for each thing that happened to a run, or that it has delivered or kept."""
    streamed = report.streamed
    ends: list[str] = []
    if streamed is not None:
        counts = streamed.dropped or streamed.refused or streamed.lost or streamed.signal
        read = [f"{report.input}: {_read(streamed)}"] if counts else []
        ends = [*read, *_gaps(streamed.gaps), *map(_sink, streamed.sinks)]
    return [
        *report.doubts,
        *ends,
        *absence_lines(report.absences),
        *recovery_lines(report.recoveries),
        *_infinite(report),
        *_pace(report),
        *_journal(report),
    ]


def compared_alone(report: Report) -> AloneReport | None:
    """Return the figures of one node alone; None if the plan uses no other node."""
    used = {node.name for node in report.nodes if node.phases}
    return None if report.alone is None or used == {report.alone.node} else report.alone


def alone_lines(alone: AloneReport | None) -> list[str]:
    """Return a line on what one node alone would do."""
    if alone is None:
        return []
    text = f"{alone.node} alone would make {rate_text(alone.period_s)} and hold "
    why = f"; {alone.why_not}" if alone.why_not else ""
    return [text + megabytes(alone.memory_bytes) + why]


def choice_lines(choice: BatchChoice | None) -> list[str]:
    """Return a line that explains the number of frames in a batch, if it was chosen."""
    return [] if choice is None else [f"batches of {choice.batch}: {choice.reason}"]


def bound_text(report: Report, latency_s: float) -> str:
    """Return a clause on the bound on latency; empty without one."""
    if report.max_latency_s is None:
        return ""
    verdict = "within" if latency_s <= report.max_latency_s else "BEYOND"
    return f"; the median is {verdict} the {seconds(report.max_latency_s)} asked for"


def agreement_line(report: Report, *, brief: bool = False) -> str:
    """Return a line on the comparison with the whole model; a `brief` one leaves out the rule."""
    if report.agreement is None:
        return "not compared with the whole model"
    found = report.agreement
    verdict = "agrees with" if report.agrees else "DIFFERS from"
    begins = "" if found.begins is None else f"; {found.begins.sentence}"
    some = "" if report.compared is None else f"{report.compared} results compared: "
    what, rule = ("difference", "") if brief else (
        "largest relative difference", f" ({RULES[found.rule]})",
    )  # fmt: skip
    return (
        f"{some}{verdict} ONNX Runtime on the whole model: {what} "
        f"{_error(found.max_relative_error)}, allowed {found.allowed:.0e}{rule}{begins}"
    )


def _wire(report: Report) -> list[str]:
    """Return a sentence on encoded channels and the deviation that they caused."""
    wire, found = report.wire, report.agreement
    if wire is None:
        return []
    encodings = ", ".join(f"{count} as {name}" for name, count in sorted(wire.channels.items()))
    line = (
        f"channels between nodes are encoded ({encodings}): about "
        f"{megabytes(report.bytes_per_frame)} per frame instead of "
        f"{megabytes(wire.raw_bytes_per_frame)}"
    )
    if wire.is_lossless:
        return [f"{line}; nothing is lost"]
    if found is None:
        return [f"{line}; how far that changes the results was not compared"]
    return [
        f"{line}; with that the results deviate from the whole model's by "
        f"{_error(found.max_relative_error)} at most, and `tolerance` allows {found.allowed:.0e}"
    ]


RULES: Mapping[Rule, str] = {
    "given": "the tolerance given",
    "precision": "what the precision of its numbers explains",
    "ties": "what the precision explains, with rows of tied scores in the model's order",
    "replay": "every phase alone agrees, and rounding moves the whole model's result by as much",
    "movement": "rounding moves the whole model's result by as much",
}
"""The rule that allows an error, for people."""


def _error(error: float) -> str:
    return f"{error:.1e}" if math.isfinite(error) else "infinite (NaN or infinity in a result)"


def _networks(report: Report) -> list[str]:
    """Return a line for each network if there are several."""
    lines = []
    for name, found in report.networks.items():
        where = f" (output {found.worst_output!r} of frame {found.worst_input})"
        lines.append(
            f"  {name}: largest relative difference {_error(found.max_relative_error)}"
            + (where if found.worst_output else "")
        )
    return lines


_CAUSES = {
    "loss": "lost",
    "dispute": "at odds",
    "return": "back again",
    "slow": "slower or faster than planned",
    "rehearsal": "slower or faster in the rehearsal than planned",
    "search": "a better plan was found for",
}


def recovery_lines(recoveries: Sequence[RecoveryReport]) -> list[str]:
    """Return a line for each completed change of epochs."""
    lines = []
    for past in recoveries:
        pause = "" if past.pause_s is None else f", no result for {seconds(past.pause_s)}"
        waited = f" ({seconds(past.waited_s)} of it with too few nodes)" if past.waited_s else ""
        lines.append(
            f"{_CAUSES[past.cause]} {', '.join(past.nodes)}: streaming again after "
            f"{seconds(past.seconds)}{waited}{pause}, from frame {past.frame} on, {past.replayed} "
            f"sent again ({'; '.join(past.reasons)})"
        )
    if lines:
        lines.append("the nodes are those of the last plan, and their figures count from its start")
    return lines


def absence_lines(absences: Sequence[Absence]) -> list[str]:
    """Return a line for each node without which the run began."""
    return [
        f"began without {absence.node}: {absence.reason}; it "
        + (
            "never joined"
            if absence.came_s is None
            else f"joined {seconds(absence.came_s)} after the start"
        )
        for absence in absences
    ]


def _infinite(report: Report) -> list[str]:
    """Return a sentence on results with NaN or infinity, if there are any."""
    found = report.infinite
    if found is None or not found.results:
        return []
    if report.agreement is None:
        verdict = "they were not compared with the whole model's"
    elif report.agrees:
        verdict = "those of the whole model do, in the same places"
    else:
        verdict = "`check: phases` names the phase that makes them and continues without its node"
    return [
        f"{found.results} results contain NaN or infinity, the first is frame "
        f"{found.first_frame}, output {found.first_output!r}; {verdict}"
    ]


def _pace(report: Report) -> list[str]:
    """Return a sentence on dropped frames if the source has its own pace."""
    pace = report.pace
    if pace is None:
        return []
    source = f"the source made {pace.rate:g} frames/s"
    if pace.on_overload == "block":
        return [
            f"{source} at most, and paused while {pace.queue_frames} frames waited; none dropped"
        ]
    rows = [f"{a}" if a == b else f"{a}–{b}" for a, b in pace.dropped_frames[:_SHOWN_ROWS]]
    more = ", …" if len(pace.dropped_frames) > _SHOWN_ROWS else ""
    which = f": {', '.join(rows)}{more}" if rows else ""
    return [
        f"{source}; {pace.dropped} of {report.frames + pace.dropped} were dropped "
        f"({pace.on_overload}, {pace.queue_frames} may wait){which}"
    ]


def _journal(report: Report) -> list[str]:
    """Return a sentence on the journal, if there is one."""
    if report.journal is None:
        return []
    journal = report.journal
    line = (
        f"{journal.saved} results are in {journal.folder}, "
        f"{journal.resumed} of them from earlier launches"
    )
    damaged = f"; {journal.damaged} were damaged there and computed again"
    return [line + (damaged if journal.damaged else "") + removal_text(journal)]


def batches_text(batch: int) -> str:
    """Return a phrase on the number of frames that nodes compute at once; empty for one."""
    return f" in batches of {batch}" if batch > 1 else ""


def rate_text(period_s: float) -> str:
    """Return the rate of frames with a period in seconds, as text."""
    return f"{1 / period_s:.2f} frames/s" if period_s > 0 else "no time per frame"
