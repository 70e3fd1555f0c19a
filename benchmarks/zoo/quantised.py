"""Quantises networks to 8 bits with ONNX Runtime's quantizer, calibrated on random frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.zoo.registry import Entry, file_of

_FRAMES = 4


class _Frames(CalibrationDataReader):
    """Standard normal frames from a seed."""

    def __init__(self, model: Path) -> None:
        value = onnx.load(model).graph.input[0]
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        generator = np.random.default_rng(0)
        frames = generator.standard_normal((_FRAMES, *shape)).astype(np.float32)
        self._left = [{value.name: frame} for frame in frames]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def export(entry: Entry, file: Path) -> None:
    source = file_of(entry.model)
    if entry.options["form"] == "dynamic":
        quantize_dynamic(source, file, weight_type=QuantType.QInt8)
        return
    quantise(
        source, file, form=entry.options["form"], per_channel=bool(entry.options.get("channels"))
    )


def quantise(source: Path, file: Path, *, form: str, per_channel: bool) -> None:
    """Write `source` to `file` with weights and activations of 8 bits, as QDQ or QOperator."""
    prepared = file.with_name(f"prepared-{file.name}")
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared,
        file,
        _Frames(prepared),
        quant_format=QuantFormat[form],
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    prepared.unlink()
