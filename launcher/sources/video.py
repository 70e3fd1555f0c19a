"""Declares the source `video`: a file, a camera's address, a device, or what else ffmpeg opens.

`launcher.sources.decoding` decodes it by PyAV, which is imported when the source is opened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from launcher.config.ends.looks import is_device
from launcher.config.ends.source import Source, SourceConfig
from launcher.config.kinds import imported
from launcher.config.redaction import is_address, without_password
from launcher.errors import BadInputError


class VideoConfig(SourceConfig):
    """A video file, an address such as rtsp://HOST/PATH, or a device such as /dev/video0."""

    kind: ClassVar[str] = "video"

    url: Annotated[
        str,
        Field(
            min_length=1,
            repr=False,  # it may have a password
            description="A file, an address or a device: what ffmpeg opens",
        ),
    ]
    format: Annotated[
        str | None,
        Field(min_length=1, description="ffmpeg's name of the format; by default it is recognised"),
    ] = None
    transport: Annotated[
        Literal["tcp", "udp", "udp_multicast", "http", "https"],
        Field(description="How an rtsp:// camera sends its video"),
    ] = "tcp"
    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Seconds without a frame after which a live video counts as lost",
        ),
    ] = 10.0
    live: Annotated[
        bool | None,
        Field(
            description="Whether frames are made whether or not they are taken; by default false "
            "for files and true for all else"
        ),
    ] = None
    options: Annotated[
        dict[str, str],
        Field(
            default_factory=dict,
            repr=False,
            description="Further options of ffmpeg by name; the values are text",
        ),
    ]

    def open(self, folder: Path) -> Source:
        """See `SourceConfig`."""
        imported("av", "a video", "stream")
        from launcher.sources.decoding import Opening, VideoSource  # noqa: PLC0415 - slow to import

        path = self.paths(folder).get("url")
        form, options = self.format, dict(self.options)
        if path is None and form is None and is_device(self.url):
            form = "v4l2"
        if self.url.lower().startswith("rtsp"):
            options = {"rtsp_transport": self.transport, **options}
        return VideoSource(
            Opening(
                url=self.url,
                path=path,
                format=form,
                options=options,
                timeout_s=self.timeout_s,
                is_live=path is None if self.live is None else self.live,
                description=without_password(self.url) if path is None else str(path),
            )
        )

    def paths(self, folder: Path) -> dict[str, Path]:
        """Return the path if `url` is that of a file; raises `BadInputError` if there is none."""
        if is_address(self.url) or is_device(self.url):
            return {}
        path = folder / os.path.expanduser(self.url)
        if path.is_file():
            return {"url": path}
        if self.format is not None:  # such as a screen, or a test picture
            return {}
        if not path.exists():
            raise BadInputError(f"there is no file {str(path)!r}; check the path")
        raise BadInputError(f"{str(path)!r} is not a regular file; name another")
