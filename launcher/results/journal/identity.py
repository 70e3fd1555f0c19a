"""Identifies the run that a journal belongs to, by all that its results depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from launcher.results.journal.stacks import OutputSpec
from launcher.run.runtime import Frame


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """`model` is its digest (file, weights, seed, input shapes), `inputs` that of all distinct
    frames as they are streamed, `frames` how many there are.

    Nodes, strategy and plan do not belong to it: the run may go on with others.
    """

    model: str
    inputs: str
    frames: int
    outputs: tuple[OutputSpec, ...]

    def as_json(self) -> dict[str, Any]:
        """JSON-like data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunIdentity:
        """What `as_json` gave; raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        outputs = tuple(
            OutputSpec(
                str(o["name"]),
                str(o["file"]),
                str(o["dtype"]),
                tuple(map(int, o["shape"])),
                bool(o.get("varies", False)),
            )
            for o in data["outputs"]
        )
        return cls(str(data["model"]), str(data["inputs"]), int(data["frames"]), outputs)


def differences(journal: RunIdentity, wanted: RunIdentity) -> list[str]:
    """How the run of a journal differs from the one that is wanted, in words."""
    found = []
    if journal.model != wanted.model:
        found.append("its model differs (the file, its weights, or what the model's keys say)")
    elif journal.outputs != wanted.outputs:
        found.append("its model has other outputs")
    if journal.inputs != wanted.inputs:
        found.append("its inputs differ (files, their order, how they are prepared, or the seed)")
    if journal.frames != wanted.frames:
        found.append(f"it has {journal.frames} frames, not {wanted.frames}")
    return found


def frames_digest(frames: Iterable[Frame]) -> str:
    """SHA-256, hexadecimal, of the names, dtypes, shapes and values of these frames in order."""
    digest = hashlib.sha256()
    for frame in frames:
        for name in sorted(frame):
            array = np.ascontiguousarray(frame[name])
            digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
            digest.update(array.data.cast("B") if array.nbytes else b"")
        digest.update(b"\n")
    return digest.hexdigest()
