"""What an engine must be able to do for an agent: prepare subnets, load them, run them.

An `Executor` is one engine on one machine, a `LoadedSubnet` one loaded ONNX model. Implementations
differ in how they keep memory low and where they compute; `tests/nodes/executors/conformance.py`
says what all of them promise.

Checks what a subnet is given, the same for every engine.

Whether this machine has a GPU that CUDA can use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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


class InputCheck:
    """Turns the mapping given to `Subnet.run` into arrays that an engine can read by pointer."""

    def __init__(self, subnet: str, specs: Mapping[str, TensorSpec]) -> None:
        self._subnet = subnet
        self._expected = tuple(
            (name, np.dtype(spec.dtype), spec.shape) for name, spec in specs.items()
        )

    def arrays(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The inputs in the model's order, C-contiguous and aligned to their elements.

        Arrays that are so already are returned themselves, others copied. Raises ExecutorError
        naming the subnet and the input if one is missing, unknown, or of another dtype or shape.
        """
        arrays = []
        for name, dtype, shape in self._expected:
            array = inputs.get(name)
            if array is None:
                raise ExecutorError(f'subnet {self._subnet}: its input "{name}" is missing')
            if array.dtype != dtype or array.shape != shape:
                raise ExecutorError(
                    f'subnet {self._subnet}: its input "{name}" must be {dtype}{list(shape)}, '
                    f"not {array.dtype}{list(array.shape)}"
                )
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                array = np.array(array, order="C")
            arrays.append(array)
        if len(inputs) != len(arrays):
            known = {name for name, _, _ in self._expected}
            unknown = ", ".join(f'"{name}"' for name in inputs if name not in known)
            raise ExecutorError(
                f"subnet {self._subnet} has no input {unknown}; it takes "
                + ", ".join(f'"{name}"' for name, _, _ in self._expected)
            )
        return arrays


class OutputAllocator:
    """Makes fresh output arrays, so that no run writes into what an earlier one returned; but for
    outputs that vary, whose size only the engine knows."""

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self._specs = tuple(
            (name, np.dtype(spec.dtype), spec.shape)
            for name, spec in specs.items()
            if not spec.varies
        )

    def allocate(self) -> dict[str, Array]:
        """One uninitialised C-contiguous array per output, in the model's order."""
        return {name: np.empty(shape, dtype) for name, dtype, shape in self._specs}


def address(array: Array) -> int:
    """Where the array's first element lies."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer


@cache
def cuda_devices() -> int:
    """The number of CUDA devices, asked of the driver itself; 0 without a driver.

    A package that can use a GPU says nothing about there being one.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
