"""Measures launches on boards of which `cluster.yaml` says only names and addresses:

    python -m benchmarks.boards [--quick] [--settings NAME …] [--networks NAME …] [--kinds KIND …]
                                [--repetitions 3] [--resume] [--minutes M] [--output FILE] [--json]

A cell is a network on the emulated boards of a setting (`benchmarks.lab`). Its launches alternate:

- `first`: `cluster.yaml` has the boards' names and addresses, and all caches are empty;
- `second`: the same command again;
- `described`: speeds, links and accelerators are typed into `cluster.yaml`;
- `profiled`: after a full `partition profile` with that file, which is made once per cell;
- `alone`: the fastest board has the whole network.

`KIND:STRATEGY` is the same with another strategy than the default, `KIND:STRATEGY:OBJECTIVE` with
another objective as well. Every launch is a separate process that does what the command does; its
rate is that of the steady state. Where boards are equal, replicas of the whole network compute on
all of them before and after each launch, and the **efficiency** is the pipeline's rate ÷ the mean
of their sums. The setting `local` has four agents that the launcher starts, and measures the time
from the command to the first result.

Each launch is appended to a log, from which `--resume` continues, so that the table can be measured
in pieces; profiles are kept next to it. `--quick` launches once, with few frames and without a
profile. It needs root; see docs/laboratory.md for what emulation leaves out.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from benchmarks.boards.cells import KNOWLEDGE, LOCAL, NETWORKS, SETTINGS, Cell, Kind
from benchmarks.boards.figures import figures
from benchmarks.boards.session import Extent, Kinds, Measured, chosen, measure
from benchmarks.report import arguments, report
from benchmarks.turn_log import add_options

NAME = "boards"


def main() -> int:
    """Measure what is missing, and print all that is known."""
    parser = arguments("benchmarks.boards", __doc__)
    settings = [*SETTINGS, LOCAL]
    add = parser.add_argument
    add("--quick", action="store_true", help="each launch once, few frames, and no profile")
    add("--settings", nargs="+", choices=settings, default=settings, metavar="NAME",
        help=f"boards, of {', '.join(settings)}")  # fmt: skip
    add("--networks", nargs="+", choices=list(NETWORKS), default=["resnet50"], metavar="NAME",
        help=f"of {', '.join(NETWORKS)} (default: resnet50)")  # fmt: skip
    add("--kinds", nargs="+", metavar="KIND",
        help=f"launches: {', '.join(KNOWLEDGE)}, or one of these with :STRATEGY")  # fmt: skip
    add_options(parser, NAME)
    options = parser.parse_args()
    extent = Extent(options.repetitions, 32, 10.0, quick=False, link=options.link)
    if options.quick:
        extent = Extent(1, 12, 3.0, quick=True, link=options.link)

    def wanted() -> Kinds:
        cells = [Cell(setting, n) for n in options.networks for setting in options.settings]
        given = tuple(map(Kind.read, options.kinds or ()))
        return {cell: given or chosen(cell, options.quick) for cell in cells}

    def as_report(found: Measured) -> dict[str, Any]:
        profiles = {str(turn.cell): turn.profile_s for turn in found.turns if turn.profile_s}
        took = ", ".join(f"{cell} {seconds:.0f} s" for cell, seconds in profiles.items())
        return report(
            NAME,
            f"Launches on boards without a description: {', '.join(options.networks)}",
            figures(found.turns),
            settings={
                "link in bytes per second": extent.link,
                "repetitions": extent.rounds,
                "frames per board": extent.frames_per_board,
                "priority": found.how,
            },
            notes=[
                "First: `cluster.yaml` has names and addresses only, and all caches are empty; "
                "second: the same command again; profiled: speeds, links and accelerators are "
                "typed, and `partition profile` has measured everything; alone: the fastest board "
                "has the whole network. Ratios are of launches that ran in turns.",
                "Predicted: the period from what the agents measured while they warmed up, which "
                "is known when streaming begins.",
                *([f"The full profile took: {took}."] if took else []),
                *found.notes,
            ],
            tables=found.tables,
            data={"turns": [turn.as_json() for turn in found.turns]},
        )

    return measure(NAME, options, wanted, extent, as_report)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends launches too
    sys.exit(main())
