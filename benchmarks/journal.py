"""Measures what a journal costs, and tests that it survives kills: `python -m benchmarks.journal`.

Cost: the handwritten digits of the examples (8 × 8 pixels in, ten scores out: frames so small that
nothing hides the journal) stream over two nodes on this machine, with and without a journal in
alternation; the report gives the median ratio of neighbours. It also gives the microseconds that
the journal alone takes for a result of 40 bytes and one of 4 kB, the disk included.

Survival: a batch of 100 000 such frames runs, and the launcher is killed (SIGKILL) several times at
random moments and launched again with `--resume`. Then every frame must have exactly one record in
the journal, every result must be bit for bit that of the same frame in an uninterrupted run, and no
record may have been written twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.kills.kept_stream import frames_of
from benchmarks.programs import LAUNCH, finished
from benchmarks.report import Figure, arguments, report, show
from cnn.network import Tensor
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.result_files import output_specs
from launcher.results.resuming import open_journal

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
ALLOWED_SLOWDOWN = 0.05
KILLS, LONGEST_S = 4, 1800.0


def main() -> int:
    parser = arguments("benchmarks.journal", __doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: 5)")
    parser.add_argument("--frames", type=int, default=5000, help="of each such run")
    parser.add_argument("--batch", type=int, default=100_000, help="frames of the batch; 0: none")
    options = parser.parse_args()
    rounds = range(options.rounds)
    with tempfile.TemporaryDirectory(prefix="csdf-journal-") as name:
        folder = Path(name)
        cluster = write_cluster(folder)
        rates = [pair(cluster, options.frames, folder / f"pair{i}") for i in rounds]
        alone = {
            size: [alone_us(folder / f"alone{size}-{i}", size, options.frames) for i in rounds]
            for size in (10, 1000)
        }
        batch = interrupted(cluster, options.batch, folder) if options.batch else []
    plain = median(rate for rate, _ in rates)
    figures = [
        Figure.of("rate with a journal over rate without", [b / a for a, b in rates], digits=4,
                  at_least=1 - ALLOWED_SLOWDOWN),
        Figure("rate without a journal", round(plain, 1), "frames/s"),
        Figure("CPU time for a result of 40 bytes, of the time between two results",
               round(median(cpu for _, cpu in alone[10]) * plain / 1e6, 4),
               at_most=ALLOWED_SLOWDOWN),
        time_figure("a result of 40 bytes", alone[10]),
        time_figure("a result of 4 kB", alone[1000]),
        *batch,
    ]  # fmt: skip
    data = report(
        "journal",
        "A journal, and resuming from it",
        figures,
        settings={"frames": options.frames, "rounds": options.rounds, "nodes": 2},
        notes=[
            "Runs with a journal and without take turns. The batch's launcher is killed at random "
            "moments and resumed. A result is saved when the user has taken it; frames under way "
            "are sent again."
        ],
        data={"rates": rates},
    )
    return show(data, as_json=options.json)


def write_cluster(folder: Path) -> Path:
    """The digits on two nodes, each with a run of layers."""
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: {DIGITS / 'digits.onnx'}\ninput: {DIGITS / 'test_images.npy'}\n"
        "nodes: [{name: left}, {name: right}]\nstrategy: sequential-count\nverify: false\n",
        "utf-8",
    )
    return path


def command(cluster: Path, frames: int, *further: str) -> list[str]:
    return [*LAUNCH, str(cluster), "--frames", str(frames), "--json", *further]


def launch(cluster: Path, frames: int, *further: str) -> dict[str, Any]:
    """A launch that must end well; its report."""
    done = finished(command(cluster, frames, *further), LONGEST_S)
    if done.code != 0:
        sys.exit(f"launch: {done.last_words}")
    found = json.loads(done.output)
    assert isinstance(found, dict)
    return found


def pair(cluster: Path, frames: int, journal: Path) -> tuple[float, float]:
    """Frames per second without a journal and with one, in neighbouring runs."""
    plain = launch(cluster, frames)["frames_per_second"]
    return plain, launch(cluster, frames, "--journal", str(journal))["frames_per_second"]


def time_figure(what: str, taken: list[tuple[float, float]]) -> Figure:
    """Microseconds of several rounds of `alone_us`."""
    note = f"{median(cpu for _, cpu in taken):.1f} of a CPU"
    return Figure.of(what, [wall for wall, _ in taken], "µs", digits=1, note=note)


def alone_us(folder: Path, scores: int, frames: int) -> tuple[float, float]:
    """Microseconds, and those of a CPU, that the journal takes for a result of so many scores,
    closing and syncing included."""
    specs = output_specs([Tensor("scores", (1, scores), "float32")])
    result = {"scores": np.arange(scores, dtype=np.float32).reshape(1, -1)}
    journal = open_journal(
        folder, RunIdentity("", "", frames, specs), resume=False, where="the benchmark"
    )
    began, began_cpu = time.perf_counter(), time.process_time()
    with journal:
        for frame in range(frames):
            journal.write(frame, result)
    wall, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return wall / frames * 1e6, cpu / frames * 1e6


def interrupted(cluster: Path, frames: int, folder: Path) -> list[Figure]:
    """Kill the launcher `KILLS` times on its way through the batch, then let it finish."""
    kept, whole = folder / "kept", folder / "whole"
    moments, saved = random.Random(0), 0
    resuming = ("--journal", str(kept), "--resume")
    for number in range(KILLS):
        aim = (number + moments.random()) / (KILLS + 1)
        kill_at(command(cluster, frames, *resuming), kept, max(saved + 1, aim * frames))
        saved = len(frames_of(kept))
    before = (kept / "journal").read_bytes()
    launch(cluster, frames, *resuming)
    assert (kept / "journal").read_bytes().startswith(before[: 20 * saved])
    # The digits repeat, and engines of one thread compute the same bits every time.
    distinct = len(np.load(DIGITS / "test_images.npy", mmap_mode="r"))
    launch(cluster, distinct, "--journal", str(whole))
    wanted, found = (np.load(next(path.glob("*.npy")), mmap_mode="r") for path in (whole, kept))
    counts = Counter(frames_of(kept))
    lost = sum(frame not in counts for frame in range(frames))
    wrong = sum(not np.array_equal(found[k], wanted[k % distinct]) for k in range(frames))
    return [
        Figure("batch: frames", frames),
        Figure("batch: kills (SIGKILL)", KILLS),
        Figure("batch: frames without a result", lost, at_most=0),
        Figure("batch: frames computed twice", counts.total() - len(counts), at_most=0),
        Figure("batch: results that differ", wrong, at_most=0),
        Figure("batch: files in the journal", len(list(kept.iterdir()))),
    ]


def kill_at(launching: list[str], journal: Path, most: float) -> None:
    """Start a launch, and kill it a moment after its journal has this many frames."""
    with subprocess.Popen(
        launching, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and _kept(journal) < most:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)


def _kept(journal: Path) -> int:
    """The number of frames in a journal, which may not exist yet."""
    try:
        return len(frames_of(journal))
    except (FileNotFoundError, ValueError):  # it is being made
        return 0


if __name__ == "__main__":
    sys.exit(main())
