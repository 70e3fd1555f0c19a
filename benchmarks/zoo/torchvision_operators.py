"""Implements torchvision's compiled operators in Python, for exports without its matching wheel.

A torchvision that was built for CUDA cannot load its compiled operators beside a torch for CPUs,
and then not even be imported. Tracing calls the operators once; the export contains the ONNX
operators that torchvision has for them.
"""

from __future__ import annotations

import importlib

import torch

_library: torch.library.Library | None = None
"""Operators are gone with the library that defines them."""

NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
ROI_ALIGN = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
    "int pooled_width, int sampling_ratio, bool aligned) -> Tensor"
)


def _nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    kept: list[int] = []
    areas = (dets[:, 2:] - dets[:, :2]).prod(1)
    for number in scores.argsort(descending=True).tolist():
        low = torch.maximum(dets[number, :2], dets[kept, :2])
        high = torch.minimum(dets[number, 2:], dets[kept, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        # The quotient, as torchvision has it: a box of negative size has a negative area.
        if not bool((shared / (areas[number] + areas[kept] - shared) > iou_threshold).any()):
            kept.append(number)
    return torch.tensor(kept, dtype=torch.int64)


def _define(*schemas: str) -> None:
    """Define those of the operators that torchvision lacks, and implement them."""
    global _library  # noqa: PLW0603
    _library = _library or torch.library.Library("torchvision", "FRAGMENT")
    for schema in schemas:
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.torchvision, name):
            _library.define(schema)
        if name in _IN_PYTHON:
            _library.impl(name, _IN_PYTHON[name], "CPU")


def supply() -> None:
    """Define the operators that detectors need, unless torchvision has them."""
    if torchvision.extension._has_ops():
        return
    _define(*({NMS, ROI_ALIGN} - _known))
    _known.update((NMS, ROI_ALIGN))
    pooling = importlib.import_module("torchvision.ops.roi_align")
    for module in (torchvision.extension, pooling):
        module._has_ops = _has_operators


def _has_operators() -> bool:  # torch.jit compiles it
    return True


def _roi_align(
    input: torch.Tensor,  # noqa: A002 - the operator's own name for it
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    in_python = importlib.import_module("torchvision.ops.roi_align")._roi_align
    return in_python.__wrapped__(  # what torch.compile would be asked to compile
        input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
    )


_IN_PYTHON = {"nms": _nms, "roi_align": _roi_align}
_known: set[str] = set()
try:
    import torchvision
except RuntimeError:
    _define(NMS, NMS.replace("nms", "qnms"))
    _known.add(NMS)
    import torchvision
