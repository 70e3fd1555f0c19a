"""Run the command `csdf`: parse its arguments, read the graph, and do what the subcommand says.

Exit codes: 0 fine, 1 inconsistent or not live, 2 cannot be read (or wrong usage), 3 readable, but
an exact answer would take too long, or does not exist because firings may overtake each other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

from csdf.analysis import analyze, stuck
from csdf.buffers.capacities import EFFORT, CapacityProgress, CapacitySearch, Unit
from csdf.buffers.storage import unbounded
from csdf.cli import report
from csdf.cli.output import ProgressLine, printable
from csdf.cli.report import analysis_text
from csdf.errors import (
    CsdfError,
    DeadlockError,
    InconsistentGraphError,
    OvertakingError,
    TooLargeError,
)
from csdf.execution.simulation import simulate
from csdf.execution.static_orders import Ordered, Orders, ordered
from csdf.formats import drawing, files, gantt
from csdf.model.channels import fold_reverse_channels
from csdf.model.generation import generate
from csdf.model.graph import Graph
from csdf.timing.cycle_ratio import EFFORT as THROUGHPUT_EFFORT
from csdf.timing.expansion import homogeneous
from csdf.timing.latency import latency
from csdf.timing.schedule import periodic_schedule
from csdf.timing.slack import slack
from csdf.timing.throughput import throughput

Command = Callable[[argparse.Namespace, Graph], int]
"""A subcommand; it gets the parsed options and the graph, and returns the exit code."""

GRAPH_FILE = "SDF3 XML of type sdf or csdf, or JSON (.json)"
GRAPH_OR_PLAN = f"{GRAPH_FILE}, or the folder of a saved plan"

EXIT_FINE, EXIT_NOT_LIVE, EXIT_UNREADABLE, EXIT_TOO_LARGE = 0, 1, 2, 3


def parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """Return the parser of all subcommands; parsed options have the one to run as `command`."""
    found = argparse.ArgumentParser(
        prog="csdf",
        description="Analyse synchronous and cyclo-static dataflow graphs exactly.",
        epilog="Exit codes: 0 success; 1 the graph is inconsistent or not live; 2 an argument or "
        "file cannot be used; 3 the analysis is too large.",
    )
    found.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = found.add_subparsers(required=True, metavar="COMMAND")
    command = subparsers.add_parser(
        "analyze",
        help="check consistency and liveness, and compute the throughput",
        description="Print whether a graph is consistent and live, its exact period, and the "
        "critical cycle. A graph without execution times has no period.",
    )
    _add_common(command, commands["analyze"])
    command.add_argument("--source", metavar="ACTOR", help="report the latency from this actor")
    command.add_argument(
        "--sink", metavar="ACTOR", help="report the latency from --source to this actor"
    )
    command.add_argument(
        "--slack", action="store_true", help="report the slack of all actors, even if that is slow"
    )
    command.add_argument(
        "--throughput",
        action="store_true",
        help="report the firings per unit of time of each actor, which may exceed those that the "
        "period allows where channels are unbounded",
    )
    command.add_argument(
        "--slice",
        type=_slice,
        action="append",
        default=[],
        metavar="A=S/W",
        help="actor A executes only for S of every W units of time, one firing at a time (TDMA); "
        "times are then the worst for any position of the slice",
    )
    _add_order(command)
    _add_effort(command)
    command = subparsers.add_parser(
        "capacities",
        help="find the smallest channel capacities for each period",
        description="Print the smallest capacities that are live, those that reach the shortest "
        "period, and the Pareto front between size and period, all proved optimal; or bounds where "
        "the search would take too long.",
    )
    _add_common(command, commands["capacities"])
    command.add_argument(
        "--period",
        type=_period,
        metavar="P",
        help="find the smallest capacities for this period (default: the shortest)",
    )
    command.add_argument(
        "--bytes", action="store_true", help="minimise bytes, by the size of tokens, not tokens"
    )
    command.add_argument(
        "--channels",
        metavar="A,B,…",
        help="find capacities of these channels (default: all that are unbounded)",
    )
    command.add_argument(
        "--resize",
        action="store_true",
        help="find new capacities for bounded channels too, also for those bounded by a reverse "
        "channel, which has the channel's name with _space or _bp behind it",
    )
    command.add_argument(
        "--source",
        metavar="ACTOR",
        help="find the smallest capacities for each latency from this actor too, which starts an "
        "iteration every --period (default: every period of the table)",
    )
    command.add_argument("--sink", metavar="ACTOR", help="the latency is that to this actor")
    command.add_argument(
        "--effort",
        type=int,
        default=EFFORT,
        metavar="N",
        help="bound of the search, about in milliseconds, but counted in steps so that results do "
        "not depend on the machine (default: %(default)s)",
    )
    command = subparsers.add_parser(
        "schedule",
        help="compute a start time for every firing of an iteration",
        description="Print the earliest periodic schedule of the shortest period, with --order on "
        "processors that fire in given orders.",
    )
    _add_common(command, commands["schedule"])
    command.add_argument(
        "--period", type=_period, metavar="P", help="period (default: the shortest)"
    )
    command.add_argument(
        "--cycles",
        type=_cycles,
        metavar="K",
        help="compute the fastest K-periodic schedule instead, in which each actor repeats the "
        "start times of K cycles of its phases: 1, or A=2,B=3 (others: 1)",
    )
    command.add_argument(
        "--on",
        type=_list,
        action="append",
        default=[],
        metavar="P=A,B",
        help="run actors A and B on processor P, in the static order of the shortest period, which "
        "is searched for",
    )
    command.add_argument(
        "--memory",
        action="store_true",
        help="print addresses for the buffers of channels too, which share memory where their "
        "lifetimes in the schedule do not overlap",
    )
    command.add_argument(
        "--effort",
        type=_natural,
        metavar="N",
        help="most beginnings of orders to examine with --on (default: 3000)",
    )
    _add_order(command)
    command = subparsers.add_parser(
        "simulate",
        help="execute iterations self-timed, with --on on processors",
        description="Execute iterations, each firing as soon as possible, and print when each "
        "iteration is complete and how busy actors and processors are. A processor runs one firing "
        "at a time: of the oldest iteration, or in a static order.",
    )
    _add_common(command, commands["simulate"])
    command.add_argument(
        "--iterations",
        type=_positive,
        default=10,
        metavar="N",
        help="number of iterations (default: %(default)s)",
    )
    command.add_argument(
        "--on",
        type=_list,
        action="append",
        default=[],
        metavar="P=A,B",
        help="run actors A and B on processor P",
    )
    command.add_argument(
        "--order",
        type=_list,
        action="append",
        default=[],
        metavar="P=A,B,A",
        help="run actors A and B on processor P, in this static order",
    )
    command.add_argument("--gantt", metavar="FILE.svg", help="write a chart of all firings")
    command.add_argument("--trace", metavar="FILE.json", help="write a trace for ui.perfetto.dev")
    command.add_argument(
        "--microseconds",
        type=_period,
        default=Fraction(1),
        metavar="N",
        help="microseconds of a time unit in the trace (default: %(default)s)",
    )
    command = subparsers.add_parser(
        "draw",
        help="draw the graph with its critical cycle",
        description="Draw the graph as an SVG, with its critical cycle in red.",
    )
    _add_common(command, commands["draw"], speaks_json=False)
    command.add_argument(
        "--output", type=_svg, metavar="FILE.svg", help="file to write (default: standard output)"
    )
    _add_files(subparsers, commands)
    return found


def _add_files(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], commands: Mapping[str, Command]
) -> None:
    """Add the subcommands that write graphs and certificates, or check them."""
    command = subparsers.add_parser(
        "convert",
        help="write the graph in another format",
        description="Write the graph as JSON if OUTPUT ends in .json, otherwise as SDF3 XML.",
    )
    _add_common(command, commands["convert"], speaks_json=False)
    command.add_argument("output", metavar="OUTPUT", help="file to write")
    command.add_argument(
        "--hsdf",
        action="store_true",
        help="write the homogeneous graph, with one actor per firing of an iteration",
    )
    command.add_argument(
        "--max-plus",
        action="store_true",
        help="write the max-plus matrix of an iteration, as JSON: the longest time from each "
        "initial token to each token after the iteration",
    )
    command = subparsers.add_parser(
        "scenarios",
        help="find the worst period of a graph with scenarios (FSM-SADF)",
        description="Print the period of each scenario, and the longest time per iteration of any "
        "run of the state machine.",
    )
    _add_common(
        command, commands["scenarios"], "SDF3 XML of type fsmsadf: scenarios and a state machine"
    )
    _add_effort(command)
    command = subparsers.add_parser(
        "generate",
        help="generate a random graph that is consistent, live and connected",
        description="Write a random graph of a given size. The same options give the same graph.",
    )
    command.set_defaults(command=commands["generate"], file=None)
    command.add_argument("output", metavar="OUTPUT", help="file to write, as JSON or SDF3 XML")
    for option, size, what in (
        ("--actors", 10, "number of actors"),
        ("--channels", 15, "number of channels to later actors"),
        ("--firings", 100, "number of firings in an iteration, about"),
    ):
        text = f"{what} (default: %(default)s)"
        command.add_argument(option, type=_positive, default=size, metavar="N", help=text)
    command.add_argument(
        "--feedback",
        type=_natural,
        default=0,
        metavar="N",
        help="number of channels to earlier actors (default: %(default)s)",
    )
    command.add_argument(
        "--capacities",
        choices=("none", "roomy", "tight"),
        default="none",
        help="capacities of channels (default: %(default)s)",
    )
    command.add_argument(
        "--seed", type=_natural, default=0, metavar="N", help="another graph (default: %(default)s)"
    )
    command = subparsers.add_parser(
        "certify",
        help="write a certificate of the analysis, which other programs can check",
        description="Write a certificate: JSON with all that is needed to check that the graph is "
        "consistent, live, of this period, and of capacities none of which could be less; or that "
        "it is not. Of a plan that launch saved, it proves the graph live in every order, the "
        "skews the smallest, and how good the best plan could be.",
    )
    _add_common(command, commands["certify"], GRAPH_OR_PLAN, speaks_json=False)
    command.add_argument(
        "--output", metavar="FILE", help="file to write (default: standard output)"
    )
    _add_effort(command)
    command = subparsers.add_parser(
        "check",
        help="check a certificate, from the definitions alone",
        description="Check that a certificate proves what it claims about a graph or a plan. The "
        "checker is one file that shares no code with the analyser. Exit code 1 means that it does "
        "not.",
    )
    command.add_argument("certificate", metavar="CERTIFICATE", help="file that certify wrote")
    _add_common(command, commands["check"], GRAPH_OR_PLAN)


def _svg(text: str) -> str:
    """Check the name of an SVG file."""
    if not text.lower().endswith(".svg"):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .svg")
    return text


class _Version(argparse.Action):
    """Print the installed version, which is looked up only for this option."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        """See `argparse.Action`."""
        sys.stdout.write(f"csdf {version('csdf-edge')}\n")
        parser.exit()


def _add_common(
    command: argparse.ArgumentParser,
    run: Command,
    what: str = GRAPH_FILE,
    *,
    speaks_json: bool = True,
) -> None:
    command.set_defaults(command=run)
    command.add_argument("file", metavar="FILE", help=what)
    if speaks_json:
        command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--processor", metavar="TYPE", help="processor type whose execution times to use, if given"
    )


def _add_effort(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--effort",
        type=_positive,
        default=THROUGHPUT_EFFORT,
        metavar="N",
        help="most constraints between firings to examine (default: %(default)s)",
    )


def _add_order(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--order",
        type=_list,
        action="append",
        default=[],
        metavar="P=A,B@1,A",
        help="A and B share processor P, one firing at a time, in this static order; @1 marks a "
        "firing of the previous iteration, and A[0] is only this phase of A",
    )


def _period(text: str) -> Fraction:
    if not re.fullmatch(r"\d{1,30}(\.\d{1,30}|/0*[1-9]\d{0,29})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no period; give a number like 23, 6.5, 13/2")
    return Fraction(text)


def _list(text: str) -> tuple[str, list[str]]:
    processor, equals, names = text.partition("=")
    if not (processor and equals and names):
        raise argparse.ArgumentTypeError(f"{text!r} should be like P=A,B")
    return processor, names.split(",")


def _slice(text: str) -> tuple[str, Fraction, Fraction]:
    name, _, times = text.rpartition("=")
    own, _, wheel = times.partition("/")
    number = r"\d{1,30}(\.\d{1,30})?"
    if not (name and all(re.fullmatch(number, one, re.ASCII) for one in (own, wheel))):
        raise argparse.ArgumentTypeError(f"{text!r} should be like A=2/10")
    if not Fraction(wheel):
        raise argparse.ArgumentTypeError(f"{text!r} has a wheel of 0")
    return name, Fraction(own), Fraction(wheel)


def _cycles(text: str) -> int | dict[str, int]:
    if "=" not in text:
        return _positive(text)
    pairs = [one.rpartition("=") for one in text.split(",")]
    return {name: _positive(count) for name, _, count in pairs}


def _positive(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _natural(text: str) -> int:
    return 0 if re.fullmatch("0+", text, re.ASCII) else _positive(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, as in a shell after Ctrl-C or a closed pipe."""
    options = parser(COMMANDS).parse_args(arguments)
    try:
        code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:  # a full disk
        return _fail(f"the output cannot be written: {error.strerror or error}", EXIT_UNREADABLE)
    return code


