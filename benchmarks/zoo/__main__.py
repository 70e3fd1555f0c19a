"""What becomes of the zoo's networks: `python -m benchmarks.zoo [NAME …] [--launch STRATEGY …]`.

Each is read and simplified, and the result computes what the original does by ONNX Runtime, on
noise of several sizes, on black and on white frames; or it is refused in the words that `registry`
has. With `--launch` each also runs over three nodes of this machine and is compared there. Networks
that are not exported yet are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

import cnn
from benchmarks.agreement import LIMIT
from benchmarks.zoo.cache import file_of
from benchmarks.zoo.registry import Entry, chosen

_SCALES = (1.0, 100.0, 0.01)
_FLOOR = 1e-6
"""Differences below it are none: of a detector that sees nothing, all results are about 0."""

_LONGEST_S = 600
_NODES = 3
_REFUSED, _AGREES = "refused as expected", "agrees"


@dataclass(frozen=True)
class Outcome:
    """What became of one network, in words; `error` is relative to the largest value."""

    name: str
    what: str
    layers: int = 0
    seconds: float = 0.0
    error: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether that is as it should be."""
        return self.what in (_REFUSED, _AGREES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--launch", nargs="*", default=[], metavar="STRATEGY")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    entries = chosen(arguments.names)
    if arguments.one:
        print(json.dumps(asdict(_read(entries[0]))))
        return 0
    there = [entry for entry in entries if file_of(entry.name).exists()]
    bad = 0
    for entry in there:
        outcomes = [_in_own_process(entry)]
        if outcomes[0].what == _AGREES:
            outcomes += [_launched(entry, strategy) for strategy in arguments.launch]
        for found in outcomes:
            bad += not found.is_good
            print(
                f"{found.name:34} {found.layers:5} layers {found.seconds:5.1f} s "
                f"{found.error:8.1e}  {found.what}",
                flush=True,
            )
    missing = [entry.name for entry in entries if entry not in there]
    print(
        f"{len(there)} networks, {bad} not as expected; not exported: {', '.join(missing) or '-'}"
    )
    return min(bad, 1)


def _in_own_process(entry: Entry) -> Outcome:
    command = [sys.executable, "-m", "benchmarks.zoo", "--one", entry.name]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(entry.name, f"not read after {_LONGEST_S} s")
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        return Outcome(entry.name, reason)
    return Outcome(**json.loads(ended.stdout.splitlines()[-1]))


def _read(entry: Entry) -> Outcome:
    """Read the network and compare it with its original."""
    began = time.monotonic()
    try:
        model = cnn.read(
            file_of(entry.name),
            input_shapes=entry.input_shapes,
            inputs=entry.inputs,
            outputs=entry.outputs,
        )
    except cnn.ModelError as error:
        is_expected = bool(entry.refused) and entry.refused in str(error)
        return Outcome(entry.name, _REFUSED if is_expected else f"refused: {error}")
    seconds = time.monotonic() - began
    network = model.network
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        whole = _session(model.cut(network.layer, network.inputs, network.outputs, path).graph)
        original = _session(model.write_original(path))
    worst = 0.0
    for frame in _frames(network):
        made = dict(zip(network.outputs, whole.run(None, frame), strict=True))
        results = {**model.constant_outputs, **made}
        names = [output.name for output in original.get_outputs()]
        for name, wanted in zip(names, original.run(None, frame), strict=True):
            worst = max(worst, _relative(results[name], wanted))
    what = _AGREES if worst <= LIMIT else "differs from its original"
    if entry.refused:
        what = "runs, though it was expected to be refused"
    return Outcome(entry.name, what, len(network.layers), seconds, worst)


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _frames(network: cnn.Network) -> list[dict[str, np.ndarray]]:
    """Noise of several sizes, black and white; small whole numbers where inputs are integers."""
    generator = np.random.default_rng(0)
    found = []
    for make in (*(lambda shape, s=s: generator.standard_normal(shape) * s for s in _SCALES),
                 np.zeros, np.ones):  # fmt: skip
        frame = {}
        for name in network.inputs:
            tensor = network.tensors[name]
            values = make(tensor.shape)
            if np.dtype(tensor.dtype).kind != "f":
                values = np.abs(values) % 2
            frame[name] = np.asarray(values, tensor.dtype)
        found.append(frame)
    return found


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    one, other = (np.nan_to_num(x.astype(np.float64)) for x in (found, wanted))
    difference = float(np.abs(one - other).max(initial=0.0))
    scale = float(np.abs(other).max(initial=0.0))
    return difference / max(scale, _FLOOR / LIMIT)


def _launched(entry: Entry, strategy: str) -> Outcome:
    """Run the network over nodes of this machine."""
    shapes = entry.input_shapes
    plain = {k: list(v) for k, v in shapes.items()} if isinstance(shapes, dict) else shapes
    model: dict[str, object] = {"path": str(file_of(entry.name))}
    if plain:
        model["input_shape"] = plain
    if entry.inputs:
        model["inputs"] = dict(entry.inputs)
    if entry.outputs:
        model["outputs"] = list(entry.outputs)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        nodes = [{"name": f"n{number}"} for number in range(_NODES)]
        cluster = {"model": model, "nodes": nodes, "input": "random", "frames": 6}
        file = Path(folder) / "cluster.yaml"
        file.write_text(json.dumps({**cluster, "strategy": strategy}))
        command = [str(Path(sys.executable).parent / "launch"), str(file)]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=_LONGEST_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(f"  {strategy}", f"not done after {_LONGEST_S} s")
    said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
    what = _AGREES if ended.returncode == 0 else f"exit code {ended.returncode}: {said[-3:]}"
    return Outcome(f"  {strategy}", what, seconds=time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
