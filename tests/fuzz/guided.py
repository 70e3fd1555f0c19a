"""One reader under a fuzzer that is guided by coverage: Atheris, which is libFuzzer for Python.

`python -m tests.fuzz.guided NAME --inputs N --out FOLDER` feeds one reader and leaves in FOLDER
`told.json` and what was found; `python -m tests.fuzz` starts it for each reader. A process of its
own, because libFuzzer owns the process that it runs in, and so that what one reader leaves in
memory is not counted for the next.

What breaks a reader is kept once per place where it breaks, and the fuzzer goes on. A process that
dies, or that holds more than `GROWTH_BYTES` beyond what it held at first, is a finding as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

import atheris

OURS = ("cnn", "csdf", "launcher", "nodes", "partition")
THEIRS = ("yaml", "json", "google.protobuf.message", "PIL", "zipfile")
"""Readers in Python that ours rest upon."""

SLOW_S = 2.0
"""Processor seconds that no input may take."""

GROWTH_BYTES = 256 << 20
"""What reading may take beyond what the process holds when it begins; libFuzzer's own is in it."""

LONGEST = 4096
"""Bytes of an input."""

OWN_MUTATIONS = 0.5
"""Inputs that are changed by what knows their form; libFuzzer changes the others."""


class Feed:
    """What libFuzzer calls: one input after another, until there were enough."""

    def __init__(self, read: Callable[[bytes], bool], inputs: int, out: Path) -> None:
        self._read, self._inputs, self._out = read, inputs, out
        self._count = self._good = 0
        self._found: dict[str, str] = {}
        self._began_s = time.monotonic()
        self._held_bytes = _held_bytes()

    def __call__(self, data: bytes) -> None:
        began_s = time.process_time()
        try:
            self._good += self._read(data)
            took_s = time.process_time() - began_s
            if took_s > SLOW_S:
                raise AssertionError(f"it took {took_s:.1f} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            self._keep(data, error)
        self._count += 1
        if self._count == self._inputs:
            self._tell()
            sys.stderr.flush()
            os._exit(0)  # libFuzzer would continue

    def _keep(self, data: bytes, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{type(error).__name__} at {frames[-1].filename}:{frames[-1].lineno}"
        if place in self._found:
            return
        name = f"found-{hashlib.sha256(data).hexdigest()[:16]}"
        (self._out / name).write_bytes(data)
        text = "".join(traceback.format_exception(error)[-6:])
        (self._out / f"{name}.txt").write_text(text, errors="replace")
        self._found[place] = name

    def _tell(self) -> None:
        told = {
            "inputs": self._count,
            "good": self._good,
            "seconds": time.monotonic() - self._began_s,
            "grown_bytes": max(0, _peak_bytes() - self._held_bytes),
            "found": self._found,
        }
        (self._out / "told.json").write_text(json.dumps(told))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with atheris.instrument_imports(include=[*OURS, *THEIRS]):
        from tests.fuzz.targets import Files  # noqa: PLC0415 - instrumented on import
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=memory if memory.is_dir() else None
    ) as folder:
        target = Files(Path(folder)).targets()[options.name]
        corpus = options.out / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(target.seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
            assert target.read(seed) or options.name == "agent"
        seeds = target.seeds
        bound = (_held_bytes() + GROWTH_BYTES) >> 20

        def change(data: bytes, most: int, seed: int) -> bytes:
            random = Random(seed)
            if random.random() >= OWN_MUTATIONS:
                return bytes(atheris.Mutate(data, most))
            try:
                return target.change((data,) if random.random() < 0.7 else seeds, random)[:most]
            except Exception:  # noqa: BLE001 - `data` need not have the form of a seed
                return bytes(atheris.Mutate(data, most))

        arguments = [
            *(sys.argv[0], str(corpus), f"-max_len={LONGEST}", "-len_control=0"),
            *(f"-seed={options.seed}", f"-rss_limit_mb={bound}", "-timeout=20"),
            f"-artifact_prefix={options.out}/died-",
        ]
        feed = Feed(target.read, options.inputs, options.out)
        atheris.Setup(arguments, feed, custom_mutator=change)
        atheris.Fuzz()


def _held_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
