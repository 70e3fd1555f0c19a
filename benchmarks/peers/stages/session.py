"""A part of the network in plain ONNX Runtime, as one opens it without thinking about memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Tensors: TypeAlias = Sequence[tuple[str, str, Sequence[int]]]
"""Name, dtype and shape of each tensor, in the order in which they travel."""

WARM_UP = 2
"""Runs before a stage is ready."""


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
