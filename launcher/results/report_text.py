"""Prints reports and plans for people, as tables and sentences, by means of Rich."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from launcher.core.roll import Absence
from launcher.plan.batch_size import BatchChoice
from launcher.quantities import megabytes, seconds
from launcher.results.comparison.tolerance import Rule
from launcher.results.energy_text import energy_lines, energy_text
from launcher.results.report import AloneReport, NodeReport, RecoveryReport, Report, removal_text
from nodes.protocol.fields import printable
from partition.plan import Plan, PlannedChannel

WIDTH = 110
"""The width in columns if the output is not a terminal."""

_SHOWN_LAYERS = 3
_SHOWN_CHANNELS = 40
_SHOWN_ROWS = 8


def print_report(report: Report, console: Console) -> None:
    """Print the table of nodes, then throughput, latency, agreement and the explanation."""
    console.print(report_text(report))


def open_console(*, stderr: bool = False) -> Console:
    """Return a console for standard output or error, wide enough for tables if it is not a
    terminal.

    Everything it prints is taken as text and not as markup, and control characters are escaped.
    """
    found = Console(highlight=False, markup=False, emoji=False, stderr=stderr)
    if not found.is_terminal:
        found = Console(highlight=False, markup=False, emoji=False, width=WIDTH, stderr=stderr)
    found.push_render_hook(_Printable())
    return found


class _Printable(RenderHook):
    """Escapes control characters in everything that is printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """See `RenderHook`."""
        return [_Shown(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Shown:
    """A renderable whose text is escaped; Rich's own control codes are kept."""

    what: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self.what, options):
            yield Segment(text if control else printable(text, lines=True), style, control)


def report_text(report: Report) -> RenderableType:
    """Return what `print_report` prints."""
    return Group(nodes_table(report.nodes), *map(_line, report_lines(report)))


def nodes_table(nodes: Sequence[NodeReport]) -> Table:
    """Return the table of a run's nodes."""
    table = _table(
        "node", "layers", "phases", "memory: Eq. 2", "predicted", "peak", "anonymous", "busy"
    )
    for node in nodes:
        table.add_row(
            node.name,
            str(node.layers),
            str(node.phases),
            megabytes(node.memory_eq2_bytes),
            megabytes(node.memory_predicted_bytes),
            *(
                (
                    megabytes(node.memory_measured_bytes),
                    megabytes(node.memory_anonymous_bytes),
                    f"{node.busy_fraction:.0%}",
                )
                if node.phases
                else ("not used", "", "")
            ),
        )
    return table


def plan_text(plan: Plan, batch: BatchChoice | None = None) -> RenderableType:
    """Return a plan as text: nodes, phases, channels, predictions and the proof; and how the number
    of frames in a batch was chosen, if it was."""
    return Group(
        _plan_nodes(plan),
        _plan_phases(plan),
        _plan_channels(plan),
        Text(
            f"predicted: {_rate(plan.frame_s)}{batches_text(plan.batch)}, "
            f"latency {seconds(plan.latency_s)}, "
            f"{megabytes(plan.bytes_per_frame)} per frame between nodes, {energy_text(plan)}"
        ),
        _line(f"proof: {plan.proof}"),
        _line(f"strategy: {plan.strategy}: {plan.explanation}"),
        *map(_line, choice_lines(batch)),
    )


def _line(text: str) -> Text:
    """Return one line with control characters escaped."""
    return Text(printable(text))


def report_lines(report: Report) -> list[str]:
    """Return the sentences of a report."""
    predicted, planned = _rate(report.period_predicted_s), _rate(report.period_planned_s)
    held = sum(node.fifo_measured_bytes for node in report.nodes)
    expected = sum(node.fifo_predicted_bytes for node in report.nodes)
    lines = [
        f"{report.frames} frames in {report.seconds:.2f} s: "
        f"{report.frames_per_second:.2f} frames/s{batches_text(report.batch)}, "
        f"{_rate(report.period_measured_s)} once full; "
        f"predicted {predicted} from the agents' warm-up timings, {planned} before the run",
        f"latency {seconds(report.latency_s)} in the median, "
        f"predicted {seconds(report.latency_predicted_s)}; "
        f"{seconds(report.latency_worst_s)} at worst{_bound(report)}; "
        f"first result {report.first_result_s:.1f} s after the start",
        f"{megabytes(report.bytes_per_frame)} per frame between nodes; at most "
        f"{megabytes(held)} in FIFOs, predicted {megabytes(expected)}",
        *alone_lines(report.alone),
        *choice_lines(report.batch_choice),
        *energy_lines(report.nodes),
        *(
            f"engine of {node.name}: {node.engine}, {node.engine_reason}"
            for node in report.nodes
            if node.engine_reason
        ),
        _agreement(report),
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


def alone_lines(alone: AloneReport | None) -> list[str]:
    """Return a line on what one node alone would do."""
    if alone is None:
        return []
    text = f"{alone.node} alone would make {_rate(alone.period_s)} and hold "
    why = f"; {alone.why_not}" if alone.why_not else ""
    return [text + megabytes(alone.memory_bytes) + why]


def choice_lines(choice: BatchChoice | None) -> list[str]:
    """Return a line that explains the number of frames in a batch, if it was chosen."""
    return [] if choice is None else [f"batches of {choice.batch}: {choice.reason}"]


def _bound(report: Report) -> str:
    """Return a clause on the bound on latency; empty without one."""
    if report.max_latency_s is None:
        return ""
    verdict = "within" if report.latency_s <= report.max_latency_s else "BEYOND"
    return f"; the median is {verdict} the {seconds(report.max_latency_s)} asked for"


def _agreement(report: Report) -> str:
    if report.agreement is None:
        return "not compared with the whole model"
    found = report.agreement
    verdict = "agrees with" if report.agrees else "DIFFERS from"
    begins = "" if found.begins is None else f"; {found.begins.sentence}"
    return (
        f"{verdict} ONNX Runtime on the whole model: largest relative difference "
        f"{_error(found.max_relative_error)}, allowed {found.allowed:.0e} ({RULES[found.rule]})"
        f"{begins}"
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
            "did not come"
            if absence.came_s is None
            else f"came {seconds(absence.came_s)} after the start"
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
        verdict = "the whole model's do so too, in the same places"
    else:
        verdict = "`check: phases` names the phase that makes them and goes on without its node"
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


def _plan_nodes(plan: Plan) -> Table:
    table = _table("node", "layers", "phases", "memory: Eq. 2", "predicted", "limit", "busy/frame")
    layers = Counter(plan.assignment.values())
    for device in plan.devices:
        mine = [phase for phase in plan.phases if phase.device == device.name]
        memory = plan.memory[device.name]
        limit = device.memory_bytes
        table.add_row(
            device.name,
            str(layers[device.name]),
            str(len(mine)),
            megabytes(memory.eq2_bytes),
            megabytes(memory.total_bytes),
            "none" if limit is None else megabytes(limit),
            seconds(sum(phase.predicted_s for phase in mine)),
        )
    return table


def _plan_phases(plan: Plan) -> Table:
    table = _table("phase", "node", "skew", "predicted", "layers", left=("node", "layers"))
    for phase in plan.phases:
        shown = ", ".join(phase.layers[:_SHOWN_LAYERS])
        if len(phase.layers) > _SHOWN_LAYERS:
            shown += f", … ({len(phase.layers)})"
        table.add_row(
            phase.name, phase.device, str(phase.skew), seconds(phase.predicted_s), Text(shown)
        )
    return table


def _plan_channels(plan: Plan) -> Table:
    table = _table(
        "channel", "from", "to", "size", "frames of room", left=("from", "to"), caption=None
    )
    remote = [channel for channel in plan.channels if not channel.is_local]
    for channel in remote[:_SHOWN_CHANNELS]:
        table.add_row(*_channel_row(channel))
    hidden = len(plan.channels) - min(len(remote), _SHOWN_CHANNELS)
    if hidden:
        table.caption = f"and {hidden} more, those within one node among them"
    return table


def _channel_row(channel: PlannedChannel) -> tuple[RenderableType, ...]:
    return (
        Text(channel.tensor.name),
        channel.source_device,
        channel.target_device,
        megabytes(channel.wire_bytes) + encoding_text(channel),
        str(channel.capacity_frames),
    )


def encoding_text(channel: PlannedChannel) -> str:
    """Return ` as fp16` for a channel of that encoding, nothing for one that is raw."""
    return "" if channel.encoding == "raw" else f" as {channel.encoding}"


def _table(*columns: str, left: tuple[str, ...] = (), caption: str | None = None) -> Table:
    table = Table(caption=caption, caption_justify="left")
    for index, column in enumerate(columns):
        justify = "left" if index == 0 or column in left else "right"
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    return table


def batches_text(batch: int) -> str:
    """Return a phrase on the number of frames that nodes compute at once; empty for one."""
    return f" in batches of {batch}" if batch > 1 else ""


def _rate(period_s: float) -> str:
    return f"{1 / period_s:.2f} frames/s" if period_s > 0 else "no time per frame"
