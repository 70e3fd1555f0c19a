"""Imports OpenVINO, reads and compiles subnets with it, and explains its errors.

The settings, and why:

- Inference runs in float32 unless half precision was asked for. By default OpenVINO computes in
  bfloat16 on processors that have it, and quantises some activations; results would then agree
  with the model to 1e-2 only.
- There is one stream of as many threads as the options say. Threads are not pinned: two agents on
  one machine, or an agent and its launcher, would otherwise be pinned to the same cores.
- The ONNX reader is chosen by name. Left to itself, OpenVINO decides by a file's content which of
  its seven readers opens it, and only the ONNX format has been examined.
- The package `openvino-telemetry`, which pip installs with OpenVINO, is not imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.executors.onnx.signature import DeclaredTensor, layer_with

_CPU = "CPU"

_TELEMETRY = "openvino_telemetry"

_NUMPY_NAMES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "boolean": "bool",
}


def import_openvino() -> Any:
    """Return the `openvino` module; raises ExecutorError naming the wheel to install."""
    sys.modules.setdefault(_TELEMETRY, None)  # type: ignore[arg-type]  # makes importing it fail
    try:
        import openvino  # noqa: PLC0415
    except (ImportError, OSError) as error:  # OSError: its libraries are missing
        raise ExecutorError(
            f"OpenVINO is not installed: `pip install 'csdf-edge[openvino]'` ({error})"
        ) from error
    return openvino


def version(ov: Any) -> str:
    """Return OpenVINO's version without the number of its build."""
    return str(ov.__version__).partition("-")[0]


class Compiler:
    """OpenVINO's ONNX reader and its plugin for the processor."""

    def __init__(self) -> None:
        """Load both; raises ExecutorError if OpenVINO is missing."""
        self.ov = import_openvino()
        self.version = version(self.ov)
        self._core = self.ov.Core()
        self._has_fp16 = "FP16" in self._core.get_property(_CPU, "OPTIMIZATION_CAPABILITIES")
        self._reader = self.ov.frontend.FrontEndManager().load_by_framework("onnx")

    def compile(self, subnet: str, graph: Path, options: LoadOptions) -> Any:
        """Return the compiled model of the ONNX file `graph`, which has been examined.

        Its weights are mapped, and most are copied into the layout that kernels read.
        Raises ExecutorError, naming the layer where OpenVINO does, if that cannot be done.
        """
        with self.errors(subnet, "load", graph):
            model = self._reader.convert(self._reader.load(str(graph)))
            check_types(subnet, [*model.inputs, *model.outputs])
            return self._core.compile_model(model, _CPU, self._settings(options))

    def _settings(self, options: LoadOptions) -> dict[str, Any]:
        half = options.fp16 and self._has_fp16
        return {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f16" if half else "f32",
            "EXECUTION_MODE_HINT": "PERFORMANCE" if half else "ACCURACY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": options.threads,
            "ENABLE_CPU_PINNING": False,
        }

    @contextmanager
    def errors(self, subnet: str, doing: str, graph: Path | None = None) -> Iterator[None]:
        """Translate what OpenVINO raises inside the block into an ExecutorError.

        `doing` is a verb that completes "cannot … it"; `graph` is where layers' names are found.
        """
        try:
            yield
        except ExecutorError:
            raise
        except Exception as error:  # its exceptions share no base below Exception
            is_its_own = type(error).__module__.partition(".")[0] == "openvino"
            if not is_its_own and not isinstance(error, (RuntimeError, ValueError)):
                raise
            raise ExecutorError(
                f"subnet {subnet}: OpenVINO {self.version} cannot {doing} it: "
                + explain(str(error), graph)
            ) from error


def check_types(subnet: str, ports: list[Any]) -> None:
    """Raise ExecutorError for an input or output of a type that NumPy does not have.

    Strings must not even be compiled: OpenVINO 2026.4 then frees memory that is not its own.
    """
    for port in ports:
        type_name = port.element_type.get_type_name()
        if type_name not in _NUMPY_NAMES:
            raise ExecutorError(
                f'subnet {subnet}: "{port.any_name}" is of OpenVINO\'s type {type_name}, which '
                "cannot be sent; convert the model's tensors to float, integer or bool"
            )


def tensor_specs(
    subnet: str, declared: Sequence[DeclaredTensor], ports: Sequence[Any], *, may_vary: bool = False
) -> dict[str, TensorSpec]:
    """Return the dtypes and shapes of a compiled model's inputs or outputs by name, in order.

    The names are those `declared` in the model's file, since a port may have several. A
    tensor of dynamic shape is one that varies if `may_vary`. Raises ExecutorError for one
    otherwise.
    """
    specs = {}
    for name, port in zip((each.name for each in declared), ports, strict=True):
        dtype = _NUMPY_NAMES[port.element_type.get_type_name()]
        shape = port.partial_shape
        if shape.is_static:
            specs[name] = TensorSpec(dtype, tuple(port.shape))
        elif may_vary:
            specs[name] = TensorSpec(dtype, (), varies=True)
        else:
            raise ExecutorError(
                f'subnet {subnet}: "{name}" has the dynamic shape {shape}; give the model a static '
                "`input_shape`"
            )
    return specs


_WHERE = re.compile(r"(?:Exception from|Check '[^']*' failed at|Caught exception:) ?\S*:\d*:?")
_UNKNOWN = re.compile(r"No conversion rule found for operations?: (?P<operators>[^\n]+)")
_REFUSED = re.compile(
    r"While validating ONNX node '<Node\((?P<operator>\w+)\): (?P<output>[^>]*)>': (?P<text>.+?)"
    r"(?=\n\n|\nSummary|\Z)",
    re.DOTALL,
)
_VALIDATING = re.compile(r"While validating node '.*?' with friendly_name '[^']*':")


def explain(message: str, graph: Path | None = None) -> str:
    """Return OpenVINO's message as a clause that says what is wrong and what to do.

    Layers are named as in the ONNX file `graph`, where it is given.
    """
    remedy = (
        "pin the layer to a node with another engine, or use the executor `onnxruntime` on this "
        "node"
    )
    if found := _UNKNOWN.search(message):
        operator = found["operators"].split(",")[0].strip().rpartition("-")[0]
        name = operator.rpartition(".")[2]
        layer = layer_with(graph, name) if graph is not None else None
        where = f" (layer {layer!r})" if layer else ""
        return f"it has no operator {name}{where}; {remedy}"
    if found := _REFUSED.search(message):
        layer = layer_with(graph, found["operator"], found["output"]) if graph is not None else None
        text = _plain(_VALIDATING.sub("", found["text"]))
        return f"it refuses layer {layer or found['output']!r} ({found['operator']}): {text}"
    return _plain(message) or "it does not say why"


def _plain(message: str) -> str:
    return " ".join(_WHERE.sub("", message).split()).rstrip(".")
