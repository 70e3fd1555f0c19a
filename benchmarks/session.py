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
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.programs import ENDING_S

MEASUREMENTS: Mapping[str, tuple[int, str]] = {
    "table3": (960, "benchmarks.table3 --networks resnet50 --devices 2 4 6 8 10 --strategies "
        "auto vertical --cpu 0.08 --repetitions 2 --seconds 10 --minutes 20"),
    "table3-hybrid": (1500, "benchmarks.table3 --networks yolov2 vgg16 --devices 2 4 6 8 10 "
        "--strategies hybrid --repetitions 1 --seconds 6 --cpu 0.1 --minutes 32"),
    "table3-cpu": (840, "benchmarks.table3 --networks resnet50 --devices 2 4 6 8 10 "
        "--strategies auto vertical --board cpu --cpu 0.1 --repetitions 1 --seconds 8 "
        "--minutes 16"),
    "firing": (150, "benchmarks.limits firing"),
    "table3-memory": (270, "benchmarks.table3 --networks resnet50 --devices 2 4 10 --strategies "
        "auto:memory --repetitions 2 --seconds 3 --minutes 7"),
    "peers": (240, "benchmarks.peers --seconds 10"),
    "peers-squeezenet": (120, "benchmarks.peers --model onnx-wheel:squeezenet --board "
        "accelerator --seconds 6"),
    "steady": (80, "benchmarks.limits steady"),
    "memory_limit": (50, "benchmarks.memory_limit"),
    "journal": (250, "benchmarks.journal --rounds 3"),
    "streaming": (1860, "benchmarks.streaming --minutes 30"),
    "streaming-broker": (200, "benchmarks.streaming --minutes 2.5 --broker"),
    "streaming-source": (170, "benchmarks.streaming --minutes 2 --cut-source"),
    "many_agents": (110, "benchmarks.limits many"),
    "idle": (65, "benchmarks.limits idle"),
    "table3-strategies": (2100, "benchmarks.table3 --networks resnet50 yolov2 --devices 4 10 "
        "--strategies vertical-paper sequential-balanced horizontal tiles hybrid auto "
        "--repetitions 1 --seconds 5 --cpu 0.1 --minutes 35"),
    "service": (90, "benchmarks.service"),
    "chaos": (420, "benchmarks.chaos --repetitions 1"),
    "fuzz": (500, "tests.fuzz"),
}  # fmt: skip
"""Name → the seconds that it took on two CPUs of one core, and the benchmark with its arguments."""


def limit_s(guess_s: int) -> float:
    """After which a benchmark is interrupted that is expected to take `guess_s`."""
    return 60 + 1.6 * guess_s


def main() -> int:
    """Measure what there is time for; 1 if something that was begun has no result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.session",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = list(MEASUREMENTS)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--folder", type=Path, default=Path("build/session"))
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--list", action="store_true", help="what would be measured, and how long")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    until_s, sum_s, failed = time.monotonic() + 60 * options.minutes, 0, False
    for name in (name for name in names if name in options.only):
        guess_s, arguments = MEASUREMENTS[name]
        sum_s += guess_s
        if options.list:
            print(f"{name:18}{guess_s:5} s{sum_s / 60:6.1f} min  python -m {arguments}")
            continue
        file, left_s = options.folder / f"{name}.json", until_s - time.monotonic()
        if is_there(file):
            said = "is there already"
        elif guess_s > left_s:
            said = f"left out: it takes {guess_s} s, and {max(0.0, left_s):.0f} are left"
        else:
            began_s = time.monotonic()
            code = measure(shlex.split(arguments), file, limit_s(guess_s))
            said = f"{time.monotonic() - began_s:.0f} s (guessed: {guess_s}), exit code {code}"
            if not is_there(file):
                failed = True
                said += f": NO RESULT, see {options.folder}/log/{name}.txt"
        print(f"{time.strftime('%H:%M:%S')} {name}: {said}", flush=True)
    return int(failed)


def is_there(file: Path) -> bool:
    """Whether it holds an object."""
    try:
        return isinstance(json.loads(file.read_text("utf-8")), dict)
    except (OSError, ValueError):
        return False


def measure(arguments: list[str], file: Path, limit_s: float) -> int:
    """Its exit code. Figures that miss what was asked are a result as well."""
    folder, part = file.parent / "log", file.with_suffix(".part")
    folder.mkdir(parents=True, exist_ok=True)
    files = ["--json"]
    if arguments[0] == "benchmarks.table3":  # writes its file itself, from a log
        files = ["--resume", "--log", str(folder / f"{file.stem}.jsonl"), "--output", str(file)]
    command = (sys.executable, "-m", *arguments, *files)
    with (folder / f"{file.stem}.txt").open("wb") as said, part.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=said)
        try:
            process.wait(timeout=limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            process.send_signal(signal.SIGINT)  # so that it removes what it made
            try:
                process.wait(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if isinstance(error, KeyboardInterrupt):
                raise
    if is_there(part):
        part.rename(file)
    else:
        part.unlink()
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
