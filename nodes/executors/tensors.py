"""Checks what a subnet is given, the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nodes.executors.base import Array, ExecutorError, TensorSpec


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
