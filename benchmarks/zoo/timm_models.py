"""Exports timm's networks with random weights; those called `tf_…` pad as TensorFlow does."""

from __future__ import annotations

from pathlib import Path

from benchmarks.zoo.registry import Entry
from benchmarks.zoo.torch_exports import as_trained, seeded, write


def export(entry: Entry, file: Path) -> None:
    import timm  # noqa: PLC0415 - it imports torchvision, for which torch_exports prepares

    seeded()
    model = as_trained(timm.create_model(entry.model, pretrained=False))
    write(model, entry.options["shape"], file)
