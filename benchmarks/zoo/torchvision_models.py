"""Exports torchvision's networks with random weights."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch

from benchmarks.zoo.registry import Entry
from benchmarks.zoo.torch_exports import as_trained, seeded, write
from benchmarks.zoo.torchvision_operators import supply


class _Tensors(torch.nn.Module):
    """A network whose results are tensors and not a dictionary of them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> object:
        found = self.model(images)
        return tuple(found.values()) if isinstance(found, dict) else found


def export(entry: Entry, file: Path) -> None:
    seeded()
    supply()
    place, _, name = f"torchvision.models.{entry.model}".rpartition(".")
    made = getattr(importlib.import_module(place), name)
    model = as_trained(made(weights=None, **entry.options["arguments"]))
    if entry.model.startswith("segmentation."):
        model = _Tensors(model).eval()
    write(
        model,
        entry.options["shape"],
        file,
        dynamo=entry.options["dynamo"],
        dynamic=bool(entry.options.get("dynamic")),
    )
