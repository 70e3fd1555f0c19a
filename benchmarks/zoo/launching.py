"""Launches the zoo's networks over three nodes of this machine, as a user does."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cnn
from benchmarks.programs import LAUNCH, finished
from benchmarks.zoo.frames import frames, write
from benchmarks.zoo.outcomes import AGREES, Outcome, Trial, refusal
from benchmarks.zoo.reading import model_of
from benchmarks.zoo.registry import Entry, file_of

NODES = 3


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
        ended = finished([*LAUNCH, "--json", str(file)], limit_s)
        outcome = replace(outcome, seconds=time.monotonic() - began)
        with suppress(ValueError, KeyError, TypeError):  # no report
            outcome = _reported(outcome, json.loads(ended.output))
        if ended.code is None:
            outcome = replace(outcome, what=f"not done after {limit_s:.0f} s")
        elif ended.code:
            last = outcome.what or ended.last_words
            outcome = replace(outcome, what=f"exit code {ended.code}: {last}")
        if not outcome.is_good:
            log.write_text(f"{file.read_text()}\n{ended.output}\n{ended.errors}", "utf-8")
            outcome = replace(outcome, log=str(log))
    return outcome


def settings(entry: Entry) -> dict[str, object]:
    """The section `model` of a `cluster.yaml`."""
    shapes = entry.input_shapes
    plain = {k: list(v) for k, v in shapes.items()} if isinstance(shapes, dict) else shapes
    given = {
        "input_shape": plain, "inputs": dict(entry.inputs), "outputs": list(entry.outputs),
        "state": dict(entry.state),
    }  # fmt: skip
    return {"path": str(file_of(entry.name))} | {key: x for key, x in given.items() if x}


def _reported(outcome: Outcome, report: dict[str, Any]) -> Outcome:
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
