"""Implements torchvision's compiled operators in Python, for exports without its matching wheel.

Tracing calls them once; the export contains the ONNX operators that torchvision has for them.
"""

from __future__ import annotations

import importlib

import torch
import torchvision

_library: torch.library.Library | None = None


def supply() -> None:
    """Define the operators that detectors need, unless torchvision has them."""
    global _library  # noqa: PLW0603 - operators are gone with the library that defines them
    if torchvision.extension._has_ops() or _library is not None:
        return
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for schema, function in (
        ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", _nms),
        (
            "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
            "int pooled_width, int sampling_ratio, bool aligned) -> Tensor",
            _roi_align,
        ),
    ):
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.torchvision, name):
            _library.define(schema)
        _library.impl(name, function, "CPU")
    pooling = importlib.import_module("torchvision.ops.roi_align")
    for module in (torchvision.extension, pooling):
        module._has_ops = _has_operators


def _has_operators() -> bool:  # torch.jit compiles it
    return True


def _nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    order = scores.argsort(descending=True)
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        overlaps = torchvision.ops.box_iou(dets[best][None], dets[order])[0]
        order = order[overlaps <= iou_threshold]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


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
