"""Measures most figures of `docs/results.md` in one session: `make bench`, on an idle machine.

    python -m benchmarks.session [--minutes 90] [--folder build/session] [--only NAME …] [--list]

Runs one benchmark after the other, the most important first. Each one's object goes to
`FOLDER/NAME.json`, and its other output to `FOLDER/log/NAME.txt`. A benchmark for which the minutes
do not suffice is omitted, and one whose file exists is not repeated, so a session may be
interrupted and restarted. A benchmark that takes much longer than expected is interrupted.

    cp build/session/*.json benchmarks/results/ && make results

then makes the page from it. Most benchmarks need root. `peers` includes torch if $TORCH_PYTHON
names a Python that has it.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

END_S = 30.0
"""How long a benchmark may take to end once it is interrupted."""


@dataclass(frozen=True)
class Measurement:
    """A benchmark with its arguments; `guess_s` seconds is what it took on two CPUs of one core."""

    name: str
    guess_s: int
    arguments: tuple[str, ...]

    @property
    def limit_s(self) -> float:
        """After which it is interrupted."""
        return 60 + 1.6 * self.guess_s


def _of(name: str, guess_s: int, arguments: str) -> Measurement:
    return Measurement(name, guess_s, tuple(arguments.split()))


MEASUREMENTS = (
    _of("table3", 960, "benchmarks.table3 --networks resnet50 --devices 2 4 6 8 10 --strategies "
        "auto vertical --cpu 0.08 --repetitions 2 --seconds 10 --minutes 20"),
    _of("table3-hybrid", 1500, "benchmarks.table3 --networks yolov2 vgg16 --devices 2 4 6 8 10 "
        "--strategies hybrid --repetitions 1 --seconds 6 --cpu 0.1 --minutes 32"),
    _of("table3-cpu", 840, "benchmarks.table3 --networks resnet50 --devices 2 4 6 8 10 "
        "--strategies auto vertical --board cpu --cpu 0.1 --repetitions 1 --seconds 8 "
        "--minutes 16"),
    _of("firing", 180, "benchmarks.limits firing --bytes 1024 100000 1000000"),
    _of("table3-memory", 270, "benchmarks.table3 --networks resnet50 --devices 2 4 10 --strategies "
        "auto:memory --repetitions 2 --seconds 3 --minutes 7"),
    _of("peers", 240, "benchmarks.peers --seconds 10"),
    _of("peers-squeezenet", 120, "benchmarks.peers --model onnx-wheel:squeezenet --board "
        "accelerator --seconds 6"),
    _of("steady", 80, "benchmarks.limits steady"),
    _of("memory_limit", 50, "benchmarks.memory_limit"),
    _of("journal", 250, "benchmarks.journal --rounds 3"),
    _of("streaming", 1860, "benchmarks.streaming --minutes 30"),
    _of("streaming-broker", 200, "benchmarks.streaming --minutes 2.5 --broker"),
    _of("streaming-source", 170, "benchmarks.streaming --minutes 2 --cut-source"),
    _of("many_agents", 110, "benchmarks.limits many"),
    _of("idle", 65, "benchmarks.limits idle"),
    _of("table3-strategies", 2100, "benchmarks.table3 --networks resnet50 yolov2 --devices 4 10 "
        "--strategies vertical-paper sequential-balanced horizontal tiles hybrid auto "
        "--repetitions 1 --seconds 5 --cpu 0.1 --minutes 35"),
    _of("service", 90, "benchmarks.service"),
    _of("chaos", 420, "benchmarks.chaos --repetitions 1"),
    _of("fuzz", 500, "tests.fuzz"),
)  # fmt: skip


def main() -> int:
    """Measure what there is time for; 1 if something that was begun has no result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.session",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [one.name for one in MEASUREMENTS]
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--folder", type=Path, default=Path("build/session"))
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--list", action="store_true", help="what would be measured, and how long")
    options = parser.parse_args()
    chosen = [one for one in MEASUREMENTS if options.only is None or one.name in options.only]
    if options.list:
        print("\n".join(listed(chosen)))
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    (options.folder / "log").mkdir(parents=True, exist_ok=True)
    until_s, failed = time.monotonic() + 60 * options.minutes, []
    for one in chosen:
        file = options.folder / f"{one.name}.json"
        left_s = until_s - time.monotonic()
        if is_there(file):
            said = "is there already"
        elif one.guess_s > left_s:
            said = f"left out: it takes {one.guess_s} s, and {max(0.0, left_s):.0f} are left"
        else:
            began_s = time.monotonic()
            code = measure(one, file)
            said = f"{time.monotonic() - began_s:.0f} s (guessed: {one.guess_s}), exit code {code}"
            if not is_there(file):
                failed.append(one.name)
                said += f": NO RESULT, see {options.folder}/log/{one.name}.txt"
        print(f"{time.strftime('%H:%M:%S')} {one.name}: {said}", flush=True)
    return 1 if failed else 0


def listed(chosen: Sequence[Measurement]) -> list[str]:
    """A line for each, with the sum of minutes up to it."""
    lines, sum_s = [], 0
    for one in chosen:
        sum_s += one.guess_s
        command = " ".join(("python", "-m", *one.arguments))
        lines.append(f"{one.name:18}{one.guess_s:5} s{sum_s / 60:6.1f} min  {command}")
    return lines


def is_there(file: Path) -> bool:
    """Whether it holds an object."""
    try:
        return isinstance(json.loads(file.read_text("utf-8")), dict)
    except (OSError, ValueError):
        return False


def measure(one: Measurement, file: Path) -> int:
    """Its exit code. Figures that miss what was asked are a result as well."""
    folder, part = file.parent / "log", file.with_suffix(".part")
    if one.arguments[0] == "benchmarks.table3":  # writes its file itself, from a log
        log = folder / f"{one.name}.jsonl"
        files: tuple[str, ...] = ("--resume", "--log", str(log), "--output", str(file))
    else:
        files = ("--json",)
    command = (sys.executable, "-m", *one.arguments, *files)
    with (folder / f"{one.name}.txt").open("wb") as said, part.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=said)
        try:
            process.wait(timeout=one.limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            _end(process)
            if isinstance(error, KeyboardInterrupt):
                raise
    if is_there(part):
        part.rename(file)
    else:
        part.unlink()
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt it, as Ctrl-C does, so that it removes what it made."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
