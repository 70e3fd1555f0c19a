"""Declares the source `video`: a file, a camera's address, a device, or what else ffmpeg opens.

`launcher.sources.decoding` decodes it by PyAV, which is imported when the source is opened.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field, model_validator

from launcher.config.ends.looks import is_device
from launcher.config.ends.passwords import from_environment, from_file
from launcher.config.ends.source import Source, SourceConfig
from launcher.config.kinds import ReadFileName, imported
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
    username: Annotated[
        str | None, Field(min_length=1, description="User at the camera, if url names none")
    ] = None
    password_env: Annotated[
        str | None, Field(min_length=1, description="Environment variable with the password")
    ] = None
    password_file: Annotated[
        ReadFileName | None, Field(description="File whose only line is the password")
    ] = None
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
            description="Whether frames arrive even if nobody takes them; by default false for "
            "files and true for all else"
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

    @model_validator(mode="after")
    def _check_access(self) -> VideoConfig:
        given = [self.username, self.password_env, self.password_file]
        if given == [None, None, None]:
            return self
        if not is_address(self.url):
            raise ValueError("username and password are those of an address such as rtsp://…")
        if self.password_env is not None and self.password_file is not None:
            raise ValueError("password_env and password_file contradict each other; remove one")
        user, is_set, _ = _authority(self.url)[0].partition(":")
        if is_set:
            raise ValueError("url has a password already; remove it from there")
        if bool(user) == (self.username is not None):
            raise ValueError("name the user once, by username or in url")
        return self

    def _address(self, folder: Path) -> str:
        """Return the address with the user and the password; raises `BadInputError`."""
        password = from_environment(self.password_env, "password_env") or from_file(
            self.paths(folder).get("password_file"), "password_file"
        )
        if self.username is None and password is None:
            return self.url
        user, server = _authority(self.url)
        scheme, _, rest = self.url.partition("://")
        access = user if self.username is None else quote(self.username, safe="")
        if password is not None:
            access += f":{quote(password, safe='')}"
        place = rest.removeprefix(f"{user}@").removeprefix(server)
        return f"{scheme}://{access}@{server}{place}"

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
                url=self._address(folder),
                path=path,
                format=form,
                options=options,
                timeout_s=self.timeout_s,
                is_live=path is None if self.live is None else self.live,
                description=without_password(self.url) if path is None else str(path),
            )
        )

    def repeats(self, folder: Path) -> bool:
        """See `SourceConfig`."""
        return "url" in self.paths(folder) and not self.live

    def paths(self, folder: Path) -> dict[str, Path]:
        """Return the path if `url` is that of a file, and that of a password.

        Raises `BadInputError` if there is no such video.
        """
        if is_address(self.url) or is_device(self.url):
            return super().paths(folder)
        path = folder / os.path.expanduser(self.url)
        if path.is_file():
            return {"url": path}
        if self.format is not None:  # such as a screen, or a test picture
            return {}
        if not path.exists():
            raise BadInputError(f"there is no file {str(path)!r}; check the path")
        raise BadInputError(f"{str(path)!r} is not a regular file; name another")


def _authority(url: str) -> tuple[str, str]:
    """Return the user of an address, with the password if it has one, and its server."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    user, _, server = authority.rpartition("@")
    return user, server
