"""Binds arrays to a session's inputs and outputs, so that a run copies nothing.

A phase runs when its code has left the processor's caches, so whatever Python executes around the
engine counts. ResNet50 in 37 phases spent 9 % of a frame there, and spends 4 % without two things
that this module avoids (`python -m benchmarks.phase_costs`):

- `InferenceSession.run_with_iobinding` of ONNX Runtime 1.31 asks each run's options for the number
  of a captured GPU graph. Without such an entry the engine throws a C++ exception, which the caller
  catches: 28 µs of a warm run that computes nothing, 50 µs of a phase. `run_options` has the entry.
- The methods of `IOBinding` that take an address make a device anew for each tensor and look its
  type up. The engine's own binding, behind them, takes an array as it is: 28 µs per phase instead
  of 67.

This was run with ONNX Runtime 1.31 on the CPU only, not with older versions and not on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nodes.executors.base import Array

_GRAPH = "gpu_graph_id"
_NO_GRAPH = "-1"


def run_options(ort: Any) -> Any:
    """Return options for runs that no GPU graph is captured of."""
    options = ort.RunOptions()
    options.add_run_config_entry(_GRAPH, _NO_GRAPH)
    return options


class SessionBinding:
    """The inputs and outputs of one session."""

    def __init__(self, ort: Any, session: Any, inputs: Sequence[str]) -> None:
        own = ort.capi._pybind_state  # what the methods of IOBinding use themselves
        self._inputs = inputs
        self._run = session._sess.run_with_iobinding  # what the session's own method calls
        self._binding = session.io_binding()
        self._engine_binding = self._binding._iobinding
        self._value = own.OrtValue.ortvalue_from_numpy
        self._cpu = own.OrtDevice(own.OrtDevice.cpu(), own.OrtDevice.default_memory(), 0)

    def run(
        self,
        inputs: Sequence[Array],
        outputs: Mapping[str, Array],
        varying: Iterable[str],
        options: Any,
    ) -> dict[str, Array]:
        """Compute into the arrays `outputs`, and return the outputs that are `varying`, by name.

        `inputs` are in the order of the names with which the binding was made. All arrays must be
        C-contiguous. The engine does not refer to them afterwards.
        """
        engine = self._engine_binding
        for name, array in zip(self._inputs, inputs):  # noqa: B905 - `InputCheck` has counted them
            engine.bind_input(name, array)
        for name, array in outputs.items():
            engine.bind_ortvalue_output(name, self._value(array, self._cpu))
        for name in varying:
            engine.bind_output(name, self._cpu)
        self._run(engine, options)
        return self._copied(len(outputs), varying) if varying else {}

    def _copied(self, first: int, varying: Iterable[str]) -> dict[str, Array]:
        """Return copies of the varying outputs, which are in the engine's memory."""
        made = self._binding.get_outputs()[first:]
        copies = {
            name: np.array(value.numpy(), order="C")
            for name, value in zip(varying, made, strict=True)
        }
        self._binding.clear_binding_outputs()
        return copies
