"""Measures what the runtime itself costs: `python -m benchmarks.limits firing|idle|steady|many`."""

from __future__ import annotations

import sys

from benchmarks.limits import firing, idle, many, steady
from benchmarks.report import parts, show


def main() -> int:
    parser, add = parts("benchmarks.limits", __doc__)
    one = add("firing", "CPU of an agent per firing, beside bare pyzmq")
    one.add_argument("--rounds", type=int, default=5)
    add("idle", "CPU of agents that have nothing to do")
    one = add("steady", "memory and latency over many frames")
    one.add_argument("--frames", type=int, default=20_000)
    add("many", "what an agent costs before the first frame")
    given = parser.parse_args()
    found = {
        "firing": lambda: firing.measure(given.rounds),
        "idle": idle.measure,
        "steady": lambda: steady.measure(given.frames),
        "many": many.measure,
    }[given.part]()
    return show(found, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
