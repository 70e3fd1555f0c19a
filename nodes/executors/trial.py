"""Runs a subnet that was just prepared once, where it may crash.

An engine that crashes takes its process with it. So what it has made is loaded as an agent will
load it, and computes once on synthetic inputs, in the child that prepared it and before anybody can
find it in the cache. A crash then costs this child.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodes.execution.synthetic_inputs import synthetic_input
from nodes.executors.base import LoadOptions
from nodes.executors.onnx.mistakes import mistaken_optimizers
from nodes.executors.onnx.sessions import (
    engine_errors,
    keep_packing_off,
    loading_options,
    shrink_arena,
    tensor_specs,
)


def try_out(ort: Any, subnet: str, model: Path, options: LoadOptions, *, packs: bool) -> None:
    """Load the optimised `model` and run it once; raises ExecutorError if ONNX Runtime cannot."""
    settings = loading_options(ort, options, optimised=True)
    if not packs:
        keep_packing_off(settings)
    with engine_errors(ort, subnet, "load"):
        session = ort.InferenceSession(
            str(model),
            settings,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=mistaken_optimizers(model),
        )
    specs = tensor_specs(subnet, session.get_inputs())
    tensor_specs(subnet, session.get_outputs(), may_vary=True)
    with engine_errors(ort, subnet, "run"):
        session.run(None, {name: synthetic_input(x.dtype, x.shape) for name, x in specs.items()})
    del session
    shrink_arena(ort)
