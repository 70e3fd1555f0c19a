"""`make fuzz`: feeds bad inputs to every reader, many and for long: `python -m tests.fuzz --help`.

Each input comes from a seed of its own, so whatever is found is repeated by that seed alone. Ends
with exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

from tests.fuzz.targets import Files, Target

SLOW_S = 2.0
"""Processor seconds that no input may take."""

MEMORY_BYTES = 1 << 30
"""Address space that reading may add to what is there when it begins."""


def fuzz(target: Target, name: str, inputs: int, first_seed: int = 0) -> tuple[int, list[int]]:
    """Feed so many inputs; how many were taken for good, and the seeds of those that broke it."""
    good, found = 0, []
    for seed in range(first_seed, first_seed + inputs):
        began_s = time.process_time()
        try:
            good += target(Random(f"{name} {seed}"))
            if time.process_time() - began_s > SLOW_S:
                raise AssertionError(f"it took {time.process_time() - began_s:.1f} s")
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            found.append(seed)
            sys.stderr.write(f"{name}, seed {seed}:\n{traceback.format_exc()}\n")
    return good, found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split(":")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all (default: 10^6)")
    parser.add_argument("--seed", type=int, default=0, help="of the first input (default: 0)")
    parser.add_argument("--only", help="one target only")
    options = parser.parse_args()
    _bound_memory()
    failed = False
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=memory if memory.is_dir() else None
    ) as folder:
        targets = Files(Path(folder)).targets()
        chosen = {name: t for name, t in targets.items() if options.only in (None, name)}
        shares = {name: WEIGHTS.get(name, 1) for name in chosen}
        for name, target in chosen.items():
            inputs = options.inputs * shares[name] // sum(shares.values())
            began_s = time.monotonic()
            good, found = fuzz(target, name, inputs, options.seed)
            failed |= bool(found)
            sys.stdout.write(
                f"{name:13} {inputs:8} inputs, {good:7} taken for good, {len(found)} broke it, "
                f"{time.monotonic() - began_s:.0f} s\n"
            )
            sys.stdout.flush()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(f"peak memory {peak / 1e6:.0f} MB\n")
    return int(failed)


WEIGHTS = {"messages": 16, "agent": 2, "ONNX": 4}
"""Readers of what comes over the network get the most."""


def _bound_memory() -> None:
    """An input that would take more raises MemoryError, which is then found."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)


if __name__ == "__main__":
    sys.exit(main())
