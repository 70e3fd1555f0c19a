"""Prints reports and plans for people, as tables and sentences, by means of Rich."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from rich.text import Text

from launcher.plan.batch_size import BatchChoice
from launcher.quantities import megabytes, seconds
from launcher.results.energy_text import energy_text
from launcher.results.report import NodeReport, Report
from launcher.results.sentences import batches_text, choice_lines, rate_text, report_lines
from launcher.results.summary import summary_lines
from launcher.results.tables import RowTable
from nodes.protocol.fields import printable
from partition.plan import Plan, PlannedChannel

WIDTH = 110
"""The width in columns if the output is not a terminal."""

_SHOWN_LAYERS = 3
_SHOWN_ROWS = 12
"""The rows of a table of phases or channels, of which a plan may have hundreds."""


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print a run's summary; with `verbose` also the table of nodes and all sentences."""
    console.print(report_text(report, verbose=verbose))


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


def print_table(table: RowTable | None, lines: Iterable[str]) -> None:
    """Print a table, if there is one, and lines below it on standard output."""
    tables = [] if table is None else [table.on_console()]
    open_console().print(Group(*tables, *map(Text, lines)))


def report_text(report: Report, *, verbose: bool = False) -> RenderableType:
    """Return what `print_report` prints."""
    summary = map(_line, summary_lines(report))
    if not verbose:
        return Group(*summary)
    tables = [nodes_table(report.nodes).on_console()] if report.nodes else []
    return Group(*summary, *tables, *map(_line, report_lines(report)))


def nodes_table(nodes: Sequence[NodeReport]) -> RowTable:
    """Return the table of a run's nodes."""
    heads = ("node", "layers", "phases", "memory: Eq. 2", "predicted", "peak", "anonymous", "busy")
    rows = [
        (
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
                else ("not used",)
            ),
        )
        for node in nodes
    ]
    return RowTable(heads, rows)


def plan_text(
    plan: Plan, batch: BatchChoice | None = None, *, verbose: bool = False
) -> RenderableType:
    """Return a plan as text: nodes, phases, channels, predictions and the proof; and how the number
    of frames in a batch was chosen, if it was.

    Without `verbose`, phases and channels beyond the first are counted.
    """
    shown = None if verbose else _SHOWN_ROWS
    return Group(
        _plan_nodes(plan).on_console(),
        _plan_phases(plan, shown).on_console(),
        _plan_channels(plan, shown).on_console(),
        Text(
            f"predicted: {rate_text(plan.frame_s)}{batches_text(plan.batch)}, "
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


def _plan_nodes(plan: Plan) -> RowTable:
    heads = ("node", "layers", "phases", "memory: Eq. 2", "predicted", "limit", "busy/frame")
    layers = Counter(plan.assignment.values())
    rows = []
    for device in plan.devices:
        mine = [phase for phase in plan.phases if phase.device == device.name]
        memory = plan.memory[device.name]
        limit = device.memory_bytes
        rows.append(
            (
                device.name,
                str(layers[device.name]),
                str(len(mine)),
                megabytes(memory.eq2_bytes),
                megabytes(memory.total_bytes),
                "none" if limit is None else megabytes(limit),
                seconds(sum(phase.predicted_s for phase in mine)),
            )
        )
    return RowTable(heads, rows)


def _plan_phases(plan: Plan, most: int | None) -> RowTable:
    rows = []
    for phase in plan.phases[:most]:
        shown = ", ".join(phase.layers[:_SHOWN_LAYERS])
        if len(phase.layers) > _SHOWN_LAYERS:
            shown += f", … ({len(phase.layers)})"
        rows.append((phase.name, phase.device, str(phase.skew), seconds(phase.predicted_s), shown))
    heads = ("phase", "node", "skew", "predicted", "layers")
    hidden = len(plan.phases) - len(rows)
    more = f"and {hidden} more, with --verbose" if hidden else None
    return RowTable(heads, rows, ("node", "layers"), caption=more)


def _plan_channels(plan: Plan, most: int | None) -> RowTable:
    remote = [channel for channel in plan.channels if not channel.is_local]
    rows = [
        (
            channel.tensor.name,
            channel.source_device,
            channel.target_device,
            megabytes(channel.wire_bytes) + encoding_text(channel),
            str(channel.capacity_frames),
        )
        for channel in remote[:most]
    ]
    more = []
    if hidden := len(remote) - len(rows):
        more.append(f"and {hidden} more, with --verbose")
    if local := len(plan.channels) - len(remote):
        more.append(f"{local} within nodes")
    heads = ("channel", "from", "to", "size", "frames of room")
    return RowTable(heads, rows, ("from", "to"), caption="; ".join(more) or None)


def encoding_text(channel: PlannedChannel) -> str:
    """Return ` as fp16` for a channel of that encoding, nothing for one that is raw."""
    return "" if channel.encoding == "raw" else f" as {channel.encoding}"
