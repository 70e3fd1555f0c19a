"""Writes each result's outputs as .npy files, with the names that `launch --output` gives them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from launcher.config.ends.sink import FrameResult
from launcher.files import file_suffixes
from launcher.inputs.arrays import npy_parts
from launcher.sinks.files import FrameFilesConfig, FrameFolder


class NpyConfig(FrameFilesConfig):
    """A folder that gets a .npy file per frame and output."""

    kind: ClassVar[str] = "npy"

    def open(self, folder: Path) -> NpySink:
        """Return the sink; the folder is made by the first result."""
        return NpySink(FrameFolder(folder / os.path.expanduser(self.path), self.bound()))


class NpySink:
    """A folder of results."""

    needs_image = False

    def __init__(self, folder: FrameFolder) -> None:
        self._folder = folder

    @property
    def description(self) -> str:
        """The folder."""
        return f"npy {self._folder.folder}"

    def write(self, result: FrameResult) -> None:
        """Write `000007.npy`, or `000007.OUTPUT.npy` if there are several outputs."""
        suffixes = file_suffixes(tuple(result.outputs))
        files = {
            f"{result.index:06d}{suffixes[name]}.npy": npy_parts(array)
            for name, array in result.outputs.items()
        }
        self._folder.write(result.index, result.taken_s, files)

    def close(self) -> None:
        """Unlock the folder."""
        self._folder.close()
