"""Measures Table 3 of Tang & Stefanov (2021) in the laboratory: `make bench-table3`.

    python -m benchmarks.table3 [--quick] [--networks resnet50 ...] [--devices 2 4 ...]
                                [--strategies auto sequential ...] [--resume] [--minutes M] [--json]

Every cell is a network on n emulated boards by a strategy. Its pipeline takes turns with n replicas
of the whole model, all computing at once in the same slices; **efficiency** is the pipeline's rate
÷ the mean of the replicas' summed rates before and after it, and n times that the **speed-up**.
Agents restart before each pipeline, so the peak of their memory is the plan's, loading included.
The saving is relative to one board that holds the whole network in a plan of one node.

Groups of cells (a network on n boards) and turns within a group come in random order; each turn is
appended to a log as soon as it is done, from which `--resume` continues. The object with all
figures goes to `--output`. It needs root; see
docs/laboratory.md for what emulation leaves out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import onnxruntime as ort

from benchmarks.lab import machine
from benchmarks.report import arguments, report, show
from benchmarks.table3.log import Log
from benchmarks.table3.order import cells_of
from benchmarks.table3.paper import NETWORKS, PAPER, VGG16_LARGEST_LAYER_PERCENT
from benchmarks.table3.session import fill
from benchmarks.table3.summary import Summary, summaries
from benchmarks.table3.table import figures, tables
from benchmarks.table3.turn import SUITABLE_CORES, Boards, Refused
from benchmarks.turn_log import origin
from benchmarks.undisturbed import undisturbed
from ga.strategies import STRATEGIES
from launcher.config.units import parse_link
from launcher.errors import EXIT_BAD_INPUT, BadInputError, LauncherError
from launcher.progress import open_progress
from partition.objective import DEFAULT_OBJECTIVE, WITHIN, Objective

USUAL: dict[str, Any] = {
    "networks": list(NETWORKS),
    "devices": list(range(2, 11)),
    "strategies": ["vertical-paper", "auto", "sequential", "horizontal", "tiles", "hybrid"],
    "repetitions": 3,
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

OBJECTIVES = get_args(Objective)
NAME = "table3"


def main() -> int:
    """Measure what is missing, and print all that is known."""
    options = _options()
    ort.set_default_logger_severity(4)
    boards = Boards(options.board, options.cpu, options.link, options.profiled, options.within)
    try:
        _check(options)
        log = Log(options.log, origin(), resume=options.resume)
        cells = cells_of(options.networks, options.devices, options.strategies)
        with undisturbed() as how, open_progress() as progress:
            complete = fill(
                log,
                cells,
                boards,
                progress,
                repetitions=options.repetitions,
                seconds=options.seconds,
                seed=options.seed,
                minutes=options.minutes,
            )
    except LauncherError as error:
        print(f"table3: {error}", file=sys.stderr)
        return error.exit_code
    found = summaries([turn for turn in log.of(boards) if turn.cell in cells])
    refused = [one for one in log.refusals(boards) if one.cell in cells]
    if not found:
        print("table3: nothing was measured", file=sys.stderr)
        return EXIT_BAD_INPUT
    notes = _notes(found, boards, complete=complete)
    data = _report(options, boards, found, refused, notes, how)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    show(data, as_json=options.json)
    return 0


def _report(
    options: argparse.Namespace,
    boards: Boards,
    found: Sequence[Summary],
    refused: Sequence[Refused],
    notes: Sequence[str],
    how: str,
) -> dict[str, Any]:
    return report(
        NAME,
        _title(options),
        figures(found, boards.board),
        settings={
            **asdict(boards),
            "repetitions": options.repetitions,
            "seconds of a turn": options.seconds,
            "seed of the order": options.seed,
            "priority": how,
            "CPUs used by others": f"{statistics.median(one.others for one in found):.0%}",
        },
        notes=notes,
        tables=tables(found, refused),
        data={"cells": [asdict(one) for one in found]},
    )


def _title(options: argparse.Namespace) -> str:
    """One for each kind of table, so that a page can show several."""
    kind = "accelerator" if options.board == "accelerator" else "CPU"
    count = f"{options.devices[0]} " if len(options.devices) == 1 else ""
    objectives = {how.partition(":")[2] or DEFAULT_OBJECTIVE for how in options.strategies}
    both = "both" in objectives
    each = "" if options.cpu is None else f" of {options.cpu:g} core"
    first = ", both columns" if both else f", {' or '.join(sorted(objectives))} first"
    networks = [Path(name).stem for name in options.networks]
    known = ", with a profile" if options.profiled else ""
    return (
        f"Table 3 of Tang & Stefanov (2021) in the laboratory: {', '.join(networks)} on "
        f"{count}{kind} boards{each}{first}{known}"
    )


VGG16_NOTE = (
    f"One layer of VGG16 has {VGG16_LARGEST_LAYER_PERCENT} % of its Eq. 2, so no plan of whole "
    f"layers saves more than {100 - VGG16_LARGEST_LAYER_PERCENT} %: the paper's "
    f"{PAPER['vgg16'][10].saving_percent} % needs a layer that is split, as hybrid does, or "
    "another file."
)


def _notes(found: Sequence[Summary], boards: Boards, *, complete: bool) -> list[str]:
    worst = max(one.difference for one in found)
    cpu = f"{SUITABLE_CORES:g} core together" if boards.cpu is None else f"{boards.cpu:g} core each"
    return [
        f"Boards: {boards.board}, {cpu}, links of "
        f"{'any rate' if boards.link is None else f'{boards.link * 8 / 1e9:g} Gbit/s'}. Weights "
        "are drawn at random (He-normal, seeded): the architectures are the paper's. Accelerator "
        "boards compute on CPUs of their own, if their slices fit onto fewer than there are.",
        *((VGG16_NOTE,) if any(one.cell.network == "vgg16" for one in found) else ()),
        f"The worst result is {worst:.1e} of the largest value away from the whole model's.",
        *(() if complete else ("Not all of the table was measured yet: --resume continues.",)),
    ]


def _check(options: argparse.Namespace) -> None:
    for strategy in options.strategies:
        named, _, objective = strategy.partition(":")
        if named not in STRATEGIES or (objective or DEFAULT_OBJECTIVE) not in OBJECTIVES:
            raise BadInputError(
                f"{strategy!r} is no strategy of this table: NAME or NAME:OBJECTIVE, of "
                f"{', '.join(STRATEGIES)} and {', '.join(OBJECTIVES)}"
            )
    if min(options.devices) < 1:
        raise BadInputError("a table has at least one device")
    machine.require()


def _options() -> argparse.Namespace:
    parser = arguments("benchmarks.table3", __doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help=f"what fits into 25 minutes: {QUICK}")
    add("--networks", nargs="+", help=f"of {', '.join(NETWORKS)}, or what cluster.yaml takes")
    add("--devices", type=int, nargs="+", help="numbers of boards; one is always measured too")
    add("--strategies", nargs="+", help="NAME or NAME:OBJECTIVE, such as auto:memory")
    add("--repetitions", type=int, help="turns of each cell")
    add("--seconds", type=float, help="of each turn")
    add("--board", choices=("accelerator", "cpu"), default="accelerator")
    add("--cpu", type=float, help="cores per board; left out: all together take half a core")
    add("--link", type=parse_link, default="1Gbit/s", help="of each board, such as 100Mbit/s")
    add("--profiled", action="store_true", help="measure the boards before searching for plans")
    add(
        "--within",
        type=float,
        default=WITHIN,
        metavar="SHARE",
        help="by how much a plan's period may exceed the shortest to save memory, for the "
        "objective both (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="of the random order")
    add("--log", type=Path, help="a line for each turn; build/NAME.jsonl, NAME as of the output")
    add("--resume", action="store_true", help="continue an existing log")
    add("--minutes", type=float, help="begin no turn that would end later")
    add("--output", type=Path, help="a file for the object with all figures")
    options = parser.parse_args()
    for key, value in (QUICK if options.quick else USUAL).items():
        if getattr(options, key) is None:
            setattr(options, key, value)
    if options.log is None:
        name = NAME if options.output is None else options.output.stem
        options.log = Path("build") / f"{name}.jsonl"
    return options


if __name__ == "__main__":
    sys.exit(main())
