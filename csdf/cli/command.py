"""The console command `csdf`.

Exit codes: 0 fine, 1 inconsistent or not live, 2 cannot be read (or wrong usage), 3 readable, but
an exact answer would take too long, or does not exist because firings may overtake each other.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from csdf.buffers.capacities import Search, Unit
from csdf.buffers.storage import unbounded
from csdf.cli import front_report, schedule_report
from csdf.cli.analysis import analyze, stuck
from csdf.cli.arguments import parser
from csdf.cli.output import printable, write_whole
from csdf.cli.progress_line import ProgressLine
from csdf.cli.report import as_text
from csdf.errors import (
    CsdfError,
    DeadlockError,
    InconsistentGraphError,
    OvertakingError,
    TooLargeError,
)
from csdf.execution.simulation import simulate
from csdf.formats import drawing, files, gantt
from csdf.model.graph import Graph
from csdf.model.reverse_channels import folded
from csdf.model.static_orders import Ordered, ordered
from csdf.timing.latency import latency
from csdf.timing.schedule import periodic_schedule
from csdf.timing.slack import slack
from csdf.timing.throughput import throughput

EXIT_FINE, EXIT_NOT_LIVE, EXIT_UNREADABLE, EXIT_TOO_LARGE = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code, those of the shell after Ctrl-C or a closed pipe."""
    options = parser(COMMANDS).parse_args(arguments)
    try:
        code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:  # whoever read our output has gone; nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:  # a full disk
        return _fail(f"the output cannot be written: {error.strerror or error}", EXIT_UNREADABLE)
    return code


def _run(options: argparse.Namespace) -> int:
    try:
        if options.command is _analyze:
            graph, options.untimed = files.read_for_analysis(options.file, options.processor)
        else:
            graph = files.read(options.file, options.processor)
    except CsdfError as error:
        return _fail(error, EXIT_UNREADABLE)
    try:
        return int(options.command(options, graph))
    except (TooLargeError, OvertakingError) as error:
        return _fail(f"{options.file}: {error}", EXIT_TOO_LARGE)
    except (InconsistentGraphError, DeadlockError) as error:
        return _fail(f"{options.file}: {error}", EXIT_NOT_LIVE)
    except CsdfError as error:
        return _fail(f"{options.file}: {error}", EXIT_UNREADABLE)


def _analyze(options: argparse.Namespace, graph: Graph) -> int:
    _check_analyze(options)
    placed: Graph | Ordered = graph
    try:
        if options.order:
            placed = ordered(graph, _orders(options.order))
    except InconsistentGraphError:  # reported below
        result = analyze(graph)
    except DeadlockError as error:  # the orders never get under way
        result = stuck(graph, str(error))
    else:
        graph = placed.graph if isinstance(placed, Ordered) else placed
        result = analyze(graph, effort=options.effort, untimed=options.untimed)
    if options.slack and result.period is not None:
        result = replace(result, slack=slack(graph, period=result.period))
    if options.source is not None and result.period is not None:
        found = latency(placed, options.source, options.sink)
        result = replace(result, latency=found)
    _print(_json(result.as_json()) if options.json else as_text(graph, result))
    if result.unknown is not None:
        return _fail(f"{options.file}: {result.unknown}", EXIT_TOO_LARGE)
    return EXIT_FINE if result.live else EXIT_NOT_LIVE


def _check_analyze(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other or the graph; raises `CsdfError`."""
    if (options.source is None) != (options.sink is None):
        raise CsdfError("--source and --sink are given together, or neither")
    if options.untimed and (options.slack or options.source is not None):
        raise CsdfError(
            f"actor {options.untimed[0]!r} has no execution time, which --slack and --source need"
        )


def _capacities(options: argparse.Namespace, graph: Graph) -> int:
    channels: list[str] | None = None
    if options.channels is not None:
        channels = options.channels.split(",")
    if options.resize:
        graph = folded(graph)
        inner = [channel for channel in graph.channels if channel.source != channel.target]
        channels = channels or [channel.name for channel in inner]
    elif channels is None and not unbounded(graph):
        raise CsdfError("no channel lacks a bound; --resize looks for smaller ones")
    unit: Unit = "bytes" if options.bytes else "tokens"
    line = ProgressLine(sys.stderr)
    search = Search(
        graph,
        channels,
        unit,
        options.effort,
        lambda progress: line.update(lambda: front_report.progress_text(progress, unit)),
    )
    try:
        front = search.front(options.period)
        live = search.smallest_live()
    finally:
        line.clear()
    _print(
        _json(front_report.as_json(front, live, unit))
        if options.json
        else front_report.as_text(front, live, unit)
    )
    return EXIT_FINE


def _schedule(options: argparse.Namespace, graph: Graph) -> int:
    orders = _orders(options.order)
    schedule = periodic_schedule(ordered(graph, orders), options.period)
    if options.json:
        _print(_json(schedule_report.as_json(schedule, orders)))
    else:
        _print(schedule_report.as_text(schedule, orders))
    return EXIT_FINE


def _simulate(options: argparse.Namespace, graph: Graph) -> int:
    processors = {name: processor for processor, names in options.on for name in names}
    found = simulate(graph, options.iterations, processors, dict(options.order))
    if options.gantt is not None:
        _write(options.gantt, gantt.as_svg(found))
    if options.trace is not None:
        _write(options.trace, _json(gantt.as_trace(found, options.microseconds)))
    if options.json:
        busy = {row: str(time) for row, time in found.busy().items()}
        completed = [str(time) for time in found.completed]
        _print(_json({"firings": len(found.firings), "completed": completed, "busy": busy}))
        return EXIT_FINE
    _print(f"{options.iterations} iterations, {len(found.firings)} firings, end at {found.end}")
    _print(f"complete at {' '.join(map(str, found.completed))}")
    for row, time in found.busy().items():
        share = f", {100 * float(time / found.end):.1f} %" if found.end else ""
        _print(f"{row}: busy for {time}{share}")
    return EXIT_FINE


def _draw(options: argparse.Namespace, graph: Graph) -> int:
    try:
        critical = throughput(graph).critical
    except (InconsistentGraphError, DeadlockError, TooLargeError):  # a picture helps there too
        critical = ()
    picture = drawing.marked(graph, critical)
    if options.output is None:
        _print(drawing.as_svg(picture).rstrip())
    else:
        _write(options.output, drawing.as_svg(picture))
    return EXIT_FINE


def _convert(options: argparse.Namespace, graph: Graph) -> int:
    _write(options.output, files.as_text(graph, options.output))
    return EXIT_FINE


COMMANDS = {
    "analyze": _analyze,
    "capacities": _capacities,
    "schedule": _schedule,
    "simulate": _simulate,
    "draw": _draw,
    "convert": _convert,
}


def _orders(given: Sequence[tuple[str, list[str]]]) -> dict[str, list[str]]:
    orders: dict[str, list[str]] = {}
    for processor, order in given:
        if processor in orders:
            raise CsdfError(f"processor {processor!r} has two orders; give one for all its firings")
        orders[processor] = order
    return orders


def _write(path: str, text: str) -> None:
    try:
        write_whole(Path(path), text)
    except OSError as error:
        raise CsdfError(f"{path} cannot be written: {error.strerror or error}") from error


def _json(found: object) -> str:
    return json.dumps(found)


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "ascii"  # a terminal may not know × and →
    sys.stdout.write(printable(text).encode(encoding, "replace").decode(encoding) + "\n")


def _fail(error: object, code: int) -> int:
    sys.stderr.write(f"csdf: {printable(str(error))}".replace("\n", "\n  ") + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