def _run(options: argparse.Namespace) -> int:
    place = options.output if options.file is None else options.file
    try:
        if options.file is None or _plan_path(options) is not None:
            graph = Graph("", (), ())
        elif options.command is _scenarios:
            from csdf.cli import on_demand  # noqa: PLC0415 (few need it)

            graph = Graph("", (), ())
            options.scenarios = on_demand.read_scenarios(options.file, options.processor)
        elif options.command is _analyze:
            graph, options.untimed = files.read_for_analysis(options.file, options.processor)
        else:
            graph = files.read(options.file, options.processor)
    except CsdfError as error:
        return _fail(error, EXIT_UNREADABLE)
    try:
        return int(options.command(options, graph))
    except (TooLargeError, OvertakingError) as error:
        return _fail(f"{place}: {error}", EXIT_TOO_LARGE)
    except (InconsistentGraphError, DeadlockError) as error:
        return _fail(f"{place}: {error}", EXIT_NOT_LIVE)
    except CsdfError as error:
        return _fail(f"{place}: {error}", EXIT_UNREADABLE)


def _analyze(options: argparse.Namespace, graph: Graph) -> int:
    _check_analyze(options)
    if options.slice:
        from csdf.cli import on_demand  # noqa: PLC0415 (few need it)

        graph = on_demand.with_worst_times(graph, options.slice)
    placed: Graph | Ordered = graph
    try:
        if options.order:
            placed = ordered(graph, _orders(options.order))
    except InconsistentGraphError:  # reported below
        result = analyze(graph)
    except DeadlockError as error:  # within the prologue of the orders
        result = stuck(graph, str(error))
    else:
        graph = placed.graph if isinstance(placed, Ordered) else placed
        result = analyze(
            graph,
            effort=options.effort,
            untimed=options.untimed,
            each_actor=options.throughput,
        )
    if options.slack and result.period is not None:
        result = replace(result, slack=slack(graph, period=result.period))
    if options.source is not None and result.period is not None:
        found = latency(placed, options.source, options.sink)
        result = replace(result, latency=found)
    _print(_json(result.as_json()) if options.json else analysis_text(graph, result))
    if result.unknown is not None:
        return _fail(f"{options.file}: {result.unknown}", EXIT_TOO_LARGE)
    return EXIT_FINE if result.live else EXIT_NOT_LIVE


