"""What the stages share: a part of the network in plain ONNX Runtime, frames, and messages.

The session is opened as one does without thinking about memory. The frame that everybody computes,
and the results it must give, lie as files beside the chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Tensors: TypeAlias = Sequence[tuple[str, str, Sequence[int]]]
"""Name, dtype and shape of each tensor, in the order in which they travel."""

FRAME, RESULTS = "frame.npz", "results.npz"
WARM_UP = 2
"""Runs before a stage is ready."""


def save(folder: Path, frame: Sequence[Array], results: Sequence[Array]) -> None:
    """Save both in the order in which they travel."""
    np.savez(folder / FRAME, *frame)
    np.savez(folder / RESULTS, *results)


def read_frame(folder: Path) -> list[Array]:
    """Arrays of the network's inputs."""
    return _arrays(folder / FRAME)


def read_results(folder: Path) -> list[Array]:
    """What the whole network makes of the frame."""
    return _arrays(folder / RESULTS)


def _arrays(path: Path) -> list[Array]:
    with np.load(path) as file:
        return [file[f"arr_{number}"] for number in range(len(file.files))]


def packed(arrays: Sequence[Array]) -> list[Any]:
    """A message of a JSON header and the tensors' bytes, as in pyzmq's documentation."""
    header = [(str(array.dtype), array.shape) for array in arrays]
    return [json.dumps(header).encode(), *arrays]


def unpacked(message: Iterable[Any]) -> list[Array]:
    """The arrays of a message, without copies."""
    first, *parts = message
    return [
        np.frombuffer(part.buffer, dtype).reshape(shape)
        for part, (dtype, shape) in zip(parts, json.loads(first.bytes), strict=True)
    ]


def read_stage(chain: Path, number: int) -> tuple[Path, Tensors, Tensors]:
    """Graph, inputs and outputs of a stage; see `benchmarks.peers.chain.Chain.write`."""
    stage = json.loads(chain.read_text("utf-8"))[number]
    return Path(stage["graph"]), stage["inputs"], stage["outputs"]


def open_session(
    graph: Path, inputs: Tensors, outputs: Tensors
) -> Callable[[Sequence[Array]], list[Array]]:
    """Arrays of the inputs → arrays of the outputs, in one thread. Warmed up."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    names = [name for name, _, _ in inputs]
    wanted = [name for name, _, _ in outputs]

    def compute(arrays: Sequence[Array]) -> list[Array]:
        results: list[Array] = session.run(wanted, dict(zip(names, arrays, strict=True)))
        return results

    for _ in range(WARM_UP):
        compute([np.zeros(shape, dtype) for _, dtype, shape in inputs])
    return compute
