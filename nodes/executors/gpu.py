"""Whether this machine has a GPU that CUDA can use."""

from __future__ import annotations

import ctypes
from functools import cache


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
