"""Loads libraries that TVM has compiled, and runs them, with TVM's runtime alone.

An agent loads TVM's runtime of 3 MB and not its compiler of 260 MB. The package `tvm` imports both,
so this module loads the runtime's library itself and uses it through the package `tvm_ffi`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Mapping
from functools import cache as memoised
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.synthetic_inputs import synthetic_inputs
from nodes.executors.tvm.compiled import (
    LIBRARY,
    WEIGHTS,
    CompiledTensors,
    aligned_array,
    check_owner,
)
from nodes.protocol.payload import Array

_VERSION = re.compile(r"""^__version__ = (?:version = )?['"]([^'"]+)['"]""", re.MULTILINE)

_CPU, _POOLED = 1, 2
"""DLPack's number of CPUs, and TVM's number of the allocator that keeps what is freed."""


@memoised
def load_runtime() -> Any:
    """Return the module `tvm_ffi`, with TVM's runtime loaded; raises ExecutorError without TVM."""
    os.environ.setdefault("TVM_BIND_THREADS", "0")  # else each pool binds itself to the first CPUs
    try:
        import tvm_ffi  # noqa: PLC0415

        found = find_spec("tvm")
        places = found.submodule_search_locations if found is not None else None
        library = Path((places or [""])[0], "lib", "libtvm_runtime.so")
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except (ImportError, OSError) as error:
        raise ExecutorError(
            f"TVM cannot be used: its runtime cannot be loaded ({error}); "
            "`pip install --force-reinstall apache-tvm`"
        ) from error
    return tvm_ffi


def version() -> str:
    """Return the version of the package `apache-tvm`, without importing it.

    Raises ExecutorError if the package does not state it, since libraries are cached by it.
    """
    found = find_spec("tvm")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        text = Path(place, "_version.py").read_text("utf-8")
        if (stated := _VERSION.search(text)) is not None:
            return stated[1]
    raise ExecutorError("TVM cannot be used: it does not state its version; install it again")


def open_library(entry: Path) -> Any:
    """Load the library of a cache entry into this process.

    Raises ExecutorError if other users can write there, RuntimeError or OSError if it is broken.
    """
    check_owner(entry)
    return load_runtime().load_module(str(entry / LIBRARY), keep_module_alive=False)


class LoadedLibrary:
    """A library's function with its weights, its input buffers and its own virtual machine."""

    def __init__(self, library: Any, entry: Path, threads: int) -> None:
        ffi = load_runtime()
        self.tensors = CompiledTensors.read(entry)
        self._machine = library["vm_load_executable"]()
        self._machine["vm_initialization"](_CPU, 0, _POOLED)
        self._main = self._machine["main"]
        self._staged = [aligned_array(spec) for spec in self.tensors.inputs.values()]
        self._arguments = [
            ffi.from_dlpack(array) for array in (*self._staged, *_weights(entry, self.tensors))
        ]
        self._ffi = ffi
        self._threads = threads

    def run(self, inputs: list[Array], outputs: Mapping[str, Array]) -> None:
        """Compute all outputs from the inputs, both in the model's order."""
        for staged, array in zip(self._staged, inputs, strict=True):
            np.copyto(staged, array)
        use_threads(self._threads)
        result = self._main(*self._arguments)
        results = [result] if isinstance(result, self._ffi.Tensor) else list(result)
        for output, computed in zip(outputs.values(), results, strict=True):
            np.copyto(output, np.from_dlpack(computed))


def use_threads(threads: int) -> None:
    """Let kernels that this thread runs compute with `threads` threads."""
    load_runtime().get_global_func("runtime.config_threadpool")(1, threads)


def _weights(entry: Path, tensors: CompiledTensors) -> list[Array]:
    """Return the weights as pages of their file; writing to them would not change it."""
    if not tensors.weights:
        return []
    with (entry / WEIGHTS).open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return [
        np.frombuffer(
            content, weight.dtype, int(np.prod(weight.shape, dtype=np.int64)), weight.offset_bytes
        ).reshape(weight.shape)
        for weight in tensors.weights
    ]


def free_pools() -> None:
    """Return the memory that runs have left in TVM's pools to the heap."""
    load_runtime().get_global_func("vm.builtin.memory_manager.clear")()


def run_once(subnet: str, entry: Path, options: LoadOptions) -> None:
    """Run what was just compiled on synthetic inputs; raises ExecutorError if it fails."""
    tensors = CompiledTensors.read(entry)
    inputs = [*synthetic_inputs(tensors.inputs).values()]
    outputs = {name: np.empty(spec.shape, spec.dtype) for name, spec in tensors.outputs.items()}
    try:
        library = load_runtime().load_module(str(entry / LIBRARY))
        LoadedLibrary(library, entry, options.threads).run(inputs, outputs)
    except Exception as error:
        raise ExecutorError(
            f"subnet {subnet}: TVM {version()} has compiled it, but it does not run: "
            f"{' '.join(str(error).split())}; use another engine on this node"
        ) from error
