"""Measures and checks `launch serve`: `python -m benchmarks.serving cost|check|attacks|…`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import print_json
from benchmarks.serving import attacks, check, cost, memory, perf_analyzer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("cost", help="frames per second and latency, served and direct")
    one.add_argument("--model", default="onnx-wheel:resnet50")
    one.add_argument("--nodes", type=int, default=2)
    one.add_argument("--frames", type=int, default=100, help="in each half of a pair")
    one.add_argument("--requests", type=int, default=100, help="alone, each beside a direct one")
    one.add_argument("--rounds", type=int, default=5)
    one.add_argument("--in-flight", type=int, default=16)
    one = parts.add_parser("check", help="answers of Triton's clients, with faults and overload")
    one.add_argument("--model", default="onnx-wheel:resnet50", help="for the first part")
    one.add_argument("--frames", type=int, default=8, help="of it")
    one.add_argument("--requests", type=int, default=10_000, help="for each kind of server")
    one = parts.add_parser("memory", help="how launcher and agents grow while they serve")
    one.add_argument("--minutes", type=float, default=60.0)
    one = parts.add_parser("attacks", help="memory and others' latency while it is attacked")
    one.add_argument("--seconds", type=float, default=20.0, help="for each attack")
    one.add_argument("--only", choices=tuple(attacks.ATTACKS))
    one.add_argument("--side", type=int, default=attacks.SIDE, help="of the network's images")
    one = parts.add_parser("perf_analyzer", help="Triton's measuring program against the servers")
    one.add_argument("binary", type=Path, help="the program, as wheels of Triton contain it")
    one.add_argument("--model", help="instead of the example")
    one.add_argument("--requests", type=int, default=400, help="in each run")
    options = parser.parse_args()
    result = _measured(options)
    print_json(result)
    return int(any(_fails(row) for row in result["rows"]))


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    match options.part:
        case "cost":
            return cost.measure(options)
        case "check":
            return check.measure(options.model, options.frames, options.requests)
        case "attacks":
            return attacks.measure(options.seconds, options.only, options.side)
        case "memory":
            return memory.measure(options.minutes)
        case _:
            return perf_analyzer.measure(options.binary, options.model, options.requests)


def _fails(row: dict[str, Any]) -> bool:
    measured = row["measured"]
    return measured < row.get("at_least", measured) or measured > row.get("at_most", measured)


if __name__ == "__main__":
    sys.exit(main())
