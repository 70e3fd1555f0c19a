"""Measures `launch serve`: `python -m benchmarks.serving cost|attacks`."""

from __future__ import annotations

import sys

from benchmarks.report import parts, show
from benchmarks.serving import attacks, cost


def main() -> int:
    parser, add = parts("benchmarks.serving", __doc__)
    one = add("cost", "frames per second and latency, served and direct")
    one.add_argument("--model", default="onnx-wheel:resnet50")
    one.add_argument("--frames", type=int, default=100, help="in each half of a pair")
    one.add_argument("--requests", type=int, default=100, help="alone, each beside a direct one")
    one.add_argument("--rounds", type=int, default=5)
    one = add("attacks", "memory and others' latency while it is attacked")
    one.add_argument("--seconds", type=float, default=20.0, help="for each attack")
    one.add_argument("--only", choices=tuple(attacks.ATTACKS))
    given = parser.parse_args()
    found = (
        cost.measure(given) if given.part == "cost" else attacks.measure(given.seconds, given.only)
    )
    return show(found, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
