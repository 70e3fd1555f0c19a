"""Binds arrays to a session's inputs and outputs, so that a run copies nothing.

A phase runs when its code has left the processor's caches, so whatever Python executes around the
engine counts. ResNet50 in 37 phases spent 9 % of a frame there, and spends 4 % without two things
that this module avoids:

- `InferenceSession.run_with_iobinding` of ONNX Runtime 1.31 asks each run's options for the number
  of a captured GPU graph. Without such an entry the engine throws a C++ exception, which the caller
  catches: 28 µs of a warm run that computes nothing, 50 µs of a phase. `run_options` has the entry.
- The methods of `IOBinding` that take an address create a device object for each tensor and look
  its type up. The engine's own binding, behind them, takes an array as it is: 28 µs per phase
  instead of 67.

Inputs may be bound while another run of the session takes place, so every run has its own binding.
This was run with ONNX Runtime 1.31 on the CPU only, not with older versions and not on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from nodes.protocol.payload import Array

_GRAPH = "gpu_graph_id"
_NO_GRAPH = "-1"


def run_options(ort: Any) -> Any:
    """Return options for runs that no GPU graph is captured of."""
    options = ort.RunOptions()
    options.add_run_config_entry(_GRAPH, _NO_GRAPH)
    return options


class SessionBindings:
    """The bindings of one session: as many as runs of it are bound at once."""

    def __init__(self, ort: Any, session: Any) -> None:
        own = ort.capi._pybind_state  # what the methods of IOBinding use themselves
        self._session = session
        self._run = session._sess.run_with_iobinding  # what the session's own method calls
        self._value = own.OrtValue.ortvalue_from_numpy
        self._cpu = own.OrtDevice(own.OrtDevice.cpu(), own.OrtDevice.default_memory(), 0)
        self._free: list[Any] = []

    def take(self) -> Any:
        """Return a binding that no other run uses; its inputs are those of an earlier run.

        One thread may call this while another one calls `run`.
        """
        return self._free.pop() if self._free else self._session.io_binding()

    def run(
        self, binding: Any, outputs: Mapping[str, Array], varying: Iterable[str], options: Any
    ) -> dict[str, Array]:
        """Compute into the arrays `outputs`, and return the outputs that are `varying`, by name.

        All arrays must be C-contiguous. The engine does not refer to them afterwards, and another
        run may take the binding.
        """
        engine = binding._iobinding
        for name, array in outputs.items():
            engine.bind_ortvalue_output(name, self._value(array, self._cpu))
        for name in varying:
            engine.bind_output(name, self._cpu)
        try:
            self._run(engine, options)
            return _copied(binding, len(outputs), varying) if varying else {}
        finally:
            self._free.append(binding)


def _copied(binding: Any, first: int, varying: Iterable[str]) -> dict[str, Array]:
    """Return copies of the varying outputs, which are in the engine's memory."""
    made = binding.get_outputs()[first:]
    copies = {
        name: np.array(value.numpy(), order="C") for name, value in zip(varying, made, strict=True)
    }
    binding.clear_binding_outputs()
    return copies
