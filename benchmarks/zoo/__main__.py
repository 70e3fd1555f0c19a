"""Tests the zoo's networks: `python -m benchmarks.zoo [NAME …]`.

Each is read and simplified, and must compute what the original does in ONNX Runtime, or be refused
with the sentence in `registry`. With `--launch` it also runs over three nodes of this machine, and
results are compared by the rules of a launch. Small networks come first. Networks that are not
exported yet are named and omitted.

Outcomes are appended to a file, one JSON line each. Those of the same code that the file has
already are not repeated; failures leave a log beside the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.programs import finished
from benchmarks.turn_log import TurnLog
from benchmarks.zoo.outcomes import AGREES, Outcome, Trial, from_json, known
from benchmarks.zoo.registry import Entry, chosen, file_of, folder

STRATEGIES = ("auto", "vertical", "hybrid", "sequential")


def main() -> int:
    """Run all that is asked for; 1 if anything is not as expected."""
    arguments = _arguments()
    entries = chosen(arguments.names)
    if arguments.part:
        return _part(entries[0], arguments)
    there = [entry for entry in entries if file_of(entry.name).exists()]
    there.sort(key=lambda entry: file_of(entry.name).stat().st_size)
    log = known(arguments.outcomes or folder() / "outcomes.jsonl")
    bad = done = 0
    for entry in there:
        for outcome in _outcomes(entry, arguments, log):
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
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--launch", default=[], nargs="*", metavar="STRATEGY", choices=STRATEGIES,
        help="over nodes of this machine",
    )  # fmt: skip
    parser.add_argument("--limit-s", type=float, default=600.0, help="seconds for each trial")
    parser.add_argument("--outcomes", type=Path, help="file; in the zoo's folder by default")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _outcomes(
    entry: Entry, arguments: argparse.Namespace, log: TurnLog[Outcome]
) -> Iterator[Outcome]:
    """What becomes of one network; nothing is tried with one that cannot be read."""
    for trial in (Trial(entry.name), *(Trial(entry.name, name) for name in arguments.launch)):
        outcome = next((one for one in log.turns if one.trial == trial), None)
        if outcome is None:
            logs = log.path.parent / "logs"
            logs.mkdir(parents=True, exist_ok=True)
            file = logs / f"{trial.name} {trial.strategy or 'read'}.log"
            outcome = _made(trial, arguments.limit_s, file)
            log.add(outcome)
        yield outcome
        if not trial.strategy and outcome.what != AGREES:
            return


def _made(trial: Trial, limit_s: float, log: Path) -> Outcome:
    """Make a trial in a separate process, and return its outcome."""
    command = [
        sys.executable, "-m", "benchmarks.zoo", trial.name, "--part",
        "--limit-s", str(limit_s), "--outcomes", str(log),
        *(["--launch", trial.strategy] if trial.strategy else []),
    ]  # fmt: skip
    ended = finished(command, limit_s + 60)
    for line in ended.output.splitlines():
        if line.startswith("{"):
            return from_json(json.loads(line))
    log.write_text(ended.errors, "utf-8")
    if ended.code is None:
        return Outcome(trial, f"not done after {limit_s:.0f} s", log=str(log))
    what = "crashed" if ended.code >= 0 else f"died by signal {-ended.code}"
    return Outcome(trial, f"{what}: {ended.last_words}", log=str(log))


def _part(entry: Entry, arguments: argparse.Namespace) -> int:
    """Make a trial in this process, and print its line."""
    trial = Trial(entry.name, *arguments.launch)
    if trial.strategy:
        from benchmarks.zoo.launching import launched  # noqa: PLC0415 - the main process stays small

        found = launched(entry, trial, arguments.limit_s, arguments.outcomes)
    else:
        from benchmarks.zoo.reading import read  # noqa: PLC0415

        found = read(entry, trial)
    print(json.dumps(found.as_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
