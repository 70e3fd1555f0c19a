"""Runs one compiled subnet, on the caller's arrays and with as little memory as OpenVINO allows.

**Arrays.** Inputs and outputs are passed by address. OpenVINO's tensors take only writable arrays,
so an input is passed as a view of its memory that claims to be writable; the engine copies an input
that a layer would compute in place. A request refers to its last arrays until the next run replaces
them, but does not read them.

**Interruption.** OpenVINO can cancel only a run that it computes in a separate thread, and then
ends it before the next layer; a loop counts as one layer. Passing a run to that thread and back
takes about 0.1 ms. So a run is computed in the caller's thread if the previous one took no longer
than `SHORT_S`, which is soon enough for an interrupt. While OpenVINO's threads compute, the process
does little else, so its processor time is theirs; the rest of the time they have waited for a CPU.

**Whole numbers.** OpenVINO's CPU plugin computes 64-bit integers and uint32 in 32 bits with sign,
and float64 in float32. Inputs beyond that are refused; numbers that a network computes itself, such
as the places that `NonZero` returns, are not checked.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nodes.executors.base import (
    BasicSubnet,
    ExecutorError,
    LoadOptions,
    ThreadTimes,
    address,
)
from nodes.executors.onnx.signature import read_signature
from nodes.executors.openvino.compiler import Compiler, tensor_specs
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.synthetic_inputs import synthetic_inputs, trial_on
from nodes.protocol.payload import Array

SHORT_S = 0.05
"""A run of at most this many seconds is not worth canceling."""

_NARROWED = frozenset({"int64", "uint64", "uint32"})
_INT32 = np.iinfo(np.int32)


class Siblings:
    """The subnets that one executor has loaded: they are interrupted together."""

    def __init__(self) -> None:
        self.loaded: set[OpenVinoSubnet] = set()
        self.is_interrupted = False
        self._running: set[Any] = set()

    def interrupt(self) -> None:
        """Cancel the present runs, and let none begin until `resume`; from any thread."""
        self.is_interrupted = True
        for request in tuple(self._running):
            request.cancel()

    def resume(self) -> None:
        """Allow runs again."""
        self.is_interrupted = False

    def compute(self, request: Any) -> None:
        """Run `request` in a thread of OpenVINO's own, so that it can be canceled.

        Raises RuntimeError if it was, as OpenVINO does for any failure.
        """
        self._running.add(request)
        try:
            request.start_async()
            if self.is_interrupted:  # perhaps just before there was something to cancel
                request.cancel()
            request.wait()
        finally:
            self._running.discard(request)


class OpenVinoSubnet(BasicSubnet):
    """A compiled model and the request that runs it."""

    def __init__(
        self,
        compiler: Compiler,
        name: str,
        graph: Path,
        options: LoadOptions,
        siblings: Siblings,
    ) -> None:
        """Compile the examined file `graph` and add it to its siblings.

        Raises ExecutorError if OpenVINO cannot.
        """
        self._compiler = compiler
        model = compiler.compile(name, graph, options)
        declared = read_signature(graph)
        super().__init__(
            name,
            tensor_specs(name, declared.inputs, model.inputs),
            tensor_specs(name, declared.outputs, model.outputs, may_vary=True),
        )
        self._narrowed = tuple(n for n, spec in self._inputs.items() if spec.dtype in _NARROWED)
        self._model: Any = model
        with compiler.errors(name, "load"):
            self._request: Any = model.create_infer_request()
        self._times = ThreadTimes(0.0, 0.0)
        self._threads = options.threads
        self._last_run_s = math.inf
        self._siblings = siblings
        siblings.loaded.add(self)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs; see `LoadedSubnet.run`."""
        model, request = self._model, self._request
        if request is None:
            raise self._closed()
        arrays = self._check.arrays(inputs)
        for name in self._narrowed:
            self._check_range(name, inputs[name])
        outputs = self._allocator.allocate()
        with self._compiler.errors(self._name, "run"):
            self._pass(request, arrays, outputs)
            self._compute(request)
            if len(outputs) < len(self._outputs):
                outputs = {
                    name: outputs[name] if name in outputs else _copied(request, index)
                    for index, name in enumerate(self._outputs)
                }
            if len(self._siblings.loaded) > 1:
                model.release_memory()
        return outputs

    def engine_times(self) -> ThreadTimes:
        """Return the times of OpenVINO's threads; see `ComputesElsewhere`."""
        return self._times

    def _pass(self, request: Any, arrays: list[Array], outputs: Mapping[str, Array]) -> None:
        tensor = self._compiler.ov.Tensor
        for index, array in enumerate(arrays):
            request.set_input_tensor(index, tensor(_writable(array), shared_memory=True))
        for index, name in enumerate(self._outputs):
            if name in outputs:
                request.set_output_tensor(index, tensor(outputs[name], shared_memory=True))

    def _compute(self, request: Any) -> None:
        if self._siblings.is_interrupted:
            raise ExecutorError(f"subnet {self._name}: the run was interrupted")
        start_s = time.perf_counter()
        if self._last_run_s <= SHORT_S:
            request.infer(share_outputs=True)
        else:
            began_cpu_s = time.process_time()
            try:
                self._siblings.compute(request)
            except RuntimeError as error:
                if self._siblings.is_interrupted:
                    raise ExecutorError(f"subnet {self._name}: the run was interrupted") from error
                raise
            computed_s = (time.process_time() - began_cpu_s) / self._threads
            waited_s = max(0.0, time.perf_counter() - start_s - computed_s)
            self._times = self._times.plus(computed_s, waited_s)
        self._last_run_s = time.perf_counter() - start_s

    def _check_range(self, name: str, array: Array) -> None:
        if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
            raise ExecutorError(
                f'subnet {self._name}: its input "{name}" has a number beyond 32 bits, which '
                f"OpenVINO {self._compiler.version} would change; use the executor `onnxruntime` "
                "on this node"
            )

    def try_out(self) -> None:
        """Run the subnet once on synthetic inputs; raises ExecutorError if OpenVINO cannot."""
        inputs = synthetic_inputs(self._inputs)
        with trial_on(inputs):
            self.run(inputs)

    def close(self) -> None:
        """Free the model and its memory."""
        self._siblings.loaded.discard(self)
        self._request = self._model = None


_compiler = cache(Compiler)
"""One for all subnets of a process that tries them out."""


def try_out(job: Job, options: LoadOptions, entries: PreparedFiles) -> None:
    """Compile a subnet and run it once, in the child process that prepares subnets.

    An engine that crashes takes its process with it. So this comes before an agent compiles the
    subnet; an empty entry says that it passed. Raises ExecutorError if OpenVINO cannot.
    """
    with entries.making(job.key):
        OpenVinoSubnet(_compiler(), job.subnet, job.graph, options, Siblings()).try_out()


def _copied(request: Any, index: int) -> Array:
    return np.array(request.get_output_tensor(index).data, order="C")


def _writable(array: Array) -> Array:
    """Return `array`, or a view of its memory that NumPy considers writable."""
    if array.flags.writeable:
        return array
    if not array.nbytes:
        return np.empty(array.shape, array.dtype)
    memory = (ctypes.c_char * array.nbytes).from_address(address(array))
    return np.frombuffer(memoryview(memory), array.dtype).reshape(array.shape)
