"""Prints every table of the five papers that can be computed or measured here: ours beside theirs.

    python -m benchmarks.papers [--papers 000,002] [--quick] [--json]

One row for each figure, with what a null model gives and a verdict (`benchmarks.papers.rows`). What
follows from networks, rules and searches is computed now. What needs a laboratory run (both columns
of Table 3 of Tang & Stefanov, measured) is read from the stored results of `benchmarks.table3`, and
the row gives its date. `--quick` computes a small part of everything. The five strategies of
Table 3 take most of the time: half an hour.

Published figures are facts from the papers, which docs/papers.md names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.papers import batches, exact, segments, stages, vertical
from benchmarks.papers.rows import Section
from benchmarks.report import Figure, Table, arguments, report, show

PAPERS: Mapping[str, Callable[..., Iterator[Section]]] = {
    "000": segments.sections,
    "001": stages.sections,
    "002": vertical.sections,
    "003": exact.sections,
    "004": batches.sections,
}
COLUMNS = ("what", "theirs", "ours", "null model", "verdict")


def main(given: Sequence[str] | None = None) -> int:
    """Print the tables; a verdict is no failure, so the exit code is 0."""
    parser = arguments("benchmarks.papers", __doc__)
    parser.add_argument(
        "--papers",
        default=",".join(PAPERS),
        help="numbers, such as 000,003: 000 Villarrubia et al., 001 Velasco-Montero et al., 002 "
        "Tang & Stefanov, 003 Yin et al., 004 Vanishree et al. (default: all)",
    )
    parser.add_argument("--quick", action="store_true", help="a small part of every paper")
    chosen = parser.parse_args(given)
    names = chosen.papers.split(",")
    unknown = [name for name in names if name not in PAPERS]
    if unknown:
        parser.error(f"there is no paper {unknown[0]!r}; choose from {', '.join(PAPERS)}")
    start_s = time.perf_counter()
    found: list[Section] = []
    for name in names:
        for section in PAPERS[name](quick=chosen.quick):
            found.append(section)
            print(f"{section.paper}, {section.head}", file=sys.stderr, flush=True)
    title = "The tables of five papers, ours beside theirs"
    if len(names) == 1:
        title += f": {found[0].paper}"
    return show(_report(title, found, time.perf_counter() - start_s), as_json=chosen.json)


def _report(title: str, sections: Sequence[Section], seconds: float) -> dict[str, object]:
    return report(
        "papers",
        title,
        [Figure("the whole command", round(seconds), "s")],
        notes=[
            "Published figures are taken from the papers that docs/papers.md names; it also says "
            "what each verdict means. The number of rows is not a score: most rows of some papers "
            "are arithmetic on the paper's own numbers."
        ],
        tables=[
            Table(
                f"{section.paper}: {section.head}",
                COLUMNS,
                tuple(
                    (row.what, row.theirs, row.ours, row.null, row.verdict) for row in section.rows
                ),
            )
            for section in sections
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
