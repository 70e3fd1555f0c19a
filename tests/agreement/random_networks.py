"""Ten thousand random networks, cut at random: `python -m tests.agreement.random_networks`.

Every network is drawn from a seed (`tests.agreement.drawn`), validated by ONNX and ONNX Runtime,
read, simplified, rewritten, dealt out to devices and compared with what its file computes. With
`--seed S --networks 1` one is drawn again. Networks that fail are saved to `--save`, as drawn and
cut down to the fewest operators that fail alike.

Exit code 0: every network that could be drawn agrees, is refused for a reason that is listed, or
disagrees by rounding alone (`EXAMINED`). 1: some do not. One of several commands that share the
work begins at another seed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import onnx
from rich.console import Console
from rich.progress import Progress

from tests.agreement.drawn.check import Outcome
from tests.agreement.drawn.network import draw
from tests.agreement.drawn.pool import check_bodies, check_planned, check_seed, checked
from tests.agreement.drawn.shrinking import smallest

MOST_SKIPPED = 0.1

EXAMINED = {
    False: {
        2952: "half precision: ArgMax of two values that are nearly equal",
        3454: "half precision: Where takes another number for values below 0, and one is nearly 0",
        7202: "half precision: the weights of a convolution into which a normalisation is folded",
        7737: "the sine of numbers of a thousand",
    },
    True: dict.fromkeys((353, 373, 880), "half precision: a loop rounds where its body ends"),
}
"""Seeds, without and with bodies, whose networks disagree by rounding alone, and where they do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check networks and print what became of them."""
    parser = argparse.ArgumentParser(prog="tests.agreement.random_networks", description=__doc__)
    parser.add_argument("--networks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first network")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--save", type=Path, default=Path("build/agreement"))
    parser.add_argument("--strategies", action="store_true", help="divide by strategies, not dice")
    parser.add_argument("--bodies", action="store_true", help="draw control flow and prepare it")
    parser.add_argument("--quick", action="store_true", help="do not cut failing networks down")
    given = parser.parse_args(arguments)
    console = Console()
    started = time.monotonic()
    outcomes: list[Outcome] = []
    known = EXAMINED[given.bodies]
    with Progress(console=console, disable=not sys.stdout.isatty()) as progress:
        task = progress.add_task("networks", total=given.networks)
        work = check_planned if given.strategies else check_seed
        work = check_bodies if given.bodies else work
        seeds = range(given.seed, given.seed + given.networks)
        for outcome in checked(seeds, given.workers, work):
            outcomes.append(outcome)
            progress.advance(task)
            if outcome.kind in ("disagrees", "fails"):
                why = known.get(outcome.seed)
                console.print(
                    f"seed {outcome.seed} {outcome.kind}: {why or outcome.reason}", markup=False
                )
                if why is None:
                    _save(outcome, given)
    for line in summary(outcomes, time.monotonic() - started):
        console.print(line, markup=False, highlight=False)
    return 0 if is_good([x for x in outcomes if x.seed not in known]) else 1


def is_good(outcomes: Sequence[Outcome]) -> bool:
    """Whether nothing is wrong, and enough could be drawn."""
    kinds = Counter(outcome.kind for outcome in outcomes)
    few = kinds["skipped"] <= MOST_SKIPPED * len(outcomes)
    return few and not kinds["disagrees"] and not kinds["fails"]


def summary(outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """What became of the networks, in lines."""
    kinds = Counter(outcome.kind for outcome in outcomes)
    lines = [
        f"{len(outcomes)} networks in {seconds:.0f} s: "
        + ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
    ]
    refused = Counter(x.reason for x in outcomes if x.kind == "refused")
    lines += [f"  refused: {count} for {reason}" for reason, count in refused.most_common()]
    rules = Counter(rule for outcome in outcomes for rule in outcome.rules)
    lines += [f"  {count} comparisons by {rule}" for rule, count in rules.most_common()]
    return lines


def _save(outcome: Outcome, given: argparse.Namespace) -> None:
    folder: Path = given.save
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(outcome.seed, with_bodies=given.bodies)
    onnx.save(drawn.model, str(folder / f"{outcome.seed}.onnx"))
    (folder / f"{outcome.seed}.txt").write_text(f"{outcome.kind}: {outcome.reason}\n", "utf-8")
    if not given.quick and not given.bodies and "the process ended" not in outcome.reason:
        onnx.save(smallest(drawn, outcome.kind).model, str(folder / f"{outcome.seed}.small.onnx"))


if __name__ == "__main__":
    sys.exit(main())
