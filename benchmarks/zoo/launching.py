"""Launches the zoo's networks over three nodes of this machine, as a user does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import cnn
from benchmarks.zoo.frames import frames, write
from benchmarks.zoo.in_process import NODES
from benchmarks.zoo.models import model_of, settings
from benchmarks.zoo.outcomes import AGREES, Outcome, Trial, refusal
from benchmarks.zoo.registry import Entry

_ENDING_S = 30.0
"""In which a launch that is interrupted ends its agents."""


def launched(entry: Entry, trial: Trial, limit_s: float, log: Path) -> Outcome:
    """Launch the network; `log` is written if that does not end well."""
    began = time.monotonic()
    try:
        network = model_of(entry).network
    except cnn.ModelError as error:
        return Outcome(trial, refusal(entry, str(error)))
    outcome = Outcome(trial, "", layers=len(network.layers))
    with tempfile.TemporaryDirectory() as folder:
        shown = write(frames(network), Path(folder))
        cluster = {
            "model": settings(entry),
            "nodes": [{"name": f"n{number}"} for number in range(NODES)],
            "input": [path.name for path in shown],
            "strategy": trial.strategy,
        }
        file = Path(folder) / "cluster.yaml"
        file.write_text(json.dumps(cluster))
        code, said, complaints = _run(file, Path(folder), limit_s)
        outcome = replace(outcome, seconds=time.monotonic() - began)
        report = _report(said)
        if report is not None:
            outcome = _reported(outcome, report)
        if code is None:
            outcome = replace(outcome, what=f"not done after {limit_s:.0f} s")
        elif code:
            last = outcome.what or " ".join(complaints.strip().splitlines()[-2:])
            outcome = replace(outcome, what=f"exit code {code}: {last}")
        if not outcome.is_good:
            log.write_text(f"{file.read_text()}\n{said}\n{complaints}", "utf-8")
            outcome = replace(outcome, log=str(log))
    return outcome


def _run(file: Path, folder: Path, limit_s: float) -> tuple[int | None, str, str]:
    """(exit code, None if it took too long; standard output; standard error)."""
    command = [str(Path(sys.executable).parent / "launch"), "--json", str(file)]
    said, complaints = folder / "said", folder / "complaints"
    with said.open("w") as output, complaints.open("w") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        code: int | None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return code, said.read_text(), complaints.read_text()


def _report(said: str) -> dict[str, object] | None:
    try:
        found = json.loads(said)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "nodes" in found else None


def _reported(outcome: Outcome, report: dict) -> Outcome:
    begins = (report.get("begins") or {}).get("sentence", "")
    used = [node for node in report["nodes"] if node["phases"]]
    return replace(
        outcome,
        what=AGREES if report["agrees"] else f"differs in {report['worst_output']!r}: {begins}",
        phases=sum(node["phases"] for node in used),
        nodes=len(used),
        error=report["max_relative_error"],
        allowed=report["tolerance"],
        rule=report["rule"] or "",
        memory_bytes=max(node["memory_measured_bytes"] for node in used),
    )
