"""CUDA's memory and one stream, through cuda-python (`cuda.bindings.runtime`).

Written against cuda-python's documentation and its module's own signatures; on the machines where
this project is developed the module can be imported but there is no driver, so these calls have not
been run.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from nodes.executors.base import Array, ExecutorError
from nodes.executors.tensor_rt.layout import Binding, Gpu


class Cuda:
    """The CUDA runtime on the first device; every failure is an ExecutorError."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import runtime  # noqa: PLC0415
        except ImportError as error:
            raise ExecutorError(
                f"TensorRT's memory needs cuda-python: `pip install cuda-python` ({error})"
            ) from error
        self._runtime: Any = runtime

    def gpu(self) -> Gpu:
        """The device's name and compute capability."""
        properties = self.checked(self._runtime.cudaGetDeviceProperties(0))
        name = properties.name
        text = name.decode() if isinstance(name, bytes) else str(name)
        return Gpu(text.rstrip("\0"), (int(properties.major), int(properties.minor)))

    def checked(self, result: tuple[Any, ...]) -> Any:
        """The value of a runtime call, which returns `(error, value…)`."""
        error, *values = result
        if error != self._runtime.cudaError_t.cudaSuccess:
            _, name = self._runtime.cudaGetErrorName(error)
            _, text = self._runtime.cudaGetErrorString(error)
            raise ExecutorError(f"CUDA failed with {name.decode()}: {text.decode()}")
        return values[0] if values else None

    def stream(self) -> Any:
        """A new stream."""
        return self.checked(self._runtime.cudaStreamCreate())

    def destroy(self, stream: Any) -> None:
        """End a stream."""
        self.checked(self._runtime.cudaStreamDestroy(stream))

    def synchronize(self, stream: Any) -> None:
        """Wait until everything in the stream is done."""
        self.checked(self._runtime.cudaStreamSynchronize(stream))

    def allocate(self, size_bytes: int) -> int:
        """Device memory; returns its address."""
        return int(self.checked(self._runtime.cudaMalloc(size_bytes)))

    def free(self, address: int) -> None:
        """Give device memory back."""
        self.checked(self._runtime.cudaFree(address))

    def allocate_pinned(self, size_bytes: int) -> int:
        """Page-locked host memory; returns its address."""
        return int(self.checked(self._runtime.cudaMallocHost(size_bytes)))

    def free_pinned(self, address: int) -> None:
        """Give page-locked memory back."""
        self.checked(self._runtime.cudaFreeHost(address))

    def to_device(self, device: int, host: int, size_bytes: int, stream: Any) -> None:
        """Copy to the device, in stream order."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self.checked(self._runtime.cudaMemcpyAsync(device, host, size_bytes, kind, stream))

    def to_host(self, host: int, device: int, size_bytes: int, stream: Any) -> None:
        """Copy from the device, in stream order."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self.checked(self._runtime.cudaMemcpyAsync(host, device, size_bytes, kind, stream))


class Scratch:
    """Device memory for the activations of all engines, as large as the most demanding needs.

    One stream runs them one after the other, so one block serves all.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.address = 0
        self.size_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Make it at least so large; nothing may be running."""
        if size_bytes > self.size_bytes:
            self.release()
            self.address = self._cuda.allocate(size_bytes)
            self.size_bytes = size_bytes

    def release(self) -> None:
        """Give it back."""
        if self.size_bytes:
            self._cuda.free(self.address)
            self.address = self.size_bytes = 0


def view(block: int, binding: Binding) -> Array:
    """The tensor's place in a block of host memory, as an array of its shape."""
    size = max(binding.spec.size_bytes, 1)
    place = (ctypes.c_byte * size).from_address(block + binding.offset_bytes)
    flat = np.frombuffer(memoryview(place), np.uint8)[: binding.spec.size_bytes]
    array: Array = flat.view(binding.spec.dtype).reshape(binding.spec.shape)
    return array
