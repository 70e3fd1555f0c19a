"""Exports the zoo's networks that are missing: `python -m benchmarks.zoo.export [NAME …]`.

It needs a Python that has torch, torchvision, timm, ultralytics, keras, onnx, onnxscript,
onnxruntime and the wheels with trained networks; none of them is a dependency of this project.
Each network is made in a process of its own, because exporters change global state.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

from benchmarks.zoo.registry import chosen, file_of

_LONGEST_S = 900


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--here", action="store_true", help="in this process, with its traceback")
    arguments = parser.parse_args()
    failed = 0
    for entry in chosen(arguments.names):
        file = file_of(entry.name)
        if file.exists():
            continue
        if arguments.here:
            partial = file.with_name(f"partial-{file.name}")
            importlib.import_module(f"benchmarks.zoo.{entry.exporter}").export(entry, partial)
            _check(partial)
            partial.rename(file)
            continue
        command = [sys.executable, "-m", "benchmarks.zoo.export", "--here", entry.name]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=_LONGEST_S, check=False
            )
            reason = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
            worked = ended.returncode == 0
        except subprocess.TimeoutExpired:
            worked, reason = False, f"not done after {_LONGEST_S} s"
        failed += not worked
        print(f"{entry.name}: {'exported' if worked else reason}", flush=True)
    return min(failed, 1)


def _check(file: Path) -> None:
    """Put a network whose exporter wrote its weights beside it into one file."""
    import onnx  # noqa: PLC0415 - the checking Python reads this module too

    beside = file.with_name(file.name + ".data")
    if beside.exists():
        onnx.save(onnx.load(file), file)
        beside.unlink()


if __name__ == "__main__":
    sys.exit(main())
