"""Keeps the tensors of a few frames on disk, and computes them from each other in another process.

A *stream* is one way to compute the network, such as `whole`, `chain` or a variant. There is one
file for each frame, stream and tensor, because together they may be larger than the memory.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from cnn.layers.views import Bounds
from launcher.errors import RunFailedError
from launcher.results.comparison.tolerance import Numbers
from launcher.run.runtime import Array
from nodes.host.process import python_command

How: TypeAlias = Literal["alike", "mixed", "evenly"]
"""How an input is moved, see `nodes.executors.replay`."""

Level: TypeAlias = Literal["all", "basic", "none", "agent"]
"""How far ONNX Runtime fuses operators; `agent` is an agent's engine as it runs on this machine."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to run a graph with other rounding: with fewer operators fused, or its input `moved`
    by this relative distance."""

    name: str
    level: Level = "all"
    moved: float = 0.0
    how: How = "alike"


def input_variants(numbers: Numbers, level: Level = "all") -> tuple[Variant, ...]:
    """Return the variants of a graph whose input is moved by one unit in the last place."""
    unit = numbers.limits.unit
    if numbers.precision == "8-bit":
        return (
            Variant("up", level, unit, "evenly"),
            Variant("down", level, -unit, "evenly"),
        )
    return (
        Variant("up", level, unit),
        Variant("down", level, -unit),
        Variant("mixed", level, unit, "mixed"),
    )


@dataclass(frozen=True, slots=True)
class TapeStep:
    """The run of one graph on every frame.

    `inputs` maps its tensors to files of the tape and to the bounds (axis, start, stop) of what is
    read from them; `outputs` maps its tensors to files.
    """

    graph: Path
    inputs: Mapping[str, tuple[str, Bounds]]
    outputs: Mapping[str, str]
    variant: Variant = Variant("all")


class Tape:
    """The arrays of `frames` in `folder`, which is created."""

    def __init__(self, folder: Path, frames: Sequence[int]) -> None:
        self.frames = tuple(frames)
        self._folder = folder
        self._numbers: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def file(self, stream: str, tensor: str) -> str:
        """The path of a stream's tensor within the folder of each frame."""
        return f"{stream}/{self._numbers.setdefault(tensor, len(self._numbers))}.npy"

    def put(self, frame: int, stream: str, tensor: str, array: Array) -> None:
        """Write a tensor."""
        path = self._path(frame, stream, tensor)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array, allow_pickle=False)

    def has(self, frame: int, stream: str, tensor: str) -> bool:
        """Whether the tensor was written or computed."""
        return self._path(frame, stream, tensor).exists()

    def get(self, frame: int, stream: str, tensor: str) -> Array:
        """Read a tensor that was written or computed."""
        array: Array = np.load(self._path(frame, stream, tensor), allow_pickle=False)
        return array

    def run(self, steps: Sequence[TapeStep]) -> None:
        """Run `steps` in order on all frames; raises `RunFailedError` if one fails."""
        if not steps:
            return
        job = self._folder / "steps.json"
        data = {
            "folder": str(self._folder),
            "frames": [str(frame) for frame in self.frames],
            "steps": [
                {
                    "graph": str(step.graph),
                    "level": step.variant.level,
                    "moved": step.variant.moved,
                    "how": step.variant.how,
                    "inputs": dict(step.inputs),
                    "outputs": dict(step.outputs),
                }
                for step in steps
            ],
        }
        job.write_text(json.dumps(data), "utf-8")
        self._carry_out(job)

    def _carry_out(self, job: Path) -> None:
        """Run the steps in a file (`nodes.executors.replay`)."""
        command = python_command("nodes.executors.replay", str(job))
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            lines = ran.stderr.strip().splitlines()
            raise RunFailedError(
                "the results could not be compared with the whole model's (--no-verify switches "
                "this off): " + (lines[-1] if lines else f"exit code {ran.returncode}")
            )

    def _path(self, frame: int, stream: str, tensor: str) -> Path:
        return self._folder / str(frame) / self.file(stream, tensor)
