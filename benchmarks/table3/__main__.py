"""Measures Table 3 of Tang & Stefanov (2021) in the laboratory: `make bench-table3`.

    python -m benchmarks.table3 [--quick] [--networks resnet50 ...] [--devices 2 4 ...]
                                [--strategies auto sequential ...] [--resume] [--minutes M] [--json]

Every cell is a network on n equal emulated boards by a strategy, launched as `benchmarks.boards`
launches it with speeds and links typed into `cluster.yaml`; the plan does not change during the
launch. Each launch takes turns with n replicas of the whole model, all computing at once in the
same slices; **efficiency** is the pipeline's rate ÷ the mean of the replicas' summed rates before
and after it, and n times that the **speed-up**.
Agents restart before each launch, so the peak of their memory is the plan's, loading included.
The saving is relative to one board that holds the whole network in a plan of one node.

Laboratories come in random order; each launch is appended to a log as soon as it is done, from
which `--resume` continues. The object with all figures goes to `--output`. It needs root; see
docs/laboratory.md for what emulation leaves out.
"""

from __future__ import annotations

import random
import signal
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.boards.cells import Cell, Kind
from benchmarks.boards.session import Extent, Kinds, Measured, measure
from benchmarks.report import arguments, report
from benchmarks.table3.paper import NETWORKS, PAPER, VGG16_LARGEST_LAYER_PERCENT
from benchmarks.table3.table import both_columns, figures, summaries
from benchmarks.turn_log import add_options
from launcher.errors import BadInputError
from partition.objective import DEFAULT_OBJECTIVE

NAME = "table3"
SUITABLE_CORES = 0.5
"""What suits all boards of a laboratory together: with more they wait for one another, with less
their pauses are long enough for caches to go cold (docs/laboratory.md)."""

ALONE = Kind("described", "sequential")
"""How one board gets the whole network, for what memory is compared with."""

AS_PLANNED = {"recovery": {"adapt": False}}
"""The strategy's plan is run as it is: neither made in a hurry nor changed by what is measured."""

FRAMES_PER_BOARD = 24
USUAL: dict[str, Any] = {
    "networks": list(NETWORKS),
    "devices": list(range(2, 11)),
    "strategies": ["vertical-paper", "auto", "sequential", "horizontal", "tiles", "hybrid"],
    "seconds": 12.0,
}
QUICK: dict[str, Any] = {
    "networks": ["resnet50"],
    "devices": [2, 4, 6, 10],
    "strategies": ["auto", "sequential", "auto:memory"],
    "repetitions": 2,
    "seconds": 8.0,
    "minutes": 25.0,
}
"""What fits into 25 minutes."""

VGG16_NOTE = (
    f"One layer of VGG16 has {VGG16_LARGEST_LAYER_PERCENT} % of its Eq. 2, so no plan of whole "
    f"layers saves more than {100 - VGG16_LARGEST_LAYER_PERCENT} %: the paper's "
    f"{PAPER['vgg16'][10].saving_percent} % needs a layer that is split, as hybrid does, or "
    "another file."
)


def main() -> int:
    """Measure what is missing, and print all that is known."""
    parser = arguments("benchmarks.table3", __doc__)
    add_options(parser, NAME)
    add = parser.add_argument
    add("--quick", action="store_true", help=f"what fits into 25 minutes: {QUICK}")
    add("--networks", nargs="+", help=f"of {', '.join(NETWORKS)}, or what cluster.yaml takes")
    add("--devices", type=int, nargs="+", help="numbers of boards; one is always measured too")
    add("--strategies", nargs="+", help="NAME or NAME:OBJECTIVE, such as auto:memory")
    add("--seconds", type=float, help="of the replicas around each launch")
    add("--board", choices=("accelerator", "cpu"), default="accelerator")
    add("--cpu", type=float, help="cores per board; left out: all together take half a core")
    add("--profiled", action="store_true", help="measure the boards before searching for plans")
    add("--within", type=float, metavar="SHARE",
        help="by how much a plan's period may exceed the shortest to save memory, for the "
        "objectives both and paper")  # fmt: skip
    options = parser.parse_args()
    for key, value in (QUICK if options.quick else USUAL).items():
        if getattr(options, key) in (None, parser.get_default(key)):
            setattr(options, key, value)
    extent = Extent(
        options.repetitions, FRAMES_PER_BOARD, options.seconds, quick=False, link=options.link,
        keys=AS_PLANNED if options.within is None else {**AS_PLANNED, "within": options.within},
    )  # fmt: skip

    def wanted() -> Kinds:
        if min(options.devices) < 1:
            raise BadInputError("a table has at least one device")
        known = "profiled" if options.profiled else "described"
        kinds = [Kind.read(f"{known}:{strategy}") for strategy in options.strategies]
        counts = (1, *(count for count in options.devices if count > 1))
        cells = [
            Cell.equal(network, options.board, count, options.cpu or SUITABLE_CORES / count)
            for network in options.networks
            for count in counts
        ]
        random.Random(0).shuffle(cells)
        return {cell: [ALONE] if "-1x" in cell.setting else kinds for cell in cells}

    def as_report(measured: Measured) -> dict[str, Any]:
        found = summaries(measured.turns)
        others = statistics.median(one["others"] for one in found)
        keys = ("board", "cpu", "link", "profiled", "within", "repetitions", "seconds")
        cpu = f"{SUITABLE_CORES:g} core together"
        return report(
            NAME,
            _title(options),
            figures(found),
            settings={
                **{key: getattr(options, key) for key in keys},
                "priority": measured.how,
                "CPUs used by others": f"{others:.0%}",
            },
            notes=[
                f"Boards: {options.board}, "
                f"{cpu if options.cpu is None else f'{options.cpu:g} core each'}, links of "
                f"{options.link * 8 / 1e9:g} Gbit/s. Weights are drawn at random (He-normal, "
                "seeded): the architectures are the paper's. Accelerator boards compute on CPUs of "
                "their own, if their slices fit onto fewer than there are.",
                *([VGG16_NOTE] if any(one["cell"]["network"] == "vgg16" for one in found) else []),
                *measured.notes,
            ],
            tables=[both_columns(found), *measured.tables],
            data={"cells": found},
        )

    return measure(NAME, options, wanted, extent, as_report)


def _title(options: Any) -> str:
    """One for each kind of table, so that a page can show several."""
    kind = "accelerator" if options.board == "accelerator" else "CPU"
    count = f"{options.devices[0]} " if len(options.devices) == 1 else ""
    objectives = {how.partition(":")[2] or DEFAULT_OBJECTIVE for how in options.strategies}
    each = "" if options.cpu is None else f" of {options.cpu:g} core"
    both = "both" in objectives
    first = ", both columns" if both else f", {' or '.join(sorted(objectives))} first"
    networks = [Path(name).stem for name in options.networks]
    known = ", with a profile" if options.profiled else ""
    return (
        f"Table 3 of Tang & Stefanov (2021) in the laboratory: {', '.join(networks)} on "
        f"{count}{kind} boards{each}{first}{known}"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends launches too
    sys.exit(main())