def _check_analyze(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other or the graph; raises `CsdfError`."""
    _check_ends(options)
    if options.untimed and (options.slack or options.source is not None):
        raise CsdfError(
            f"actor {options.untimed[0]!r} has no execution time, which --slack and --source need"
        )


def _check_ends(options: argparse.Namespace) -> None:
    if (options.source is None) != (options.sink is None):
        raise CsdfError("--source and --sink are given together, or neither")


def _capacities(options: argparse.Namespace, graph: Graph) -> int:
    _check_ends(options)
    channels: list[str] | None = None
    if options.channels is not None:
        channels = options.channels.split(",")
    if options.resize:
        graph = fold_reverse_channels(graph)
        inner = [channel for channel in graph.channels if channel.source != channel.target]
        channels = channels or [channel.name for channel in inner]
    elif channels is None and not unbounded(graph):
        raise CsdfError("no channel lacks a bound; --resize looks for smaller ones")
    unit: Unit = "bytes" if options.bytes else "tokens"
    line = ProgressLine(sys.stderr)

    def progress(so_far: CapacityProgress) -> None:
        line.update(lambda: report.progress_text(so_far, unit))

    if options.source is not None:
        from csdf.cli import on_demand  # noqa: PLC0415 (few need it)

        ends = options.source, options.sink
        bounds = options.period, channels, unit, options.effort
        try:
            found, text = on_demand.capacities_for_latencies(graph, ends, *bounds, progress)
        finally:
            line.clear()
        _print(_json(found) if options.json else text)
        return EXIT_FINE
    search = CapacitySearch(graph, channels, unit, options.effort, progress)
    try:
        front = search.front(options.period)
        live = search.smallest_live()
    finally:
        line.clear()
    _print(
        _json(report.front_json(front, live, unit))
        if options.json
        else report.front_text(front, live, unit)
    )
    return EXIT_FINE


def _schedule(options: argparse.Namespace, graph: Graph) -> int:
    from csdf.cli import on_demand  # noqa: PLC0415 (few need it)

    if options.on and options.order:
        raise CsdfError("--on searches for orders, so --order cannot be given with it")
    orders: Orders = _orders(options.order)
    more = []
    if options.on:
        orders, best = on_demand.searched_orders(graph, options.on, options.effort)
        more.append(best)
    placed = ordered(graph, orders)
    if options.cycles is not None:
        if options.period is not None or options.memory:
            raise CsdfError("--cycles can be given neither with --period nor with --memory")
        found, text = on_demand.k_periodic(placed.graph, options.cycles)
        _print(_json(found) if options.json else text)
        return EXIT_FINE if found is not None else EXIT_NOT_LIVE
    schedule = periodic_schedule(placed, options.period)
    if options.memory:
        more.append(on_demand.memory(graph, schedule))
    if options.json:
        found = report.schedule_json(schedule, orders)
        for own, _ in more:
            found |= own
        _print(_json(found))
    else:
        _print("\n".join([report.schedule_text(schedule, orders), *(text for _, text in more)]))
    return EXIT_FINE


def _scenarios(options: argparse.Namespace, _: Graph) -> int:
    from csdf.cli import on_demand  # noqa: PLC0415 (few need it)

    found, text = on_demand.worst_period(options.scenarios, options.effort)
    _print(_json(found) if options.json else text)
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
    except (
        InconsistentGraphError,
        DeadlockError,
        TooLargeError,
    ):  # no critical cycle
        critical = ()
    picture = drawing.marked(graph, critical)
    if options.output is None:
        _print(drawing.as_svg(picture).rstrip())
    else:
        _write(options.output, drawing.as_svg(picture))
    return EXIT_FINE


def _convert(options: argparse.Namespace, graph: Graph) -> int:
    if options.max_plus and options.hsdf:
        raise CsdfError("--hsdf and --max-plus are two things to write; give one")
    if options.max_plus:
        from csdf.cli import on_demand  # noqa: PLC0415 (few need it)

        _write(options.output, _json(on_demand.matrix(graph)) + "\n")
        return EXIT_FINE
    files.write(homogeneous(graph) if options.hsdf else graph, options.output)
    return EXIT_FINE


def _generate(options: argparse.Namespace, _: Graph) -> int:
    size = options.actors, options.channels, options.firings
    about = {"capacities": options.capacities, "feedback": options.feedback, "seed": options.seed}
    files.write(generate(*size, **about), options.output)
    return EXIT_FINE


def _certify(options: argparse.Namespace, graph: Graph) -> int:
    from csdf.certificates.certify import certify  # noqa: PLC0415 (OpenSSL takes 8 MB)
    from csdf.certificates.plans import certify_plan  # noqa: PLC0415

    file = _certified_file(options, graph)
    is_plan = _plan_path(options) is not None
    found = certify_plan(file, options.effort) if is_plan else certify(graph, file, options.effort)
    text = _json(found.content)
    for one in found.left_out:
        sys.stderr.write(printable(f"csdf: not certified: {one}") + "\n")
    if options.output is None:
        _print(text)
    else:
        _write(options.output, text + "\n")
    return EXIT_FINE if found.live else EXIT_NOT_LIVE


def _check_certificate(options: argparse.Namespace, graph: Graph) -> int:
    from csdf.certificates.check import RefusedError, check  # noqa: PLC0415 (OpenSSL takes 8 MB)

    try:
        certificate = Path(options.certificate).read_bytes()
    except OSError as error:
        raise CsdfError(
            f"{options.certificate} cannot be read: {error.strerror or error}"
        ) from None
    try:
        claims = check(certificate, _certified_file(options, graph))
    except RefusedError as error:
        return _fail(f"{options.certificate} proves nothing about {options.file}: {error}", 1)
    if "period" in claims:
        claims["period"] = str(claims["period"])
    _print(_json(claims) if options.json else report.claims_text(claims))
    return EXIT_FINE


def _plan_path(options: argparse.Namespace) -> Path | None:
    """Return the path of the `plan.json` to certify or to check, None if that is a graph."""
    path = Path(options.file)
    if options.command not in (_certify, _check_certificate):
        return None
    if path.is_dir():
        return path / "plan.json"
    return path if path.name == "plan.json" else None


def _certified_file(options: argparse.Namespace, graph: Graph) -> bytes:
    """Return the JSON file that a certificate is about: for SDF3 XML, what `convert` writes."""
    path = _plan_path(options) or Path(options.file)
    if path.suffix.lower() == ".json":
        try:
            return path.read_bytes()
        except OSError as error:
            raise CsdfError(f"{path} cannot be read: {error.strerror or error}") from error
    return files.as_text(graph, "graph.json").encode()


COMMANDS = {
    "analyze": _analyze,
    "capacities": _capacities,
    "scenarios": _scenarios,
    "schedule": _schedule,
    "simulate": _simulate,
    "draw": _draw,
    "convert": _convert,
    "generate": _generate,
    "certify": _certify,
    "check": _check_certificate,
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
        files.write_whole(Path(path), text)
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
