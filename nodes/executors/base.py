"""What an engine must be able to do for an agent: prepare subnets, load them, run them.

An `Executor` is one engine on one machine, a `LoadedSubnet` one loaded ONNX model. Implementations
differ in how they keep memory low and where they compute; `tests/nodes/executors/conformance.py`
says what all of them promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from nodes.protocol.errors import NodeError

Array: TypeAlias = npt.NDArray[Any]


class ExecutorError(NodeError):
    """An engine cannot be had, or cannot load or run a subnet: which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to load a subnet.

    `threads` ≥ 1 compute one run. `fp16` lets engines that can compute in half precision
    (TensorRT); outputs then agree with the model to about 1e-2 instead of 1e-4.
    `workspace_bytes` bounds the scratch memory that TensorRT may use while it builds and runs.
    """

    threads: int = 1
    fp16: bool = False
    workspace_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ExecutorError(f"an executor needs at least one thread, not {self.threads}")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a subnet: NumPy's name of its dtype, and its shape. An output that
    varies has another shape in every run, and () here."""

    dtype: str
    shape: tuple[int, ...]
    varies: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of one such tensor; 0 where they vary."""
        if self.varies:
            return 0
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class LoadedSubnet(Protocol):
    """A loaded subnet. Not thread-safe: one run at a time per subnet; two subnets may overlap."""

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The model's inputs in its own order."""
        ...

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """The model's outputs in its own order."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs.

        `inputs` maps exactly the names of `self.inputs` to arrays of those dtypes and shapes, in
        any memory layout (C-contiguous is fastest; read-only is fine); they are not kept or
        changed. The returned arrays are C-contiguous and belong to the caller: no later run or
        `close` touches them, so they can be sent without a copy.

        Raises ExecutorError, naming the subnet and the tensor, if an input is missing, unknown or
        of another dtype or shape, or if the engine fails.
        """
        ...

    def close(self) -> None:
        """Give the memory back. Idempotent; `run` afterwards raises ExecutorError."""
        ...


OnPrepared: TypeAlias = Callable[[Path], None]
"""Called in the thread that called `prepare`, once per graph, in order, when it is ready."""


class Executor(Protocol):
    """An engine on this machine. An agent runs its subnets in the thread that loaded them."""

    def describe(self) -> str:
        """Name, version and where it computes, e.g. `ONNX Runtime 1.31.0 (CPU)`."""
        ...

    def prepare(
        self, graphs: Sequence[Path], options: LoadOptions, on_done: OnPrepared | None = None
    ) -> None:
        """Do the costly part of `load` for several graphs, outside this process where it helps.

        Blocks until all are done (call it from a thread of its own) and leaves the results in the
        cache directory. `load` works without it, by preparing that one graph itself. Raises
        ExecutorError, naming the graph, if one cannot be prepared.
        """
        ...

    def load(self, graph: Path, options: LoadOptions) -> LoadedSubnet:
        """Load an ONNX file, its external weights beside it.

        Raises ExecutorError, naming the file and the operator where the engine tells, if it is
        missing or broken or holds what the engine cannot compute.
        """
        ...

    def interrupt(self) -> None:
        """Make `prepare`, `load` and `run` raise ExecutorError soon, ending child processes.

        Holds until `resume`, also for calls that have yet to begin; from any thread, and returns at
        once. A run ends between two layers, or within one where the engine looks: not for sure.
        """
        ...

    def resume(self) -> None:
        """Subnets may be prepared, loaded and run again."""
        ...

    def close(self) -> None:
        """End child processes that still run. Subnets already loaded stay usable."""
        ...
