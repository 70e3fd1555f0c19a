"""Finds CUDA devices, and gives access to their memory and streams through cuda-python.

`Cuda` is written against cuda-python's documentation and the signatures of `cuda.bindings.runtime`.
All of it has been run on an NVIDIA H200 (driver 580.159, CUDA 13.0).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

from nodes.executors.base import ExecutorError

_CAPABILITY = (75, 76)
"""The driver's attributes of a device for the two parts of its compute capability."""


@cache
def cuda_devices() -> int:
    """Return the number of CUDA devices as the driver reports it; 0 without a driver.

    A package that can use a GPU says nothing about whether there is one.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@cache
def first_capability() -> tuple[int, int] | None:
    """Return the first device's compute capability as the driver reports it; None without one."""
    if not cuda_devices():
        return None
    driver = ctypes.CDLL("libcuda.so.1")
    device, numbers = ctypes.c_int(0), (ctypes.c_int(0), ctypes.c_int(0))
    failures = [driver.cuDeviceGet(ctypes.byref(device), 0)]
    for number, attribute in zip(numbers, _CAPABILITY, strict=True):
        failures.append(driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device))
    return None if any(failures) else (numbers[0].value, numbers[1].value)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's name and its compute capability (major, minor)."""

    name: str
    capability: tuple[int, int]


class Cuda:
    """The CUDA runtime on the first device.

    Addresses are integers. Every method raises ExecutorError if CUDA fails.
    """

    def __init__(self) -> None:
        """Import the runtime; raises ExecutorError if cuda-python is missing."""
        try:
            from cuda.bindings import runtime  # noqa: PLC0415
        except ImportError as error:
            raise ExecutorError(
                f"TensorRT's memory needs cuda-python: `pip install cuda-python` ({error})"
            ) from error
        self._runtime: Any = runtime

    def gpu(self) -> Gpu:
        """Return the device's name and compute capability."""
        properties = self._checked(self._runtime.cudaGetDeviceProperties(0))
        name = properties.name
        text = name.decode() if isinstance(name, bytes) else str(name)
        return Gpu(text.rstrip("\0"), (int(properties.major), int(properties.minor)))

    def _checked(self, result: tuple[Any, ...]) -> Any:
        """Return the value of a runtime call, whose result is `(error, value…)`."""
        error, *values = result
        if error != self._runtime.cudaError_t.cudaSuccess:
            _, name = self._runtime.cudaGetErrorName(error)
            _, text = self._runtime.cudaGetErrorString(error)
            raise ExecutorError(f"CUDA failed with {name.decode()}: {text.decode()}")
        return values[0] if values else None

    def stream(self) -> Any:
        """Create a stream."""
        return self._checked(self._runtime.cudaStreamCreate())

    def synchronize(self, stream: Any) -> None:
        """Wait until everything queued on the stream is done."""
        self._checked(self._runtime.cudaStreamSynchronize(stream))

    def allocate(self, size_bytes: int) -> int:
        """Allocate device memory; returns its address."""
        return int(self._checked(self._runtime.cudaMalloc(size_bytes)))

    def free(self, address: int) -> None:
        """Free device memory."""
        self._checked(self._runtime.cudaFree(address))

    def allocate_pinned(self, size_bytes: int) -> int:
        """Allocate page-locked host memory; returns its address."""
        return int(self._checked(self._runtime.cudaMallocHost(size_bytes)))

    def free_pinned(self, address: int) -> None:
        """Free page-locked host memory."""
        self._checked(self._runtime.cudaFreeHost(address))

    def to_device(self, device: int, host: int, size_bytes: int, stream: Any) -> None:
        """Queue a copy from host memory to the device."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._checked(self._runtime.cudaMemcpyAsync(device, host, size_bytes, kind, stream))

    def to_host(self, host: int, device: int, size_bytes: int, stream: Any) -> None:
        """Queue a copy from the device to host memory."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._checked(self._runtime.cudaMemcpyAsync(host, device, size_bytes, kind, stream))


class Scratch:
    """Device memory for the activations of all engines, as large as the largest need among them.

    The engines run one after the other on one stream, so one block serves all.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.address = 0
        self.size_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Make the block at least this large; nothing may be running."""
        if size_bytes > self.size_bytes:
            self.release()
            self.address = self._cuda.allocate(size_bytes)
            self.size_bytes = size_bytes

    def release(self) -> None:
        """Free the block; nothing may be running."""
        if self.size_bytes:
            self._cuda.free(self.address)
            self.address = self.size_bytes = 0
