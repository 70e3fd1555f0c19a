"""Identifies the run to which a journal belongs, by everything that its results depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launcher.results.journal.result_files import OutputSpec


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Everything on which the results of a run depend.

    `model` is the model's digest (file, weights, seed, input shapes), `inputs` the digest of all
    distinct frames as they are streamed, `frames` the number of frames. Nodes, strategy and plan
    are left out, because the run may continue with others.
    """

    model: str
    inputs: str
    frames: int
    outputs: tuple[OutputSpec, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the identity as JSON-like data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunIdentity:
        """Read the data of `as_json`; raises `KeyError`, `TypeError` or `ValueError` for others."""
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
    """Return clauses on how the run of a journal differs from the one that is wanted."""
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
