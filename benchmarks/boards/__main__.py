"""Measures launches on boards of which `cluster.yaml` says only names and addresses:

    python -m benchmarks.boards [--quick] [--settings NAME …] [--networks NAME …] [--kinds KIND …]
                                [--repetitions 3] [--resume] [--minutes M] [--output FILE] [--json]

A cell is a network on the emulated boards of a setting (`benchmarks.lab`). Its launches alternate:

- `first`: `cluster.yaml` has the boards' names and addresses, and all caches are empty;
- `second`: the same command again;
- `described`: speeds, links and accelerators are typed into `cluster.yaml`;
- `profiled`: after a full `partition profile` with that file, which is made once per cell;
- `alone`: the fastest board has the whole network.

`KIND:STRATEGY` is the same with another strategy than the default. Every launch is a separate
process that does what the command does; its rate is that of the steady state. Where boards are
equal, replicas of the whole network compute on all of them before and after each launch, and the
**efficiency** is the pipeline's rate ÷ the mean of their sums. The setting `local` has four agents
that the launcher starts, and measures the time from the command to the first result.

Each launch is appended to a log, from which `--resume` continues, so that the table can be measured
in pieces; profiles are kept next to it. `--quick` launches once, with few frames and without a
profile. It needs root; see docs/laboratory.md for what emulation leaves out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.boards.cells import KNOWLEDGE, NETWORKS, SETTINGS, Cell, Kind
from benchmarks.boards.figures import figures
from benchmarks.boards.session import Extent, fill
from benchmarks.boards.turn import Refused, Turn, from_json
from benchmarks.lab import machine
from benchmarks.report import Table, report, show
from benchmarks.turn_log import TurnLog, origin
from benchmarks.undisturbed import undisturbed
from launcher.config.units import parse_link
from launcher.errors import EXIT_BAD_INPUT, LauncherError
from launcher.progress import open_progress

NAME = "boards"
QUICK = Extent(rounds=1, frames_per_board=12, seconds=3.0, quick=True)
FRAMES_PER_BOARD, SECONDS = 32, 10.0


def main() -> int:
    """Measure what is missing, and print all that is known."""
    options = _options()
    ort.set_default_logger_severity(4)
    until_s = time.monotonic() + 60 * options.minutes
    extent = Extent(options.repetitions, FRAMES_PER_BOARD, SECONDS, quick=False)
    cells = [Cell(s, n) for n in options.networks for s in options.settings]
    try:
        machine.require()
        kinds = None if options.kinds is None else tuple(map(Kind.read, options.kinds))
        log = TurnLog[Turn | Refused](options.log, origin(), from_json, resume=options.resume)
        with undisturbed() as how, open_progress() as progress:
            complete = fill(
                log, cells, kinds, QUICK if options.quick else extent, options.link,
                options.log.parent / options.log.stem, until_s, progress,
            )  # fmt: skip
    except LauncherError as error:
        print(f"boards: {error}", file=sys.stderr)
        return error.exit_code
    own = [turn for turn in log.turns if turn.quick == options.quick and turn.cell in cells]
    turns = [turn for turn in own if isinstance(turn, Turn)]
    refused = [turn for turn in own if isinstance(turn, Refused)]
    if not turns:
        print("boards: nothing was measured", file=sys.stderr)
        return EXIT_BAD_INPUT
    data = _report(options, turns, refused, how, complete=complete)
    if options.output is not None:
        options.output.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    show(data, as_json=options.json)
    return 0


def _report(
    options: argparse.Namespace,
    turns: list[Turn],
    refused: list[Refused],
    how: str,
    *,
    complete: bool,
) -> dict[str, Any]:
    failed = Table(
        "Launches that failed",
        ("cell", "launch", "why"),
        tuple((str(one.cell), str(one.kind), one.refused) for one in refused),
    )
    profiles = {str(turn.cell): turn.profile_s for turn in turns if turn.profile_s}
    took = ", ".join(f"{cell} {seconds:.0f} s" for cell, seconds in profiles.items())
    return report(
        NAME,
        "Launches on boards without a description",
        figures(turns),
        settings={
            "link in bytes per second": options.link,
            "repetitions": 1 if options.quick else options.repetitions,
            "frames per board": (QUICK.frames_per_board if options.quick else FRAMES_PER_BOARD),
            "priority": how,
        },
        notes=[
            "First: `cluster.yaml` has names and addresses only, and all caches are empty; second: "
            "the same command again; profiled: speeds, links and accelerators are typed, and "
            "`partition profile` has measured everything; alone: the fastest board has the whole "
            "network. Ratios are of launches that ran in turns.",
            "Predicted: the period from what the agents measured while they warmed up, which is "
            "known when streaming begins.",
            *((f"The full profile took: {took}.",) if took else ()),
            *(() if complete else ("Not all was measured yet: --resume continues.",)),
        ],
        tables=[failed] if refused else [],
        data={"turns": [turn.as_json() for turn in turns]},
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.boards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="each launch once, few frames, and no profile")
    add("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), metavar="NAME",
        help=f"boards, of {', '.join(SETTINGS)}")  # fmt: skip
    add("--networks", nargs="+", choices=list(NETWORKS), default=["resnet50"], metavar="NAME",
        help=f"of {', '.join(NETWORKS)} (default: resnet50)")  # fmt: skip
    add("--kinds", nargs="+", metavar="KIND",
        help=f"launches: {', '.join(KNOWLEDGE)}, or one of these with :STRATEGY")  # fmt: skip
    add("--repetitions", type=int, default=3, help="rounds (default: 3)")
    add("--link", type=parse_link, default="1Gbit/s", help="of each board, such as 100Mbit/s")
    add("--log", type=Path, default=Path("build", f"{NAME}.jsonl"), help="a line for each launch")
    add("--resume", action="store_true", help="continue an existing log")
    add("--minutes", type=float, default=float("inf"), help="begin no launch after this time")
    add("--output", type=Path, help="a file for the object with all figures")
    add("--json", action="store_true", help="print that object and nothing else")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
