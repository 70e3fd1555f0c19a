"""Measures what looking at a cluster costs, and checks its metrics with a real Prometheus.

python -m benchmarks.observe overhead|prometheus
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.observe import overhead, with_prometheus
from benchmarks.report import show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("overhead", help="frames per second, looked at and not")
    one.add_argument("--models", nargs="*", default=list(overhead.MODELS))
    one.add_argument(
        "--looks", nargs="*", default=list(overhead.LOOKS), choices=list(overhead.LOOKS)
    )
    one.add_argument("--nodes", type=int, default=3)
    one.add_argument("--rounds", type=int, default=12)
    one.add_argument("--seconds", type=float, default=4.0, help="of each half of a round")
    one = parts.add_parser("prometheus", help="its rate beside ours, and an alert after a kill")
    one.add_argument("--minutes", type=float, default=3.0, help="of scraping")
    options = parser.parse_args()
    result = (
        overhead.measure(options)
        if options.part == "overhead"
        else with_prometheus.measure(options.minutes)
    )
    return show(result, as_json=True)


if __name__ == "__main__":
    sys.exit(main())
