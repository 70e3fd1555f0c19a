"""Runs subnets with Apache TVM: each is compiled once, in a child process, into a shared library.

A library is code. It is compiled by this machine from an ONNX file that was examined, and loaded
only from the agent's own cache (`nodes.executors.tvm.compiled.check_owner`); none is received.

A run that has begun cannot be interrupted. Libraries stay in the process until no subnet is loaded,
because their users would otherwise have to be counted: the system loads a file only once.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodes.cache.room import FileIdentity, Room, identity_of
from nodes.executors.base import BasicSubnet, ExecutorError, LoadOptions
from nodes.executors.onnx.file import inspect
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.executor import PreparingExecutor
from nodes.executors.tvm.compiled import LIBRARY, library_key
from nodes.executors.tvm.runtime import (
    LoadedLibrary,
    free_pools,
    load_runtime,
    open_library,
    version,
)
from nodes.host.heap import give_back_free_memory
from nodes.host.processor import processor_kind
from nodes.protocol.payload import Array


class TvmExecutor(PreparingExecutor):
    """TVM on this machine's CPU, keeping compiled subnets under `cache`."""

    def __init__(self, cache: Path, room: Room | None = None) -> None:
        """Load TVM's runtime; `room` bounds the cache if given.

        Raises ExecutorError if TVM is not installed.
        """
        load_runtime()
        self._version = version()
        super().__init__("tvm", "nodes.executors.tvm.build:build", PreparedFiles(cache, room))
        self._libraries: dict[FileIdentity, Any] = {}
        self._loaded: set[TvmSubnet] = set()

    def describe(self) -> str:
        """Return the engine's name, its version and where it computes."""
        return f"TVM {self._version} (CPU, {platform.machine()})"

    def load(self, graph: Path, options: LoadOptions) -> TvmSubnet:
        """Load a subnet, compiling it first if the cache lacks it."""
        job = self.job(graph, options)
        loaded = self._load_prepared(job, options)
        if loaded is None:
            self.build_anew(job, options)
            loaded = self._load_prepared(job, options)
        if loaded is None:
            raise ExecutorError(
                f"subnet {job.subnet}: TVM {self._version} cannot load what it has just compiled "
                f"under {self._cache.root}; check that the disk is sound and not mounted `noexec`"
            )
        subnet = TvmSubnet(self, job.subnet, loaded)
        self._loaded.add(subnet)
        return subnet

    def job(self, graph: Path, options: LoadOptions) -> Job:
        """See `PreparingExecutor.job`."""
        file = inspect(graph)
        if file.contrib_layer:
            raise ExecutorError(
                f"subnet {file.name}: layer {file.contrib_layer} is an operator that ONNX "
                "Runtime has and TVM does not; pin the layer to a node that runs ONNX Runtime"
            )
        key = library_key(file.digest, self._version, processor_kind(), options)
        return Job(file.path, file.name, key, source_bytes=file.size_bytes)

    def _load_prepared(self, job: Job, options: LoadOptions) -> LoadedLibrary | None:
        """Load an entry of the cache; None if there is none or it is unusable."""
        entry = self._cache.find(job.key)
        if entry is None:
            return None
        try:
            file = identity_of((entry / LIBRARY).stat())
            if file not in self._libraries:
                self._libraries[file] = open_library(entry)
            return LoadedLibrary(self._libraries[file], entry, options.threads)
        except (OSError, ValueError, RuntimeError, AttributeError):
            return None


class TvmSubnet(BasicSubnet):
    """A compiled subnet with buffers for its inputs."""

    def __init__(self, executor: TvmExecutor, name: str, library: LoadedLibrary) -> None:
        super().__init__(name, library.tensors.inputs, library.tensors.outputs)
        self._executor = executor
        self._library: LoadedLibrary | None = library

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs; see `LoadedSubnet.run`."""
        library = self._library
        if library is None:
            raise self._closed()
        if self._executor.is_interrupted:
            raise ExecutorError(f"subnet {self._name}: its run was stopped")
        arrays = self._check.arrays(inputs)
        outputs = self._allocator.allocate()
        try:
            library.run(arrays, outputs)
        except Exception as error:  # errors of TVM's share no base below Exception
            raise ExecutorError(
                f"subnet {self._name}: TVM {self._executor._version} cannot run it: "
                f"{' '.join(str(error).split())}"
            ) from error
        return outputs

    def close(self) -> None:
        """Free the buffers; closing the last subnet also frees the memory that all shared."""
        if self._library is None:
            return
        self._library = None
        executor = self._executor
        executor._loaded.discard(self)
        if not executor._loaded:
            executor._libraries.clear()
            free_pools()
            give_back_free_memory()
