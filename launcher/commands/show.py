"""Shows a saved plan as text, as an SVG, or on a page with its figures (`partition show`).

In the SVG every device has a lane, and time runs downwards: a phase is a box below all phases that
feed it and below those that its device fires before it. Each layer is a line of its phase's box.
Grey arcs at its left are tensors inside the phase; coloured curves are channels, in the colour of
the sending device. Tooltips have the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from cnn.network import Network
from csdf.conversion.from_network import HOST
from launcher.commands.options import ShowOptions
from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.files import write_text
from launcher.plan.files import CLUSTER, is_plan, read_plan
from launcher.plan.planner import read_planner
from launcher.progress import open_progress
from launcher.quantities import megabytes
from launcher.results.report import plan_as_json
from launcher.results.report_text import encoding_text, open_console, plan_text
from launcher.results.tables import RowTable, picture_page
from partition.plan import Plan, PlannedChannel, PlannedPhase

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5500", "#777777")
"""The colours of devices, in turn: Paul Tol's bright scheme, which suits most colour-blind people.
"""

_LANE, _BOX, _LINE, _GAP, _HEAD, _MARGIN = 320, 230, 15, 26, 22, 50
_MOST_LETTERS = 26


@dataclass(frozen=True)
class _Box:
    """The box of a phase: its left, top and height in pixels."""

    x: int
    y: int
    height: int


def plan_svg(plan: Plan, network: Network) -> str:
    """Draw a plan; `network` is the one whose layers are assigned."""
    lanes = {device.name: number for number, device in enumerate(plan.devices)}
    boxes = _places(plan, lanes)
    bottom = max((box.y + box.height for box in boxes.values()), default=_MARGIN) + 2 * _GAP
    width = _MARGIN + _LANE * len(lanes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + _MARGIN}" '
        f'viewBox="0 0 {width} {bottom + _MARGIN}" font-family="sans-serif" font-size="11">',
        f"<title>{escape(plan.network)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        *_headings(plan, lanes, bottom),
    ]
    for channel in plan.channels:
        parts += _channel(channel, boxes, lanes, bottom)
    for phase in plan.phases:
        parts += _phase(phase, boxes[phase.name], network, _colour(lanes[phase.device]))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _colour(lane: int) -> str:
    return COLOURS[lane % len(COLOURS)]


def _places(plan: Plan, lanes: Mapping[str, int]) -> dict[str, _Box]:
    sources: dict[str, list[str]] = {}
    for channel in plan.channels:
        for target in channel.targets:
            sources.setdefault(target, []).append(channel.source)
    free = dict.fromkeys(lanes, _MARGIN + 2 * _GAP)
    boxes: dict[str, _Box] = {}
    for phase in plan.phases:  # in a topological order
        above = [boxes[name] for name in sources.get(phase.name, ()) if name in boxes]
        top = max([free[phase.device], *(box.y + box.height + _GAP for box in above)])
        height = _HEAD + _LINE * len(phase.layers) + 6
        boxes[phase.name] = _Box(_MARGIN + _LANE * lanes[phase.device], top, height)
        free[phase.device] = top + height + _GAP
    return boxes


def _headings(plan: Plan, lanes: Mapping[str, int], bottom: int) -> Iterator[str]:
    share = {copy: plan.dealing.count(copy) / len(plan.dealing) for copy in plan.dealing}
    for device in plan.devices:
        x = _MARGIN + _LANE * lanes[device.name]
        memory = megabytes(plan.memory[device.name].total_bytes)
        busy = sum(
            share[phase.copy] * phase.predicted_s
            for phase in plan.phases
            if phase.device == device.name
        )
        colour = _colour(lanes[device.name])
        yield (
            f'<text x="{x}" y="{_MARGIN - 14}" font-size="15" font-weight="bold" '
            f'fill="{colour}">{escape(device.name)}</text>'
            f'<text x="{x}" y="{_MARGIN + 2}">{memory}, {busy * 1e3:.2f} ms per frame</text>'
        )
    for y, what in ((_MARGIN + _GAP - 8, "frames in"), (bottom, "results out")):
        yield (
            f'<line x1="{_MARGIN - 30}" y1="{y}" x2="{_MARGIN + _LANE * len(lanes) - 60}" '
            f'y2="{y}" stroke="#bbb" stroke-dasharray="4 4"/>'
            f'<text x="{_MARGIN - 46}" y="{y - 4}" fill="#777">{what}</text>'
        )


def _phase(phase: PlannedPhase, box: _Box, network: Network, colour: str) -> Iterator[str]:
    about = (
        f"{phase.name}: {len(phase.layers)} layers, {phase.predicted_s * 1e3:.3f} ms predicted, "
        f"skew {phase.skew}"
    )
    yield (
        f'<g><title>{escape(about)}</title><rect x="{box.x}" y="{box.y}" width="{_BOX}" '
        f'height="{box.height}" rx="5" fill="white" stroke="{colour}" stroke-width="1.5"/>'
        f'<rect x="{box.x}" y="{box.y}" width="{_BOX}" height="{_HEAD - 4}" rx="5" '
        f'fill="{colour}"/><text x="{box.x + 8}" y="{box.y + 13}" fill="white" '
        f'font-weight="bold">{escape(phase.name)}  σ = {phase.skew}</text></g>'
    )
    row = {layer: number for number, layer in enumerate(phase.layers)}
    for layer, number in row.items():
        y = box.y + _HEAD + _LINE * number + 11
        described = network.layer[layer]
        details = (
            f"{layer}: {described.operator}, {described.macs / 1e6:.2f} M multiply-accumulates, "
        )
        details += f"{megabytes(network.weight_bytes((layer,)))} of weights"
        shown = layer if len(layer) <= _MOST_LETTERS else f"…{layer[1 - _MOST_LETTERS :]}"
        yield (
            f'<text x="{box.x + 12}" y="{y}"><title>{escape(details)}</title>{escape(shown)} '
            f'<tspan fill="#888">{escape(described.operator)}</tspan></text>'
        )
    made_by = {tensor: layer for layer in row for tensor in network.layer[layer].outputs}
    for layer, number in row.items():
        for tensor in network.layer[layer].inputs:
            first = row.get(made_by.get(tensor, ""), number)
            if number - first > 1:
                top = box.y + _HEAD + _LINE * first + 8
                end = box.y + _HEAD + _LINE * number + 6
                yield (
                    f'<path d="M{box.x + 10},{top} C{box.x - 8},{top} {box.x - 8},{end} '
                    f'{box.x + 10},{end}" fill="none" stroke="#999"><title>{escape(tensor)}'
                    "</title></path>"
                )


def _channel(
    channel: PlannedChannel,
    boxes: Mapping[str, _Box],
    lanes: Mapping[str, int],
    bottom: int,
) -> Iterator[str]:
    about = (
        f"{channel.tensor.name}: {megabytes(channel.wire_bytes)}{encoding_text(channel)} per "
        f"frame, {channel.source_device} → {channel.target_device}, room for "
        f"{channel.capacity_frames} frames"
    )
    colour = _colour(lanes[channel.source_device]) if channel.source_device in lanes else "#777"
    for target in channel.targets:
        start, end = boxes.get(channel.source), boxes.get(target)
        if start is None and end is None:
            continue
        x1, y1 = (start.x + _BOX // 2, start.y + start.height) if start else _above(end)
        x2, y2 = (end.x + _BOX // 2, end.y) if end else (x1, bottom)
        bend = max(20, (y2 - y1) // 3)
        width = 1.0 if channel.is_local else 1.0 + min(4.0, channel.wire_bytes / 1e6)
        dashes = (
            ' stroke-dasharray="3 3"'
            if HOST in (channel.source_device, channel.target_device)
            else ""
        )
        yield (
            f'<path d="M{x1},{y1} C{x1},{y1 + bend} {x2},{y2 - bend} {x2},{y2}" fill="none" '
            f'stroke="{colour}" stroke-width="{width:.1f}" opacity="0.7"{dashes}>'
            f"<title>{escape(about)}</title></path>"
        )


def _above(box: _Box | None) -> tuple[int, int]:
    return (box.x + _BOX // 2 if box else _MARGIN), _MARGIN + _GAP - 8


@dataclass(frozen=True)
class Shown:
    """A plan, and the file with its drawing, if one was made."""

    plan: Plan
    output: Path | None
    verbose: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the plan as `launch --plan-only --json` prints it, and the drawing's path."""
        picture = None if self.output is None else str(self.output)
        return {**plan_as_json(self.plan), "picture": picture}

    def print(self) -> None:
        """Print the plan as text, or the path of its drawing."""
        console = open_console()
        text = plan_text(self.plan, verbose=self.verbose)
        console.print(text if self.output is None else f"drawn: {self.output}")


