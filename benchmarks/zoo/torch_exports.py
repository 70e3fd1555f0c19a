"""Sets weights from a seed, and calls torch's two exporters."""

from __future__ import annotations

from pathlib import Path

import torch

OPSET = 17
OPSET_OF_NEW = 18


def _declare_what_torchvision_may_lack() -> None:
    """A torchvision that was built for CUDA cannot load its compiled operators beside a torch for
    CPUs, and then not even be imported. Of them exporting needs `nms`, and traces it."""
    compiled = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        compiled.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    compiled.impl("nms", _nms, "CPU")
    _declared.append(compiled)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> torch.Tensor:
    kept: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for number in scores.argsort(descending=True).tolist():
        low = torch.maximum(boxes[number, :2], boxes[kept, :2])
        high = torch.minimum(boxes[number, 2:], boxes[kept, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        if not bool((shared > limit * (areas[number] + areas[kept] - shared)).any()):
            kept.append(number)
    return torch.tensor(kept, dtype=torch.int64)


_declared: list[torch.library.Library] = []
try:
    import torchvision  # noqa: F401
except RuntimeError:
    _declare_what_torchvision_may_lack()


def seeded() -> None:
    """Make what follows draw the same weights every time."""
    torch.manual_seed(0)


def as_trained(model: torch.nn.Module) -> torch.nn.Module:
    """Give batch norms statistics that differ from channel to channel, and stop training."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            for tensor, low, high in (
                (module.running_mean, -0.2, 0.2),
                (module.running_var, 0.5, 1.5),
                (module.weight, 0.7, 1.3),
                (module.bias, -0.2, 0.2),
            ):
                if tensor is not None:
                    tensor.data.uniform_(low, high, generator=generator)
    return model.eval()


def write(
    model: torch.nn.Module,
    shape: tuple[int, ...],
    file: Path,
    *,
    dynamo: bool = False,
    dynamic: bool = False,
) -> None:
    """Export `model` for one input `input` of this shape; `dynamic` leaves batch, rows and columns
    open (old exporter only)."""
    torch.backends.mha.set_fastpath_enabled(False)  # it cannot be exported
    frame = torch.randn(*shape, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        if dynamo:
            torch.onnx.export(
                model, (frame,), str(file), input_names=["input"], dynamo=True,
                opset_version=OPSET_OF_NEW, external_data=False,
            )  # fmt: skip
            return
        axes = {"input": {0: "batch", 2: "height", 3: "width"}} if dynamic else None
        torch.onnx.export(
            model, (frame,), str(file), input_names=["input"], dynamic_axes=axes, dynamo=False,
            opset_version=OPSET,
        )  # fmt: skip
