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
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.report import Figure, arguments, report, show
from cnn.network import Tensor
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.records import DONE, decode
from launcher.results.journal.result_files import output_specs
from launcher.results.resuming import open_journal

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
ALLOWED_SLOWDOWN = 0.05


def main() -> int:
    parser = arguments("benchmarks.journal", __doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: 5)")
    parser.add_argument("--frames", type=int, default=5000, help="of each such run")
    parser.add_argument("--batch", type=int, default=100_000, help="frames of the batch; 0: none")
    parser.add_argument("--kills", type=int, default=4, help="of its launcher (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="csdf-journal-") as name:
        folder = Path(name)
        cluster = write_cluster(folder)
        rates = [pair(cluster, options.frames, folder / f"pair{i}") for i in range(options.rounds)]
        alone = {
            n: [
                alone_us(folder / f"alone{n}-{i}", n, options.frames) for i in range(options.rounds)
            ]
            for n in (10, 1000)
        }
        batch = None
        if options.batch:
            batch = interrupted(cluster, options.batch, options.kills, options.seed, folder)
    plain = median(rate for rate, _ in rates)
    ratios = [journalled / without for without, journalled in rates]
    figures = [
        Figure.of("rate with a journal over rate without", ratios, digits=4,
                  at_least=1 - ALLOWED_SLOWDOWN),
        Figure("rate without a journal", round(plain, 1), "frames/s"),
        Figure(
            "CPU time for a result of 40 bytes, of the time between two results",
            round(median(cpu for _, cpu in alone[10]) * plain / 1e6, 4),
            at_most=ALLOWED_SLOWDOWN,
        ),
        time_figure("a result of 40 bytes", alone[10]),
        time_figure("a result of 4 kB", alone[1000]),
    ]  # fmt: skip
    if batch is not None:
        figures += [
            Figure("batch: frames", options.batch),
            Figure("batch: kills (SIGKILL)", batch.kills),
            Figure("batch: frames without a result", batch.lost, at_most=0),
            Figure("batch: frames computed twice", batch.doubled, at_most=0),
            Figure("batch: results that differ", batch.wrong, at_most=0),
            Figure("batch: files in the journal", batch.files),
        ]
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
        data={"rates": rates, "saved_at_kills": batch.saved if batch else []},
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
    return [
        sys.executable, "-m", "launcher.commands.launch", str(cluster),
        "--frames", str(frames), "--json", *further,
    ]  # fmt: skip


def launch(cluster: Path, frames: int, *further: str) -> dict[str, Any]:
    """A launch that must end well; its report."""
    done = subprocess.run(
        command(cluster, frames, *further), check=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
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


@dataclass(frozen=True)
class Batch:
    """What became of a batch whose launcher was killed again and again."""

    kills: int
    saved: list[int]
    """Results in the journal after each kill."""
    lost: int
    doubled: int
    wrong: int
    files: int


def interrupted(cluster: Path, frames: int, kills: int, seed: int, folder: Path) -> Batch:
    """Kill the launcher `kills` times on its way through the batch, then let it finish."""
    kept, whole = folder / "kept", folder / "whole"
    moments = random.Random(seed)
    saved: list[int] = []
    resuming = ("--journal", str(kept), "--resume")
    for number in range(kills):
        aim = (number + moments.random()) / (kills + 1)
        kill_at(command(cluster, frames, *resuming), aim - (saved[-1] / frames if saved else 0))
        saved.append(len(records(kept)))
    before = (kept / "journal").read_bytes()
    launch(cluster, frames, *resuming)
    assert (kept / "journal").read_bytes().startswith(before[: 20 * saved[-1]])
    # The digits repeat, and engines of one thread compute the same bits every time.
    distinct = len(np.load(DIGITS / "test_images.npy", mmap_mode="r"))
    launch(cluster, distinct, "--journal", str(whole))
    wanted, found = (np.load(next(path.glob("*.npy")), mmap_mode="r") for path in (whole, kept))
    counts = Counter(records(kept))
    return Batch(
        kills=kills,
        saved=saved,
        lost=sum(frame not in counts for frame in range(frames)),
        doubled=sum(count - 1 for count in counts.values()),
        wrong=sum(
            not np.array_equal(found[frame], wanted[frame % distinct]) for frame in range(frames)
        ),
        files=len(list(kept.iterdir())),
    )


def records(journal: Path) -> list[int]:
    """The frames with a record of their result."""
    run = bytes.fromhex(json.loads((journal / "run.json").read_text("utf-8"))["run"])
    found = decode((journal / "journal").read_bytes(), run)
    return [record.frame for _, record in found if record.kind == DONE]


def kill_at(launching: list[str], share: float) -> None:
    """Start a launch, and kill it a moment after it has streamed at least this share of its frames.

    Its progress is read from its output, in tenths of the frames.
    """
    process = subprocess.Popen(
        launching, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with process:
        for line in process.stderr or ():
            progress = re.match(r"streaming: (\d+) of (\d+)", line)
            if progress and int(progress[1]) > 0 and int(progress[1]) >= share * int(progress[2]):
                time.sleep(share)
                break
        os.kill(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
