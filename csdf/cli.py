"""The console command `csdf`.

Exit codes: 0 fine, 1 inconsistent or not live, 2 cannot be read (or wrong usage), 3 readable, but
an exact answer would take too long.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from csdf import sdf3
from csdf.analysis import Analysis, analyze
from csdf.errors import CsdfError, TooLargeError
from csdf.graph import Graph
from csdf.latency import latency
from csdf.report import as_text

EXIT_FINE, EXIT_NOT_LIVE, EXIT_UNREADABLE, EXIT_TOO_LARGE = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.source is None) != (options.sink is None):
        parser.error("--source and --sink are given together, or neither")
    try:
        graph = sdf3.read(options.file, options.processor)
    except sdf3.Sdf3Error as error:
        return _fail(error, EXIT_UNREADABLE)
    try:
        result = analyze(graph)
        if options.source is not None and result.live:
            result = replace(result, latency=latency(graph, options.source, options.sink))
    except TooLargeError as error:
        return _fail(f"{options.file}: {error}", EXIT_TOO_LARGE)
    except CsdfError as error:
        return _fail(f"{options.file}: {error}", EXIT_UNREADABLE)
    _print(options.json, graph, result)
    return EXIT_FINE if result.live else EXIT_NOT_LIVE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="csdf",
        description="Exact analyses of (cyclo-static) dataflow graphs.",
        epilog="Exit codes: 0 fine, 1 inconsistent or not live, 2 cannot be read, 3 too large.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "analyze",
        help="consistency, liveness and throughput of a graph",
        description="Prints whether a graph is consistent and live, its exact period, and why.",
    )
    command.add_argument("file", metavar="FILE", help="SDF3 XML of type sdf or csdf")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--processor", metavar="TYPE", help="take execution times of this type where given"
    )
    command.add_argument("--source", metavar="ACTOR", help="tell the latency from this actor")
    command.add_argument("--sink", metavar="ACTOR", help="… to this one")
    return parser


def _print(as_json: bool, graph: Graph, result: Analysis) -> None:
    text = json.dumps(result.as_json(), ensure_ascii=False) if as_json else as_text(graph, result)
    sys.stdout.write(text + "\n")


def _fail(error: object, code: int) -> int:
    sys.stderr.write(f"csdf: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
