"""Measures what looking at a cluster costs, and checks its metrics with a real Prometheus.

python -m benchmarks.observe overhead|prometheus
"""

from __future__ import annotations

import sys

from benchmarks.observe import overhead, with_prometheus
from benchmarks.report import parts, show


def main() -> int:
    parser, add = parts("benchmarks.observe", __doc__)
    one = add("overhead", "frames per second, looked at and not")
    one.add_argument("--rounds", type=int, default=12)
    one.add_argument("--seconds", type=float, default=4.0, help="of each half of a round")
    one = add("prometheus", "its rate beside ours, and an alert after a kill")
    one.add_argument("--minutes", type=float, default=3.0, help="of scraping")
    options = parser.parse_args()
    result = (
        overhead.measure(options.rounds, options.seconds)
        if options.part == "overhead"
        else with_prometheus.measure(options.minutes)
    )
    return show(result, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
