"""Runs subnets with TensorRT's Python API: engines are built once per device and share one stream.

**What has been run**: everything in `layout` (keys, dtypes, buffer layout, messages), on machines
without TensorRT. **What has not**: this module, `build` and `nodes.executors.cuda`. They are
written against the documented API of TensorRT 10 and 11 and of cuda-python 12.6 and later. Most
names that they use were found in the bindings' wheels (TensorRT 10.16 and 11.4; those of
cuda-python by importing cuda-bindings 13.5), but neither TensorRT's libraries nor a GPU were
available. The conformance suite (`tests/nodes/executors/test_tensor_rt.py`) runs where they are.

Each subnet has one block of device memory for its inputs and outputs, and a block of page-locked
host memory of the same layout; all subnets share the scratch memory for activations. A run copies
the inputs into host memory, queues the copy to the device, the engine and the copy back on the
stream, waits for the stream, and copies the outputs into new arrays.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nodes.cache.room import Room
from nodes.executors.base import (
    Array,
    ExecutorError,
    InputCheck,
    LoadOptions,
    OnPrepared,
    OutputAllocator,
    TensorSpec,
)
from nodes.executors.cuda import Cuda, Scratch
from nodes.executors.onnx.file import OnnxFile, inspect
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.process import PreparingProcess
from nodes.executors.tensor_rt.build import ENGINE, import_tensorrt, make_logger
from nodes.executors.tensor_rt.layout import (
    check_operators,
    engine_key,
    lay_out,
    tensor_spec,
    view,
    wants_fp16_flag,
)


class TensorRtExecutor:
    """TensorRT on this machine's first GPU, keeping engines under `cache`."""

    def __init__(self, cache: Path, room: Room | None = None) -> None:
        """Open the first GPU; `room` bounds the cache if given.

        Raises ExecutorError if TensorRT, cuda-python or a GPU is missing.
        """
        self._trt = import_tensorrt()
        self._version = str(self._trt.__version__)
        self._cuda = Cuda()
        self._gpu = self._cuda.gpu()
        self._logger = make_logger(self._trt)
        self._runtime = self._trt.Runtime(self._logger)
        self._stream = self._cuda.stream()
        self._scratch = Scratch(self._cuda)
        self._lock = threading.Lock()
        self._loaded: set[TensorRtSubnet] = set()
        self._cache = PreparedFiles(cache, room)
        self._child = PreparingProcess("tensorrt", self._cache)

    def describe(self) -> str:
        """Return the engine's name, its version and the GPU."""
        major, minor = self._gpu.capability
        return f"TensorRT {self._version} ({self._gpu.name}, compute capability {major}.{minor})"

    def prepare(
        self, graphs: Sequence[Path], options: LoadOptions, on_done: OnPrepared | None = None
    ) -> None:
        """Build the engines that the cache lacks, in one child process."""
        done = on_done or (lambda _: None)
        jobs = [self._job(inspect(graph), options) for graph in graphs]
        self._child.prepare(jobs, options, lambda job: done(job.graph))

    def load(self, graph: Path, options: LoadOptions) -> TensorRtSubnet:
        """Load a subnet's engine, building it first if the cache lacks it."""
        file = inspect(graph)
        job = self._job(file, options)
        engine = self._deserialize(job)
        if engine is None:
            self._cache.discard(job.key)
            self._child.make([job], options, lambda _: None)
            engine = self._deserialize(job)
        if engine is None:
            raise ExecutorError(
                f"subnet {file.name}: TensorRT {self._version} cannot load the engine that it has "
                f"just built: {self._logger.text or 'it does not say why'}"
            )
        with self._lock:
            subnet = TensorRtSubnet(self, file.name, engine)
            self._loaded.add(subnet)
        return subnet

    def _job(self, file: OnnxFile, options: LoadOptions) -> Job:
        check_operators(file.name, self._version, file.contrib_layer)
        wants_fp16_flag(file.name, self._version, options)
        key = engine_key(file.digest, self._version, self._gpu, options)
        size = sum(path.stat().st_size for path in (file.path, *file.external))
        return Job(file.path, file.name, key, source_bytes=size)

    def _deserialize(self, job: Job) -> Any:
        entry = self._cache.find(job.key)
        if entry is None:
            return None
        with (
            (entry / ENGINE).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return self._runtime.deserialize_cuda_engine(content)

    def interrupt(self) -> None:
        """End the child process if one runs, and start none until `resume`."""
        self._child.interrupt()

    def resume(self) -> None:
        """Allow child processes again."""
        self._child.resume()

    def close(self) -> None:
        """End the child process if one runs."""
        self._child.close()


class TensorRtSubnet:
    """A subnet's engine with its buffers."""

    def __init__(self, executor: TensorRtExecutor, name: str, engine: Any) -> None:
        trt, cuda = executor._trt, executor._cuda
        self._executor = executor
        self._name = name
        self._engine = engine
        specs: dict[bool, dict[str, TensorSpec]] = {True: {}, False: {}}
        for index in range(engine.num_io_tensors):
            tensor = engine.get_tensor_name(index)
            is_input = engine.get_tensor_mode(tensor) == trt.TensorIOMode.INPUT
            specs[is_input][tensor] = tensor_spec(
                name, tensor, engine.get_tensor_dtype(tensor).name, engine.get_tensor_shape(tensor)
            )
        self._inputs, self._outputs = specs[True], specs[False]
        self._check = InputCheck(name, self._inputs)
        self._allocator = OutputAllocator(self._outputs)
        executor._scratch.grow(engine.device_memory_size_v2)
        self._context = engine.create_execution_context(
            trt.ExecutionContextAllocationStrategy.USER_MANAGED
        )
        bindings, size_bytes = lay_out({**self._inputs, **self._outputs})
        self._bindings = {binding.name: binding for binding in bindings}
        self._device = cuda.allocate(size_bytes)
        self._pinned = cuda.allocate_pinned(size_bytes)
        self._staged = {binding.name: view(self._pinned, binding) for binding in bindings}
        for binding in bindings:
            self._context.set_tensor_address(binding.name, self._device + binding.offset_bytes)

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """Return the model's inputs."""
        return self._inputs

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """Return the model's outputs."""
        return self._outputs

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs; see `LoadedSubnet.run`."""
        executor = self._executor
        with executor._lock:
            if self._engine is None:
                raise ExecutorError(f"subnet {self._name} is closed; load it again")
            arrays = self._check.arrays(inputs)
            cuda, stream, scratch = executor._cuda, executor._stream, executor._scratch
            for name, array in zip(self._inputs, arrays, strict=True):
                np.copyto(self._staged[name], array)
                cuda.to_device(*self._places(name), stream)
            if scratch.size_bytes:
                self._context.set_device_memory(scratch.address, scratch.size_bytes)
            if not self._context.execute_async_v3(int(stream)):
                raise ExecutorError(
                    f"subnet {self._name}: TensorRT {executor._version} cannot run it: "
                    f"{executor._logger.text or 'it does not say why'}"
                )
            for name in self._outputs:
                device, host, size_bytes = self._places(name)
                cuda.to_host(host, device, size_bytes, stream)
            cuda.synchronize(stream)
            outputs = self._allocator.allocate()
            for name, array in outputs.items():
                np.copyto(array, self._staged[name])
            return outputs

    def _places(self, name: str) -> tuple[int, int, int]:
        binding = self._bindings[name]
        offset = binding.offset_bytes
        return self._device + offset, self._pinned + offset, binding.spec.size_bytes

    def close(self) -> None:
        """Free the memory; closing the last subnet frees the scratch memory, too."""
        executor = self._executor
        with executor._lock:
            if self._engine is None:
                return
            self._staged.clear()
            self._context = self._engine = None
            executor._cuda.free(self._device)
            executor._cuda.free_pinned(self._pinned)
            executor._loaded.discard(self)
            if not executor._loaded:
                executor._scratch.release()