def perform(options: ShowOptions) -> Shown:
    """Read the plan and draw it, if asked to; raises `BadInputError`."""
    folder = options.plan if options.plan.is_dir() else options.plan.parent
    if not is_plan(options.plan):
        raise BadInputError(
            f"{options.plan}: is not a saved plan; make one with launch --plan-only --save or "
            "csdf-edge partition solve --save"
        )
    if options.output is not None and options.output.suffix not in (".svg", ".html"):
        raise BadInputError(f"--output {str(options.output)!r}: its name must end in .svg or .html")
    with open_progress() as progress:
        saved, cluster = read_plan(folder), load_cluster(folder / CLUSTER)
        planner = read_planner(cluster, progress)
        plan = planner.saved(saved)
    if options.output is not None:
        picture = plan_svg(plan, planner.planned.rewritten(plan.rewrites).network)
        text = picture if options.output.suffix == ".svg" else _page(plan, picture)
        write_text(options.output, text, f"--output {str(options.output)!r}")
    return Shown(plan, options.output, options.verbose)


def _page(plan: Plan, picture: str) -> str:
    heads = ("device", "layers", "weights", "memory")
    layers = Counter(plan.assignment.values())
    rows = [
        (
            device.name,
            str(layers[device.name]),
            megabytes(plan.memory[device.name].weights_bytes),
            megabytes(plan.memory[device.name].total_bytes),
        )
        for device in plan.devices
    ]
    figures = (
        f"{plan.frame_s * 1e3:.2f} ms per frame, {megabytes(plan.bytes_per_frame)} per frame "
        f"between devices; times are {plan.times}. {plan.strategy}: {plan.explanation}"
    )
    title = f"{plan.network} on {len(plan.devices)} devices"
    return picture_page(title, [figures, plan.proof], [picture], RowTable(heads, rows))
