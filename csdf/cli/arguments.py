"""The arguments of the console command `csdf`: what its commands take, and how it is written."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib.metadata import version

from csdf.buffers.capacities import EFFORT
from csdf.model.graph import Graph
from csdf.timing.critical import EFFORT as THROUGHPUT_EFFORT

Command = Callable[[argparse.Namespace, Graph], int]
"""Does what is asked with a graph that was read; returns the exit code."""


def parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """Of all commands; what is parsed has the one to run as `command`."""
    found = argparse.ArgumentParser(
        prog="csdf",
        description="Exact analyses of (cyclo-static) dataflow graphs.",
        epilog="Exit codes: 0 fine, 1 inconsistent or not live, 2 cannot be read, 3 too large.",
    )
    found.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = found.add_subparsers(required=True, metavar="COMMAND")
    command = subparsers.add_parser(
        "analyze",
        help="consistency, liveness and throughput of a graph",
        description="Prints whether a graph is consistent and live, its exact period, and why; "
        "without execution times only the former two.",
    )
    _add_common(command, commands["analyze"])
    command.add_argument("--source", metavar="ACTOR", help="report the latency from this actor")
    command.add_argument("--sink", metavar="ACTOR", help="… to this one")
    command.add_argument(
        "--slack", action="store_true", help="report the slack of all actors, even if it takes long"
    )
    _add_order(command)
    command.add_argument(
        "--effort",
        type=_positive,
        default=THROUGHPUT_EFFORT,
        metavar="N",
        help="constraints between firings to look at, at most (%(default)s)",
    )
    command = subparsers.add_parser(
        "capacities",
        help="the smallest channel capacities, and what more room buys",
        description="Prints the smallest capacities that are live, those that reach the shortest "
        "period, and all trades between size and period, proved; or bounds where that is too much.",
    )
    _add_common(command, commands["capacities"])
    command.add_argument("--period", type=_period, metavar="P", help="reach this, not the shortest")
    command.add_argument("--bytes", action="store_true", help="weigh by the size of tokens")
    command.add_argument("--channels", metavar="A,B,…", help="size these, not all without bounds")
    command.add_argument(
        "--resize", action="store_true", help="size bounded channels too (reverse channels count)"
    )
    command.add_argument(
        "--effort",
        type=int,
        default=EFFORT,
        metavar="N",
        help="how long to search, in counted milliseconds (%(default)s)",
    )
    command = subparsers.add_parser(
        "schedule",
        help="a start time for every firing of an iteration",
        description="Prints the earliest schedule that repeats itself after the shortest period; "
        "on processors, in given orders.",
    )
    _add_common(command, commands["schedule"])
    command.add_argument("--period", type=_period, metavar="P", help="repeat after this instead")
    _add_order(command)
    command = subparsers.add_parser(
        "simulate",
        help="self-timed execution, on processors if wanted",
        description="Executes some iterations, every firing as soon as possible, and prints when "
        "each is complete and how busy all were. A processor runs one firing at a time, the oldest "
        "iteration's first, or in a static order.",
    )
    _add_common(command, commands["simulate"])
    command.add_argument(
        "--iterations", type=_positive, default=10, metavar="N", help="how many (%(default)s)"
    )
    command.add_argument(
        "--on", type=_list, action="append", default=[], metavar="P=A,B", help="A, B run on P"
    )
    command.add_argument(
        "--order",
        type=_list,
        action="append",
        default=[],
        metavar="P=A,B,A",
        help="… in this order",
    )
    command.add_argument("--gantt", metavar="FILE.svg", help="write a chart of all firings")
    command.add_argument("--trace", metavar="FILE.json", help="write a trace for Perfetto")
    command.add_argument(
        "--microseconds", type=_period, default=Fraction(1), metavar="N", help="a unit in the trace"
    )
    command = subparsers.add_parser(
        "draw",
        help="a picture of the graph, with its critical cycle",
        description="Prints an SVG, or writes it; what holds the period is red.",
    )
    _add_common(command, commands["draw"], speaks_json=False)
    command.add_argument("--output", type=_svg, metavar="FILE.svg", help="write the picture here")
    command = subparsers.add_parser(
        "convert",
        help="the same graph in another format",
        description="Writes the graph as JSON if OUTPUT ends in .json, otherwise as SDF3 XML.",
    )
    _add_common(command, commands["convert"], speaks_json=False)
    command.add_argument("output", metavar="OUTPUT", help="the file to write")
    return found


def _svg(text: str) -> str:
    """The name of an SVG file."""
    if not text.lower().endswith(".svg"):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .svg")
    return text


class _Version(argparse.Action):
    """Prints the installed version, which is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        """See `argparse.Action`."""
        sys.stdout.write(f"csdf {version('csdf-edge')}\n")
        parser.exit()


def _add_common(
    command: argparse.ArgumentParser, run: Command, *, speaks_json: bool = True
) -> None:
    command.set_defaults(command=run)
    command.add_argument(
        "file", metavar="FILE", help="SDF3 XML of type sdf or csdf, or JSON (.json)"
    )
    if speaks_json:
        command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--processor", metavar="TYPE", help="take execution times of this type where given"
    )


def _add_order(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--order",
        type=_list,
        action="append",
        default=[],
        metavar="P=A,B@1,A",
        help="A and B share processor P, one firing at a time, in this order; B for the iteration "
        "before (A[0]: just this phase of A)",
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


def _positive(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)
