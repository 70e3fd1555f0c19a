"""Injects faults into real agents while frames stream, and counts lost and wrong results:

    python -m benchmarks.chaos [--quick] [--only NAME …] [--repetitions N] [--json]

Four boards of the laboratory (docs/laboratory.md), one of which stands by, run the shipped agents;
the shipped launcher streams frames through them, and every result is compared with the whole
model's. Then a fault happens. The report gives frames, results, how many are lost, doubled or wrong
(all must be zero), and the seconds from the fault to the first result of an interrupted frame.
Where a fault must end a run, the final sentence and the results until then are checked.

Exit code 1 if any outcome is not the required one. It needs root.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import onnxruntime as ort

from benchmarks.chaos.bed import DISTINCT, Bed, Streamed
from benchmarks.chaos.cases import CASES, Case
from benchmarks.report import Figure, arguments, report, show
from launcher.errors import LauncherError

MODEL = "onnx-wheel:squeezenet"
RECOVERY_S = 10.0
"""What was asked for, on a LAN and for networks of ResNet50's size."""


@dataclass(frozen=True)
class Tried:
    """A case, and what came of it each time."""

    case: Case
    streams: tuple[Streamed, ...]

    @property
    def held(self) -> bool:
        return all(map(self.case.met, self.streams))

    @property
    def recover_s(self) -> list[float]:
        lasts_s = self.case.lasts_s
        return [max(0.0, s - lasts_s) for one in self.streams for s in one.recover_s]

    def total(self, key: str) -> int:
        return sum(getattr(one, key) for one in self.streams)

    def __str__(self) -> str:
        ended = next((shorten(one.ended, 90) for one in self.streams if one.ended), "")
        times = f"{statistics.median(self.recover_s):.1f} s" if self.recover_s else ended
        return f"{self.case.what}: {'as it must' if self.held else 'NOT AS IT MUST'}; {times}"


def attempt(case: Case, bed: Bed) -> Streamed:
    """One case, once; the boards are mended after it."""
    try:
        if case.before is not None:
            case.before(bed)
        return bed.stream(case.seconds, case.fault)
    finally:
        bed.mend()


def try_all(cases: Sequence[Case], repetitions: int) -> list[Tried]:
    """Try all cases; those without keys get separate boards."""
    tried: list[Tried] = []
    for keys in (True, False):
        wanted = [case for case in cases if case.keys is keys]
        if not wanted:
            continue
        with Bed(MODEL, keys=keys) as bed:
            bed.calibrate()
            for case in wanted:
                tried.append(Tried(case, tuple(attempt(case, bed) for _ in range(repetitions))))
                print(tried[-1], file=sys.stderr, flush=True)
    return tried


def figures(tried: list[Tried]) -> list[Figure]:
    """Of all cases together, and of each."""
    found = [Figure("cases", len(tried)), Figure("streams", sum(len(t.streams) for t in tried))]
    found += [
        Figure("otherwise than they must", sum(not t.held for t in tried), "cases", at_most=0),
        Figure("frames", sum(t.total("frames") for t in tried)),
        *(
            Figure(f"{key} frames", sum(t.total(key) for t in tried), at_most=0)
            for key in ("lost", "doubled", "wrong")
        ),
        Figure("frames sent again", sum(t.total("replayed") for t in tried)),
    ]
    every = [s for t in tried if t.case.outcome == "recovers" for s in t.recover_s]
    if every:
        found.append(
            Figure.of("seconds from a fault to going on", every, "s", digits=2, at_most=RECOVERY_S)
        )
    for one in tried:
        times = one.recover_s or [0.0]
        bound = RECOVERY_S if one.case.outcome == "recovers" else None
        how = "the run ends in a sentence" if one.case.outcome == "ends" else "until it went on"
        found.append(Figure.of(one.case.what, times, "s", digits=2, at_most=bound, note=how))
    return found


def main() -> int:
    parser = arguments("benchmarks.chaos", __doc__)
    parser.add_argument("--quick", action="store_true", help="without what takes a minute")
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    cases = [case for case in CASES if options.only is None or case.name in options.only]
    cases = [case for case in cases if not (options.quick and case.long)]
    try:
        tried = try_all(cases, options.repetitions)
    except LauncherError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return error.exit_code
    boards = "4 boards of 0.2 core and 400 MB, 1 Gbit/s"
    which = f": {', '.join(options.only)}" if options.only else ""
    data = report(
        "chaos",
        f"Faults on real agents{which}",
        figures(tried),
        settings={"boards": boards, "model": MODEL, "repetitions": options.repetitions},
        notes=[
            f"Three boards and one that stands by; {DISTINCT} different inputs, every result "
            "compared with the whole model's."
        ],
        data={one.case.name: [stream.as_json() for stream in one.streams] for one in tried},
    )
    show(data, as_json=options.json)
    return 0 if all(one.held for one in tried) else 1


if __name__ == "__main__":
    sys.exit(main())
