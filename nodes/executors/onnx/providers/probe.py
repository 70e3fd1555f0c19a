"""Tests whether an execution provider computes on a device, in a separate process.

`python -m nodes.executors.onnx.providers.probe WORD DEVICE PRECISION…` prints a JSON line:
`{"precisions": [those that passed], "why": sentence, "memory_bytes": memory}`; ONNX Runtime logs
errors to standard error. The memory is that of this process afterwards, most of which drivers and
their libraries have taken.
Providers load drivers, which may crash or hang; an agent that asked them itself would end with
them.

The test network is one convolution of 1 + 2⁻¹² with quarters, which is exact in float32. In half
precision, bfloat16 and TF32, 1 + 2⁻¹² is 1. So a device that computes in less than float32 is not
offered for fp32, whatever its settings say. ONNX Runtime's profile tells whether the provider has
computed the layer.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.providers.session import check_available, load_cuda_libraries
from nodes.executors.onnx.providers.table import BY_WORD, Provider, arguments
from nodes.executors.onnx.sessions import engine_errors, import_onnxruntime
from nodes.executors.onnx.writing import model_of, node, value_info
from nodes.host.usage import usage

CONVOLUTION = model_of(
    "g",
    [node("Conv", ("x", "w"), ("y",))],
    value_info("x", "float32", (1, 4, 2, 2)),
    value_info("y", "float32", (1, 4, 2, 2)),
    {"w": np.full((4, 4, 1, 1), 0.25, np.float32)},
)
"""Each of its outputs is the mean of four inputs."""

VALUE = 1 + 2**-12
"""Every input and output of the network."""

LARGEST_ERROR = {"fp32": 1e-5}
"""The largest error of an output, by precision."""

_OTHERS_LARGEST_ERROR = 1e-2

_ERRORS = 3
"""The severity from which ONNX Runtime logs why a provider cannot be opened."""


def probe(
    ort: Any, provider: Provider, device: str, precisions: Sequence[str]
) -> tuple[list[str], str]:
    """Return the precisions that passed, and why others did not."""
    failures = {each: _failure(ort, provider, device, each) for each in precisions}
    passed = [precision for precision, failure in failures.items() if not failure]
    return passed, "; ".join(dict.fromkeys(filter(None, failures.values())))


def _failure(ort: Any, provider: Provider, device: str, precision: str) -> str:
    try:
        check_available(ort, provider)
        load_cuda_libraries(ort, provider)
        _compute(ort, provider, device, LoadOptions(precision=precision))
    except ExecutorError as error:
        return str(error)
    return ""


def _compute(ort: Any, provider: Provider, device: str, options: LoadOptions) -> None:
    with tempfile.TemporaryDirectory() as folder, engine_errors(ort, "test", "run"):
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        settings.enable_profiling = True
        settings.profile_file_prefix = os.path.join(folder, "profile")
        session = ort.InferenceSession(
            CONVOLUTION,
            settings,
            providers=arguments([provider], device, options, Path(folder)),
            enable_fallback=0,
        )
        if provider.full_name not in session.get_providers():
            raise ExecutorError(
                f"ONNX Runtime {ort.__version__} cannot open it; check the device's driver and "
                "the libraries that the provider needs"
            )
        (y,) = session.run(None, {"x": np.full((1, 4, 2, 2), VALUE, np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    if not any(event.get("args", {}).get("provider") == provider.full_name for event in events):
        raise ExecutorError("it left a convolution to the CPU")
    error = float(np.abs(y - VALUE).max())
    if not error <= LARGEST_ERROR.get(options.precision, _OTHERS_LARGEST_ERROR):
        raise ExecutorError(f"its results are wrong by {error:.1g} of their magnitude")


def main() -> None:
    """Print the result for the provider, the device and the precisions of the command line."""
    word, device, *precisions = sys.argv[1:]
    ort = import_onnxruntime()
    ort.set_default_logger_severity(_ERRORS)
    passed, why = probe(ort, BY_WORD[word], device, precisions)
    memory_bytes = usage().rss_bytes
    print(json.dumps({"precisions": passed, "why": why, "memory_bytes": memory_bytes}))  # noqa: T201


if __name__ == "__main__":
    main()
