"""Writes each frame's image, with the predictions drawn on it, as a JPEG or PNG file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from launcher.config.ends.sink import FrameResult
from launcher.config.kinds import imported
from launcher.files import plain_name
from launcher.sinks.files import FrameFilesConfig, FrameFolder


class ImagesConfig(FrameFilesConfig):
    """A folder that gets an annotated image per frame."""

    kind: ClassVar[str] = "images"

    format: Annotated[Literal["jpeg", "png"], Field(description="Format of the files")] = "jpeg"
    quality: Annotated[
        int, Field(ge=1, le=100, description="Quality of JPEG files; 100 is the best")
    ] = 90

    def open(self, folder: Path) -> ImagesSink:
        """Return the sink; raises `BadInputError` if OpenCV is not installed."""
        imported("cv2", "the sink images", "stream")
        where = folder / os.path.expanduser(self.path)
        suffix = {"jpeg": ".jpg", "png": ".png"}[self.format]
        return ImagesSink(FrameFolder(where, self.bound()), suffix, self.quality)


class ImagesSink:
    """A folder of annotated images."""

    needs_image = True

    def __init__(self, folder: FrameFolder, suffix: str, quality: int) -> None:
        self._folder = folder
        self._suffix, self._quality = suffix, quality

    @property
    def description(self) -> str:
        """The folder."""
        return f"images {self._folder.folder}"

    def write(self, result: FrameResult) -> None:
        """Write `000007.jpg`, or `000007-NAME.jpg` if the frame has a name."""
        from launcher.sinks.drawing import encoded  # noqa: PLC0415 - needs an extra

        content = encoded(result, self._suffix, self._quality)
        name = plain_name(Path(result.name).stem)
        stem = f"{result.index:06d}-{name}" if name else f"{result.index:06d}"
        self._folder.write(result.index, result.taken_s, {stem + self._suffix: (content,)})

    def close(self) -> None:
        """Unlock the folder."""
        self._folder.close()
