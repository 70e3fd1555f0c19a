"""Says what a run was like in five lines, and in one more for each thing that happened to it.

The lines are rate, latency, memory, agreement and what limits the rate. `--verbose` prints
`launcher.results.sentences` too.
"""

from __future__ import annotations

from collections.abc import Sequence

from launcher.quantities import megabytes, rate, seconds
from launcher.results.limit import Limit
from launcher.results.report import NodeReport, Report
from launcher.results.sentences import (
    agreement_line,
    batches_text,
    bound_text,
    compared_alone,
    events_of,
    quantiles_text,
)
from launcher.view.shown import SLOW_RATE

_MOST_NODES = 5
"""More nodes than these are not named with their memory; the fullest one is."""

_MOST_EVENTS = 6
"""Further lines on what happened are counted."""

_SHORT_RUN = 50
"""A run of fewer frames says little about what limits the rate."""


def summary_lines(report: Report) -> list[str]:
    """Return five lines on a run, fewer if nothing was computed, and lines on what happened."""
    return [*figure_lines(report), *limit_lines(report), *_happened(report)]


def figure_lines(report: Report) -> list[str]:
    """Return lines on rate, latency, memory and agreement."""
    return [_rate(report), *_latency(report), *_memory(report), _agreement(report)]


def _happened(report: Report) -> list[str]:
    happened = [*_alone(report), *events_of(report)]
    if len(happened) > _MOST_EVENTS:
        more = len(happened) - _MOST_EVENTS + 1
        happened = [*happened[: _MOST_EVENTS - 1], f"and {more} more lines, with --verbose"]
    return happened


def _rate(report: Report) -> str:
    if not report.frames:
        return f"no frame has a result; the input was {report.input}"
    total = f"{report.frames} frames in {report.seconds:.2f} s{batches_text(report.batch)}"
    if report.period_measured_s is None or report.period_predicted_s is None:
        planned = f"; the nodes can make {_per_second(report.period_planned_s)}"
        return f"{rate(report.frames_per_second)} frames/s: {total}{planned}"
    return (
        f"{_per_second(report.period_measured_s)} once the pipeline is full, "
        f"{_per_second(report.period_predicted_s)} expected; {total}"
    )


def _per_second(period_s: float) -> str:
    return f"{rate(1 / period_s)} frames/s" if period_s > 0 else "no time per frame"


def _latency(report: Report) -> list[str]:
    if report.latency_s is not None and report.latency_worst_s is not None:
        expected = report.latency_predicted_s
        return [
            f"latency {seconds(report.latency_s)} in the median"
            + ("" if expected is None else f", {seconds(expected)} expected")
            + f"; {seconds(report.latency_worst_s)} at worst{bound_text(report, report.latency_s)}"
        ]
    if report.streamed is None or report.streamed.latency.median_s is None:
        return []
    found = report.streamed.latency
    return [f"latency from reading a frame to its result: {quantiles_text(found)}"]


def _memory(report: Report) -> list[str]:
    """Return a line on the memory of each node, or of the fullest of many, and of one alone."""
    used = [node for node in report.nodes if node.phases]
    if not used:
        return []
    if len(used) <= _MOST_NODES:
        held = ", ".join(f"{node.name} {megabytes(node.memory_measured_bytes)}" for node in used)
    else:
        fullest = max(used, key=lambda node: node.memory_measured_bytes)
        size = megabytes(fullest.memory_measured_bytes)
        held = f"{size} at most, on {fullest.name}, one of {len(used)}"
    alone = compared_alone(report)
    if alone is None:
        return [f"memory (peak): {held}"]
    return [f"memory (peak): {held}; {alone.node} alone {megabytes(alone.memory_bytes)}"]


def _agreement(report: Report) -> str:
    accuracy = report.accuracy
    if accuracy is None:
        return agreement_line(report, brief=True)
    return f"{agreement_line(report, brief=True)}; accuracy {accuracy.distributed:.2%}"


def limit_lines(report: Report) -> list[str]:
    """Return a line on what limits the rate and on what would help; none without a measurement."""
    limit = report.limit
    if limit is None:
        return []
    return [f"bottleneck: {_limit(limit)}; {_advice(report, limit)}"]


def _limit(limit: Limit) -> str:
    share = f"{limit.share:.0%}"
    match limit.kind:
        case "node":
            return f"{limit.node} (busy {share})"
        case "link":
            return f"link of {limit.node} (busy {share})"
        case "source":
            return f"the source ({limit.node} is busy {share})"
        case "waiting":
            return f"messages ({limit.node} is busy {share})"


def _advice(report: Report, limit: Limit) -> str:
    """Return what the user can do for a higher rate, in some forty characters."""
    if _alone(report):
        return "one node alone is faster"
    if limit.kind == "source":
        return "a faster source would get more results"
    if report.frames < _SHORT_RUN:
        return f"stream {_SHORT_RUN} frames or more"
    if limit.kind == "link":
        wired = "" if report.wire is not None else ", or `wire: auto`,"
        return f"a faster link{wired} would help"
    if limit.kind == "waiting":
        return _shorter_waiting(report)
    if _is_slow(report):
        return "slower than rehearsed: try `launch doctor`"
    if limit.is_shared:
        return "nodes share its cores: add a machine"
    others = [node for node in _used(report.nodes) if node.name != limit.node]
    if others and max(node.busy_fraction for node in others) < limit.share / 2:
        return "the others wait: try `launch --search again`"
    return "a faster board, or one more, would help"


def _shorter_waiting(report: Report) -> str:
    if report.order == "strict":
        return "`order: pipelined` would help"
    if len(_used(report.nodes)) > 1:
        return "try fewer nodes or a larger `batch`"
    return "try a larger `batch`"


def _alone(report: Report) -> list[str]:
    """Return a line if one node alone would be faster, which says why it does not work alone."""
    alone = compared_alone(report)
    if alone is None or not alone.why_not:
        return []
    return [f"{alone.node} alone would make {_per_second(alone.period_s)}, but {alone.why_not}"]


def _is_slow(report: Report) -> bool:
    measured_s, expected_s = report.period_measured_s, report.period_predicted_s
    return measured_s is not None and expected_s is not None and expected_s < SLOW_RATE * measured_s


def _used(nodes: Sequence[NodeReport]) -> list[NodeReport]:
    return [node for node in nodes if node.phases]
