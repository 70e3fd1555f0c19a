"""Exports Ultralytics' YOLO networks, built from their descriptions with random weights."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.zoo.registry import Entry
from benchmarks.zoo.torch_exports import as_trained, seeded
from benchmarks.zoo.torchvision_operators import supply


def export(entry: Entry, file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["YOLO_CONFIG_DIR"] = folder
        os.chdir(folder)
        from ultralytics import YOLO  # noqa: PLC0415 - it reads its settings when imported

        supply()
        seeded()
        model = YOLO(f"{entry.model}.yaml")
        as_trained(model.model)
        options = dict(entry.options)
        in_float16 = bool(options.pop("as_float16", False))
        made = model.export(format="onnx", simplify=False, opset=17, device="cpu", **options)
        if in_float16:
            _convert(Path(made), file)
        else:
            file.write_bytes(Path(made).read_bytes())


def _convert(source: Path, file: Path) -> None:
    """Write the network with float16 weights and activations, as onnxruntime's converter does."""
    import onnx  # noqa: PLC0415
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), file)
