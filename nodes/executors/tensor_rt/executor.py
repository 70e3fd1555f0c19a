"""Runs subnets with TensorRT's Python API: engines are built once per device and share one stream.

**What has been run**: with TensorRT-RTX, on machines without a GPU, all that comes before an engine
is loaded: `layout`, `library`, `build` and `engine_cache`; on an NVIDIA H200
`nodes.executors.cuda`, and `TensorRtExecutor.load` up to TensorRT-RTX's refusal of that GPU.
**What has not**: loading and running an engine, with either library. That is written against the
documented API of TensorRT 10 and 11; the names that it uses exist in the bindings of TensorRT 10.16
and 11.4 and of TensorRT-RTX 1.7. The conformance suite (`tests/nodes/executors/test_tensor_rt.py`)
runs where there is a GPU.

Each subnet has one block of device memory for its inputs and outputs, and a block of page-locked
host memory of the same layout; all subnets share the scratch memory for activations. A run copies
the inputs into host memory, queues the copy to the device, the engine and the copy back on the
stream, waits for the stream, and copies the outputs into new arrays.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nodes.cache.room import Room
from nodes.executors.base import BasicSubnet, ExecutorError, LoadOptions
from nodes.executors.cuda import Cuda, Scratch
from nodes.executors.onnx.signature import Signature, read_signature
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.tensor_rt.engine_cache import EngineCache
from nodes.executors.tensor_rt.layout import (
    input_name,
    lay_out,
    output_name,
    tensor_spec,
    view,
)
from nodes.executors.tensor_rt.library import import_tensorrt, logger
from nodes.protocol.payload import Array


class TensorRtExecutor(EngineCache):
    """TensorRT on this machine's first GPU, keeping engines under `cache`."""

    def __init__(self, cache: Path, room: Room | None = None) -> None:
        """Open the first GPU; `room` bounds the cache if given.

        Raises ExecutorError if TensorRT, cuda-python or a GPU is missing, or if TensorRT-RTX does
        not support the GPU.
        """
        library = import_tensorrt()
        self._trt = library.api
        self._label = library.label
        self._cuda = Cuda()
        super().__init__(library, self._cuda.gpu(), PreparedFiles(cache, room))
        self._logger = logger(self._trt)
        self._runtime = self._trt.Runtime(self._logger)
        self._stream = self._cuda.stream()
        self._scratch = Scratch(self._cuda)
        self._lock = threading.Lock()
        self._loaded: set[TensorRtSubnet] = set()

    def describe(self) -> str:
        """Return the engine's name, its version and the GPU."""
        major, minor = self._gpu.capability
        return f"{self._label} ({self._gpu.name}, compute capability {major}.{minor})"

    def load(self, graph: Path, options: LoadOptions) -> TensorRtSubnet:
        """Load a subnet's engine, building it first if the cache lacks it."""
        job = self.job(graph, options)
        engine = self._deserialize(job)
        if engine is None:
            self.build_anew(job, options)
            engine = self._deserialize(job)
        if engine is None:
            raise ExecutorError(
                f"subnet {job.subnet}: {self._label} cannot load the engine that it has "
                f"just built: {self._logger.text or 'it does not say why'}"
            )
        signature = read_signature(graph)
        with self._lock:
            subnet = TensorRtSubnet(self, job.subnet, engine, signature)
            self._loaded.add(subnet)
        return subnet

    def _deserialize(self, job: Job) -> Any:
        path = self.find(job)
        if path is None:
            return None
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            self._logger.text = ""
            return self._runtime.deserialize_cuda_engine(content)


class TensorRtSubnet(BasicSubnet):
    """A subnet's engine with its buffers."""

    def __init__(
        self, executor: TensorRtExecutor, name: str, engine: Any, signature: Signature
    ) -> None:
        trt, cuda = executor._trt, executor._cuda
        self._executor = executor
        self._engine = engine
        # By the engine's names, since an input may have the name of an output.
        ins = {input_name(index): x.name for index, x in enumerate(signature.inputs)}
        outs = {output_name(index): x.name for index, x in enumerate(signature.outputs)}
        specs = {
            tensor: tensor_spec(
                name, own, engine.get_tensor_dtype(tensor).name, engine.get_tensor_shape(tensor)
            )
            for tensor, own in (*ins.items(), *outs.items())
        }
        self._ins, self._outs = tuple(ins), tuple(outs)
        super().__init__(
            name,
            {own: specs[tensor] for tensor, own in ins.items()},
            {own: specs[tensor] for tensor, own in outs.items()},
        )
        executor._scratch.grow(engine.device_memory_size_v2)
        self._context = engine.create_execution_context(
            trt.ExecutionContextAllocationStrategy.USER_MANAGED
        )
        bindings, size_bytes = lay_out(specs)
        self._bindings = {binding.name: binding for binding in bindings}
        self._device = cuda.allocate(size_bytes)
        self._pinned = cuda.allocate_pinned(size_bytes)
        self._staged = {binding.name: view(self._pinned, binding) for binding in bindings}
        for binding in bindings:
            self._context.set_tensor_address(binding.name, self._device + binding.offset_bytes)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs; see `LoadedSubnet.run`."""
        executor = self._executor
        with executor._lock:
            if self._engine is None:
                raise self._closed()
            arrays = self._check.arrays(inputs)
            cuda, stream, scratch = executor._cuda, executor._stream, executor._scratch
            for tensor, array in zip(self._ins, arrays, strict=True):
                np.copyto(self._staged[tensor], array)
                cuda.to_device(*self._places(tensor), stream)
            if scratch.size_bytes:
                self._context.set_device_memory(scratch.address, scratch.size_bytes)
            executor._logger.text = ""
            if not self._context.execute_async_v3(int(stream)):
                raise ExecutorError(
                    f"subnet {self._name}: {executor._label} cannot run it: "
                    f"{executor._logger.text or 'it does not say why'}"
                )
            for tensor in self._outs:
                device, host, size_bytes = self._places(tensor)
                cuda.to_host(host, device, size_bytes, stream)
            cuda.synchronize(stream)
            outputs = self._allocator.allocate()
            for tensor, array in zip(self._outs, outputs.values(), strict=True):
                np.copyto(array, self._staged[tensor])
            return outputs

    def _places(self, tensor: str) -> tuple[int, int, int]:
        binding = self._bindings[tensor]
        offset = binding.offset_bytes
        return self._device + offset, self._pinned + offset, binding.spec.size_bytes

    def close(self) -> None:
        """Free the memory; closing the last subnet also frees the scratch memory."""
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
