"""Keeps the tensors of a few frames on disk, and computes them from each other in another process.

A *stream* is one way to compute the network, such as `whole` or `chain`. There is one
file for each frame, stream and tensor, because together they may be larger than the memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from cnn.layers.views import Bounds
from launcher.errors import RunFailedError
from nodes.host.process import python_command
from nodes.protocol.payload import Array

Level: TypeAlias = Literal["all", "none", "agent"]
"""How far ONNX Runtime fuses operators; `agent` is an agent's engine as it runs on this machine."""


@dataclass(frozen=True, slots=True)
class TapeStep:
    """The run of one graph on every frame.

    `inputs` maps its tensors to files of the tape and to the bounds (axis, start, stop) of what is
    read from them; `outputs` maps its tensors to files.
    """

    graph: Path
    inputs: Mapping[str, tuple[str, Bounds]]
    outputs: Mapping[str, str]
    level: Level = "all"


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

    def run(
        self, steps: Sequence[TapeStep], on_done: Callable[[int], None] = lambda _: None
    ) -> None:
        """Run `steps` in order on all frames; raises `RunFailedError` if one fails.

        `on_done` is called with the number of runs done; each step has one for every frame.
        """
        if not steps:
            return
        job = self._folder / "steps.json"
        data = {
            "folder": str(self._folder),
            "frames": [str(frame) for frame in self.frames],
            "steps": [
                {
                    "graph": str(step.graph),
                    "level": step.level,
                    "inputs": dict(step.inputs),
                    "outputs": dict(step.outputs),
                }
                for step in steps
            ],
        }
        job.write_text(json.dumps(data), "utf-8")
        self._carry_out(job, on_done)

    def _carry_out(self, job: Path, on_done: Callable[[int], None]) -> None:
        """Run the steps in a file (`nodes.executors.replay`)."""
        nice = shutil.which("nice")  # it gives way to anything that streams or serves meanwhile
        yielding = [] if nice is None else [nice, "-n", "10"]
        command = [*yielding, *python_command("nodes.executors.replay", str(job))]
        with (
            job.with_suffix(".log").open("w+", encoding="utf-8") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        ):
            try:
                for done, _ in enumerate(process.stdout or (), start=1):
                    on_done(done)
                code = process.wait()
            except BaseException:
                process.kill()
                raise
            if code != 0:
                log.seek(0)
                lines = log.read().strip().splitlines()
                raise RunFailedError(
                    "the whole model could not be run for comparison (--no-verify switches it "
                    "off): " + (lines[-1] if lines else f"exit code {code}")
                )

    def _path(self, frame: int, stream: str, tensor: str) -> Path:
        return self._folder / str(frame) / self.file(stream, tensor)
