"""Measures `csdf analyze --json` as a process: `python -m benchmarks.csdf_suite [FOLDER]`.

FOLDER holds graphs in SDF3 XML or JSON; without it, the reference graphs of the tests
and random graphs of the sizes for which limits are stated are taken. Each process runs on one
core. Wall and processor seconds are medians of several runs, all graphs in turn; memory is the
largest of them. `over` marks what took longer than the limit for its size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from csdf.errors import CsdfError
from csdf.formats import files, sdf3
from csdf.generation import Capacities, generate

REFERENCE = Path(__file__).parents[1] / "tests" / "fixtures" / "csdf_reference"
LIMITS = ((50, None, 3000, 0.5), (700, 7000, None, 5.0))
"""Most actors, channels and firings (None: any), and the seconds that these may take."""

LARGEST_S = 30.0
TIMEOUT_S = 120


@dataclass
class Measured:
    """One graph: what it is, what was found, and seconds and bytes of each run."""

    name: str
    actors: int
    channels: int
    exit_code: int = 0
    found: dict[str, object] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    memory_bytes: int = 0

    @property
    def limit_s(self) -> float:
        """What a graph of this size may take."""
        firings = self.found.get("phase_firings")
        for actors, channels, most, limit_s in LIMITS:
            if (
                self.actors <= actors
                and (channels is None or self.channels <= channels)
                and (most is None or (isinstance(firings, int) and firings <= most))
            ):
                return limit_s
        return LARGEST_S

    def as_json(self) -> dict[str, object]:
        """For `json.dumps`."""
        return {
            "graph": self.name,
            "actors": self.actors,
            "channels": self.channels,
            "phase_firings": self.found.get("phase_firings"),
            "exit_code": self.exit_code,
            "period": self.found.get("period"),
            "seconds": statistics.median(self.seconds),
            "processor_seconds": statistics.median(self.processor_seconds),
            "limit_s": self.limit_s,
            "memory_bytes": self.memory_bytes,
        }


def measure(path: Path, into: Measured, core: int) -> None:
    """One run of the command, as a process of its own."""
    command = [sys.executable, "-m", "csdf.cli.command", "analyze", "--json", str(path)]
    begin = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509 (one thread here)
    )
    assert process.stdout is not None
    too_late = threading.Timer(TIMEOUT_S, process.kill)
    too_late.start()
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    into.seconds.append(time.perf_counter() - begin)
    too_late.cancel()
    process.returncode = into.exit_code = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    into.processor_seconds.append(used.ru_utime + used.ru_stime)
    into.memory_bytes = max(into.memory_bytes, used.ru_maxrss * 1024)
    into.found = json.loads(printed) if printed else {}


def generated(folder: Path) -> Iterator[Path]:
    """Graphs of the sizes for which limits are stated, in `folder`."""
    for actors, channels, firings in ((50, 75, 2800), (700, 3150, 5000)):
        both: tuple[Capacities, ...] = ("roomy", "tight")
        for capacities in both:
            graph = generate(actors, channels, firings, capacities=capacities)
            path = folder / f"{actors}_actors_{capacities}.xml"
            path.write_text(sdf3.write(graph))
            yield path


def described(path: Path) -> Measured:
    """The graph of `path`, not measured yet."""
    try:
        graph = files.read(path)
    except CsdfError:
        return Measured(path.stem, 0, 0)
    return Measured(path.stem, len(graph.actors), len(graph.channels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        if options.folder is None:
            paths = [*sorted(REFERENCE.glob("*.xml")), *generated(Path(folder))]
        else:
            paths = sorted(p for p in options.folder.iterdir() if p.suffix in (".xml", ".json"))
        results = [described(path) for path in paths]
        for _ in range(options.runs):
            for path, result in zip(paths, results, strict=True):
                measure(path, result, core)
    if options.json:
        print(json.dumps({"graphs": [result.as_json() for result in results]}))
        return
    heads = ("actors", "channels", "firings", "period", "s", "CPU s", "MB")
    print("{:28} {:>6} {:>8} {:>9} {:>16} {:>7} {:>7} {:>5}".format("graph", *heads))
    for result in results:
        row = result.as_json()
        over = "over" if statistics.median(result.seconds) > result.limit_s else ""
        firings, period = row["phase_firings"] or "-", row["period"] or f"exit {row['exit_code']}"
        print(
            f"{result.name[:28]:28} {result.actors:>6} {result.channels:>8} {firings!s:>9} "
            f"{period!s:>16} {row['seconds']:>7.2f} "
            f"{row['processor_seconds']:>7.2f} {result.memory_bytes // 1_000_000:>5} {over}"
        )


if __name__ == "__main__":
    main()
