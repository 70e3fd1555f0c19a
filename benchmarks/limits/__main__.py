"""Measures what the runtime itself costs: `python -m benchmarks.limits firing|idle|steady|many`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.limits import firing, idle, many, steady
from benchmarks.report import show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("firing", help="CPU of an agent per firing, beside bare pyzmq")
    one.add_argument("--rounds", type=int, default=5)
    one.add_argument("--transport", choices=("tcp", "ipc"), default="tcp")
    one.add_argument("--bytes", type=int, nargs="+", default=tuple(firing.FRAMES))
    one = parts.add_parser("idle", help="CPU and wake-ups of agents that have nothing to do")
    one.add_argument("--agents", type=int, default=3)
    one.add_argument("--seconds", type=float, default=8.0)
    one.add_argument("--rounds", type=int, default=3)
    one = parts.add_parser("steady", help="memory and latency over many frames")
    one.add_argument("--frames", type=int, default=20_000)
    one.add_argument("--devices", type=int, default=10)
    one = parts.add_parser("many", help="what an agent costs before the first frame")
    one.add_argument("--agents", type=int, nargs="+", default=(10, 30, 100))
    one.add_argument("--repetitions", type=int, default=3)
    for part in parts.choices.values():
        part.add_argument("--json", action="store_true", help="print one JSON object and no more")
    options = parser.parse_args()
    return show(_measured(options), as_json=options.json)


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    match options.part:
        case "firing":
            return firing.measure(options.rounds, options.transport, tuple(options.bytes))
        case "idle":
            return idle.measure(options.agents, options.seconds, options.rounds)
        case "steady":
            return steady.measure(options.frames, options.devices)
        case _:
            return many.measure(tuple(options.agents), options.repetitions)


if __name__ == "__main__":
    sys.exit(main())
