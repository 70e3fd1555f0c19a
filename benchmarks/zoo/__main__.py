"""Tests the zoo's networks: `python -m benchmarks.zoo [NAME …]`.

Each is read and simplified, and must compute what the original does in ONNX Runtime, or be refused
with the sentence in `registry`. With `--in-process` each is also planned for three devices, cut,
and run phase by phase in one process; with `--launch` it runs over three nodes of this machine.
Both compare results by the rules of a launch. Small networks come first. Networks that are not
exported yet are named and omitted.

Outcomes are appended to a file, one JSON line each. Those of the same commit that the file has
already are not repeated; failures leave a log beside the file.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.zoo.cache import file_of, folder
from benchmarks.zoo.outcomes import Ledger, Outcome, Trial, as_line, from_line
from benchmarks.zoo.registry import Entry, chosen

STRATEGIES = ("auto", "vertical", "hybrid", "sequential")


def main() -> int:
    """Run all that is asked for; 1 if anything is not as expected."""
    arguments = _arguments()
    entries = chosen(arguments.names)
    if arguments.part:
        return _part(entries[0], arguments)
    there = [entry for entry in entries if file_of(entry.name).exists()]
    there.sort(key=lambda entry: file_of(entry.name).stat().st_size)
    ledger = Ledger(arguments.outcomes or folder() / "outcomes.jsonl")
    bad = done = 0
    for entry in there:
        for outcome in _outcomes(entry, arguments, ledger):
            done += 1
            bad += not outcome.is_good
            print(outcome, flush=True)
    missing = [entry.name for entry in entries if entry not in there]
    print(
        f"{len(there)} networks, {done} trials, {bad} not as expected; "
        f"not exported: {', '.join(missing) or '-'}"
    )
    return min(bad, 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    strategies = {"nargs": "*", "metavar": "STRATEGY", "choices": STRATEGIES}
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--launch", default=[], **strategies, help="over nodes of this machine")
    parser.add_argument("--in-process", default=[], **strategies, help="phase by phase, here")
    parser.add_argument("--limit-s", type=float, default=600.0, help="seconds for each trial")
    parser.add_argument("--outcomes", type=Path, help="file; in the zoo's folder by default")
    parser.add_argument(
        "--part", choices=("read", "in-process", "launched"), help=argparse.SUPPRESS
    )
    return parser.parse_args()


def _outcomes(entry: Entry, arguments: argparse.Namespace, ledger: Ledger) -> Iterator[Outcome]:
    """What becomes of one network; nothing is tried with one that cannot be read."""
    first = [Trial(entry.name, "read")]
    second = [Trial(entry.name, "in-process", name) for name in arguments.in_process]
    third = [Trial(entry.name, "launched", name) for name in arguments.launch]
    for trials in (first, second, third):
        is_good = True
        for outcome in _tried(trials, arguments.limit_s, ledger):
            yield outcome
            is_good &= outcome.what == "agrees"
        if trials is first and not is_good:
            return


def _tried(trials: Sequence[Trial], limit_s: float, ledger: Ledger) -> Iterator[Outcome]:
    """Known outcomes, and those of trials that are made now, in processes of their own."""
    open_trials = []
    for trial in trials:
        known = ledger.find(trial)
        if known is None:
            open_trials.append(trial)
        else:
            yield known
    while open_trials:
        for outcome in _made(open_trials, limit_s, ledger):
            ledger.add(outcome)
            open_trials.remove(outcome.trial)
            yield outcome


def _made(trials: Sequence[Trial], limit_s: float, ledger: Ledger) -> list[Outcome]:
    """Outcomes of one process: at least that of the first trial."""
    first = trials[0]
    together = trials if first.way == "in-process" else trials[:1]
    strategies = [trial.strategy for trial in together if trial.strategy]
    command = [
        sys.executable, "-m", "benchmarks.zoo", first.name, "--part", first.way,
        "--limit-s", str(limit_s), "--outcomes", str(ledger.log_of(first)),
        *(["--launch", *strategies] if strategies else []),
    ]  # fmt: skip
    reason = ""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(command, stdout=said, stderr=complaints, start_new_session=True)
        try:
            process.wait(len(together) * limit_s + 60)
        except subprocess.TimeoutExpired:
            reason = f"not done after {limit_s:.0f} s"
        finally:  # with a launch that it has started
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        complaints.seek(0)
        found = [from_line(line)[0] for line in said.read().splitlines() if line.startswith("{")]
        complaint = complaints.read()
    if len(found) < len(together):
        code = process.returncode
        reason = reason or (complaint.strip().splitlines() or [""])[-1]
        what = f"crashed: {reason}" if code >= 0 else f"died by signal {-code}: {reason}"
        log = ledger.log_of(together[len(found)])
        log.write_text(complaint, "utf-8")
        found.append(Outcome(together[len(found)], what, log=str(log)))
    return found


def _part(entry: Entry, arguments: argparse.Namespace) -> int:
    """What a process of its own does: print a line for each trial."""
    if arguments.part == "read":
        from benchmarks.zoo.reading import read  # noqa: PLC0415 - the main process stays small

        print(as_line(read(entry, Trial(entry.name, "read"))))
    elif arguments.part == "launched":
        from benchmarks.zoo.launching import launched  # noqa: PLC0415

        trial = Trial(entry.name, "launched", arguments.launch[0])
        print(as_line(launched(entry, trial, arguments.limit_s, arguments.outcomes)))
    else:
        from benchmarks.zoo.in_process import try_strategies  # noqa: PLC0415

        with tempfile.TemporaryDirectory() as place:
            for outcome in try_strategies(entry, arguments.launch, Path(place)):
                print(as_line(outcome), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
