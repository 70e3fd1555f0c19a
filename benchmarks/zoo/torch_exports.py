"""Sets weights from a seed, and calls torch's two exporters."""

from __future__ import annotations

from pathlib import Path

import torch

import benchmarks.zoo.torchvision_operators  # noqa: F401 - others import torchvision

OPSET = 17
OPSET_OF_NEW = 18


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
