"""Measures `launch serve`: `python -m benchmarks.serving cost|memory|attacks`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.report import show
from benchmarks.serving import attacks, cost, memory


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
    one = parts.add_parser("memory", help="how launcher and agents grow while they serve")
    one.add_argument("--minutes", type=float, default=60.0)
    one = parts.add_parser("attacks", help="memory and others' latency while it is attacked")
    one.add_argument("--seconds", type=float, default=20.0, help="for each attack")
    one.add_argument("--only", choices=tuple(attacks.ATTACKS))
    one.add_argument("--side", type=int, default=attacks.SIDE, help="of the network's images")
    options = parser.parse_args()
    return show(_measured(options), as_json=True)


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    match options.part:
        case "cost":
            return cost.measure(options)
        case "attacks":
            return attacks.measure(options.seconds, options.only, options.side)
        case _:
            return memory.measure(options.minutes)


if __name__ == "__main__":
    sys.exit(main())
