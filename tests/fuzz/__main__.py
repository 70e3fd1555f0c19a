"""`make fuzz`: feeds bad inputs to every reader, many and for long: `python -m tests.fuzz --help`.

Guided by coverage (`tests.fuzz.guided`) where Atheris is installed (the extra `fuzz`): inputs that
led somewhere new in our code are changed further. Elsewhere, or with `--blind`, each input is made
from a good one by its own seed. Memory is bounded in both. What is found lies in `--out`, and
is read again by `--replay`. Ends with exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from benchmarks.report import Figure, print_json, report
from tests.fuzz.targets import Files, Target

SLOW_S = 2.0
"""Processor seconds that no input may take."""

MEMORY_BYTES = 1 << 30
"""Address space that reading may add to what is there when it begins, where nothing guides."""

INPUTS = 1_000_000


@dataclass(frozen=True)
class Told:
    """Of one reader. `edges` are those of our code that the seeds alone reach, and that all inputs
    reached; `grown_bytes` is what the process held at most beyond what it began with."""

    name: str
    inputs: int
    good: int
    seconds: float
    found: tuple[str, ...]
    grown_bytes: int = 0
    edges: tuple[int, int] | None = None
    kept: int = 0

    @property
    def inputs_per_s(self) -> float:
        return self.inputs / max(self.seconds, 1e-9)

    def line(self) -> str:
        edges = "" if self.edges is None else f"{self.edges[0]:6} →{self.edges[1]:6} edges, "
        return (
            f"{self.name:13}{self.inputs:8} inputs, {self.good:7} taken for good, {edges}"
            f"{self.inputs_per_s:7.0f}/s, {self.grown_bytes / 1e6:4.0f} MB, "
            f"{len(self.found)} broke it"
        )


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


def blind(target: Target, name: str, inputs: int, seed: int) -> Told:
    """In this process, from seeds."""
    began_s, peak_bytes = time.monotonic(), _peak_bytes()
    good, found = fuzz(target, name, inputs, seed)
    seconds = time.monotonic() - began_s
    told = tuple(f"seed {seed}" for seed in found)
    return Told(name, inputs, good, seconds, told, _peak_bytes() - peak_bytes)


def guided(name: str, inputs: int, seed: int, out: Path) -> Told:
    """In its own process, under Atheris."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / "log.txt"
    command = (sys.executable, "-m", "tests.fuzz.guided", name, "--inputs", str(inputs))
    with log.open("wb") as file:
        began_s = time.monotonic()
        subprocess.run(
            (*command, "--seed", str(seed + 1), "--out", str(out)), stderr=file, stdout=file,
            check=False,
        )  # fmt: skip
    edges = [int(n) for n in re.findall(r"\bcov: (\d+)", log.read_text("utf-8", "replace"))]
    ends = (edges[0], edges[-1]) if edges else None
    died = tuple(sorted(path.name for path in out.glob("died-*")))
    kept = len(list((out / "corpus").glob("*")))
    try:
        told = json.loads((out / "told.json").read_text())
    except FileNotFoundError:  # it died
        seconds = time.monotonic() - began_s
        return Told(name, 0, 0, seconds, died or (f"it died, see {log}",), 0, ends, kept)
    found = (*(f"{name}: {place}" for place, name in told["found"].items()), *died)
    grown = told["grown_bytes"]
    return Told(name, told["inputs"], told["good"], told["seconds"], found, grown, ends, kept)


def figures(every: list[Told]) -> list[Figure]:
    """For the table of results."""
    rows = [
        Figure("inputs", sum(one.inputs for one in every), at_least=INPUTS),
        Figure("that broke a reader", sum(len(one.found) for one in every), at_most=0),
        Figure("memory beyond the start", round(max(o.grown_bytes for o in every) / 1e6), "MB",
               at_most=268, note="of the reader that took most, the fuzzer's own included"),
    ]  # fmt: skip
    for one in every:
        edges = "" if one.edges is None else f"edges {one.edges[0]} → {one.edges[1]}"
        rows.append(Figure(one.name, round(one.inputs_per_s), "inputs/s", note=edges))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split(":")[0])
    parser.add_argument("--inputs", type=int, default=INPUTS, help="in all (default: 10^6)")
    parser.add_argument("--seed", type=int, default=0, help="of the first input (default: 0)")
    parser.add_argument("--only", help="one reader only")
    parser.add_argument("--blind", action="store_true", help="from seeds, without coverage")
    parser.add_argument("--out", type=Path, help="folder for what is found and for the corpus")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="read this with --only NAME")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    has_guide = importlib.util.find_spec("atheris") is not None and not options.blind
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=memory if memory.is_dir() else None
    ) as folder:
        targets = Files(Path(folder)).targets()
        chosen = {name: t for name, t in targets.items() if options.only in (None, name)}
        if not chosen:
            parser.error(f"--only {options.only}: the readers are {', '.join(targets)}")
        if options.replay is not None:
            return _replay(chosen, options.replay)
        if not has_guide:
            _bound_memory()
        out = options.out or Path(tempfile.mkdtemp(prefix="fuzz-"))
        every = []
        shares = sum(target.share for target in chosen.values())
        for name, target in chosen.items():
            inputs = -(-options.inputs * target.share // shares)
            if has_guide:
                every.append(guided(name, inputs, options.seed, out / name))
            else:
                every.append(blind(target, name, inputs, options.seed))
            sys.stderr.write(every[-1].line() + "\n")
            sys.stderr.flush()
    found = [line for one in every for line in one.found]
    if found:
        sys.stderr.write("\n".join((f"in {out}:", *found)) + "\n")
    if options.json:
        how = "guided by coverage (Atheris)" if has_guide else "mutations from seeds"
        data = {one.name: asdict(one) for one in every}
        notes = [
            "Inputs to every reader of what comes from outside; what breaks one is an exception "
            f"that is not its own, more than {SLOW_S:g} s, or more memory than the bound."
        ]
        settings = {"how": how, "seed": options.seed}
        print_json(report("fuzz", "Bad bytes", figures(every), settings=settings, notes=notes,
                          data=data))  # fmt: skip
    return int(bool(found))


def _replay(chosen: Mapping[str, Target], file: Path) -> int:
    for name, target in chosen.items():
        sys.stdout.write(f"{name}: {'good' if target.read(file.read_bytes()) else 'refused'}\n")
    return 0


def _bound_memory() -> None:
    """An input that would take more raises MemoryError, which is then found."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
