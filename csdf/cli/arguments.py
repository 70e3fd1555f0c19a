"""Define the arguments of the command `csdf`, and check what can be checked without a graph."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib.metadata import version

from csdf.buffers.capacities import EFFORT
from csdf.model.graph import Graph
from csdf.timing.cycle_ratio import EFFORT as THROUGHPUT_EFFORT

Command = Callable[[argparse.Namespace, Graph], int]
"""A subcommand; it gets the parsed options and the graph, and returns the exit code."""

GRAPH_FILE = "SDF3 XML of type sdf or csdf, or JSON (.json)"
GRAPH_OR_PLAN = f"{GRAPH_FILE}, or the folder of a saved plan"


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
        help="also find new capacities for bounded channels, including those bounded by a reverse "
        "channel, which has the channel's name followed by _space or _bp",
    )
    command.add_argument(
        "--source",
        metavar="ACTOR",
        help="also find the smallest capacities for each latency from this actor, which starts an "
        "iteration every --period (default: every period of the table)",
    )
    command.add_argument("--sink", metavar="ACTOR", help="measure the latency to this actor")
    command.add_argument(
        "--effort",
        type=int,
        default=EFFORT,
        metavar="N",
        help="limit of the search, roughly in milliseconds, but counted in steps so that results "
        "do not depend on the machine (default: %(default)s)",
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
        help="run actors A and B on processor P, and search for the static order of the shortest "
        "period",
    )
    command.add_argument(
        "--processors",
        type=_processors,
        metavar="P,Q",
        help="run all actors on processors P and Q, and search for the binding and the static "
        "orders of the shortest period; P=arm,Q=dsp are processors of these types (SDF3 XML)",
    )
    command.add_argument(
        "--memory",
        action="store_true",
        help="also print addresses for the buffers of channels, which share memory where their "
        "lifetimes in the schedule do not overlap",
    )
    command.add_argument(
        "--effort",
        type=_natural,
        metavar="N",
        help="maximum number of partial orders (and bindings) to examine with --on or "
        "--processors (default: 3000)",
    )
    _add_order(command)
    command = subparsers.add_parser(
        "simulate",
        help="execute iterations self-timed, with --on on processors",
        description="Execute iterations, each firing as soon as possible, and print when each "
        "iteration is complete and how busy actors and processors are. A processor runs one "
        "firing at a time: the one of the oldest iteration, or the next one in a static order.",
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
    command.add_argument(
        "--gantt", type=_svg, metavar="FILE.svg", help="write a chart of all firings"
    )
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
        command,
        commands["scenarios"],
        "SDF3 XML of type fsmsadf: scenarios and a state machine",
        has_parameters=False,
    )
    _add_effort(command)
    command = subparsers.add_parser(
        "parameters",
        help="analyse a graph with parameters for all their values",
        description="Print whether a graph is consistent for all values of its parameters, with "
        "its repetition vector as polynomials, and whether it is live, with its period, for each "
        "combination of values.",
    )
    _add_common(command, commands["parameters"], "JSON with the key parameters")
    _add_effort(command)
    command = subparsers.add_parser(
        "generate",
        help="generate a random graph that is consistent, live and connected",
        description="Write a random graph of a given size. The same options give the same graph.",
    )
    command.set_defaults(command=commands["generate"], file=None)
    command.add_argument("output", metavar="OUTPUT", help="file to write, as JSON or SDF3 XML")
    for option, kind, size, what in (
        ("--actors", _positive, 10, "number of actors"),
        ("--channels", _natural, 15, "number of channels to later actors"),
        ("--firings", _positive, 100, "approximate number of firings in an iteration"),
    ):
        text = f"{what} (default: %(default)s)"
        command.add_argument(option, type=kind, default=size, metavar="N", help=text)
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
        "--seed",
        type=_natural,
        default=0,
        metavar="N",
        help="seed of the random choices (default: %(default)s)",
    )
    command = subparsers.add_parser(
        "certify",
        help="write a certificate of the analysis, which other programs can check",
        description="Write a certificate: JSON with everything that is needed to check that the "
        "graph is consistent and live, that it has this period, and that none of its "
        "capacities could be smaller; or that it is inconsistent or deadlocks. For a "
        "plan that launch saved, it proves that the graph is live in every order and "
        "that the skews are the smallest, and bounds how good the best plan could be.",
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
        "checker is one file that shares no code with the analyser. Exit code 1 means that the "
        "certificate proves nothing.",
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
    has_parameters: bool = True,
) -> None:
    command.set_defaults(command=run)
    command.add_argument("file", metavar="FILE", help=what)
    if speaks_json:
        command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--processor", metavar="TYPE", help="processor type whose execution times to use, if given"
    )
    if has_parameters:
        command.add_argument(
            "--set",
            type=_value,
            action="append",
            default=[],
            metavar="P=N",
            help="value of parameter P of a graph in JSON",
        )


def _add_effort(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--effort",
        type=_positive,
        default=THROUGHPUT_EFFORT,
        metavar="N",
        help="maximum number of constraints between firings to examine (default: %(default)s)",
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a period; give one like 23, 6.5, 13/2")
    return Fraction(text)


def _list(text: str) -> tuple[str, list[str]]:
    processor, equals, names = text.partition("=")
    if not (processor and equals and names):
        raise argparse.ArgumentTypeError(f"{text!r} should be like P=A,B")
    return processor, names.split(",")


def _processors(text: str) -> dict[str, str | None]:
    """Return the type of each processor, None for those of `P,Q`."""
    pairs = [one.partition("=") for one in text.split(",")]
    found = {name: kind if equals else None for name, equals, kind in pairs}
    if len(found) < len(pairs) or "" in found or len({one is None for one in found.values()}) > 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} should be different names like P,Q or P=arm,Q=dsp"
        )
    return found


def _slice(text: str) -> tuple[str, Fraction, Fraction]:
    name, _, times = text.rpartition("=")
    own, _, wheel = times.partition("/")
    number = r"\d{1,30}(\.\d{1,30})?"
    if not (name and all(re.fullmatch(number, one, re.ASCII) for one in (own, wheel))):
        raise argparse.ArgumentTypeError(f"{text!r} should be like A=2/10")
    if not Fraction(wheel):
        raise argparse.ArgumentTypeError(f"{text!r} has a wheel of 0")
    return name, Fraction(own), Fraction(wheel)


def _value(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not (name and re.fullmatch(r"\d{1,18}", value, re.ASCII)):
        raise argparse.ArgumentTypeError(
            f"{text!r} should be like p=3, with a number of at most 18 digits"
        )
    return name, int(value)


def _cycles(text: str) -> int | dict[str, int]:
    if "=" not in text:
        return _positive(text)
    pairs = [one.rpartition("=") for one in text.split(",")]
    found = {name: _positive(count) for name, _, count in pairs}
    if len(found) < len(pairs):
        raise argparse.ArgumentTypeError(f"{text!r} gives an actor two numbers of cycles")
    return found


def _positive(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _natural(text: str) -> int:
    return 0 if re.fullmatch("0+", text, re.ASCII) else _positive(text)
