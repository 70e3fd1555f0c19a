"""Writes the frames' images, with the predictions drawn on them, as a video in segments.

A segment is a fragmented MP4 file, to which every frame is appended as one fragment. Appended bytes
are never changed, no ending is needed, and players show such a file up to where a crash cut it off.
FFmpeg completes a fragment when the next frame comes, so a crash loses one frame.

FFmpeg writes to memory, and this module appends that to the file. If the disk is full, the bytes of
the last frame wait there, and the next attempt appends them. No frame is encoded twice.

Times in a segment count from its first frame: differences of `media_s` where the source has it,
else of `taken_s`. The file's comment has the index and both times of that frame, as JSON.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from launcher.config.ends.sink import FrameResult, ResultRefusedError, SinkConfig
from launcher.config.kinds import FileName, imported
from launcher.config.units import Bytes
from launcher.errors import reason
from launcher.sinks.files import UNBOUNDED, NumberedFiles, own_folder, write_all, writing
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

TIME_BASE = Fraction(1, 60_000)
"""Unit of the times of frames. MPEG-4 Visual allows none that is smaller than 1/65535 s."""

_MP4 = {
    "movflags": "empty_moov+default_base_moof+frag_every_frame+skip_trailer",
    "flush_packets": "1",
}


class VideoSinkConfig(SinkConfig):
    """A folder that gets an annotated video in segments."""

    kind: ClassVar[str] = "video"

    path: Annotated[FileName, Field(description="Folder that the segments are written to")]
    segment_s: Annotated[
        float, Field(gt=0, le=86400, description="Seconds of video until a new segment begins")
    ] = 60.0
    keep_files: Annotated[
        int | None, Field(ge=0, le=100_000, description="Number of full segments that are kept")
    ] = None
    keep_bytes: Annotated[
        Bytes,
        Field(
            description="Maximum size of all segments together; each has at most a quarter of it"
        ),
    ] = None

    def open(self, folder: Path) -> VideoSink:
        """Return the sink; raises `BadInputError` if PyAV or OpenCV is not installed."""
        imported("av", "the sink video", "stream")
        imported("cv2", "the sink video", "stream")
        path = folder / os.path.expanduser(self.path)
        keep_files = UNBOUNDED if self.keep_files is None else self.keep_files
        return VideoSink(path, self.segment_s, keep_files, self.keep_bytes or UNBOUNDED)


class VideoSink:
    """A folder of segments, the last of which is being written."""

    needs_image = True

    def __init__(self, folder: Path, segment_s: float, keep_files: int, keep_bytes: int) -> None:
        self._folder = folder
        self._segment_s, self._keep_bytes = segment_s, keep_bytes
        self._deletes = min(keep_files, keep_bytes) < UNBOUNDED
        self._full = NumberedFiles(folder, "", ".mp4", keep_files, keep_bytes)
        self._segment: _Segment | None = None
        self._owner: int | None = None

    @property
    def description(self) -> str:
        """The folder."""
        return f"video {self._folder}"

    def write(self, result: FrameResult) -> None:
        """Append the frame to the current segment, or to a new one."""
        from launcher.sinks.drawing import annotated  # noqa: PLC0415 - needs an extra

        image = _with_even_sides(annotated(result))
        time_s = result.taken_s if result.media_s is None else result.media_s
        with writing(self._folder):
            if self._segment is not None:
                self._append(self._segment)
                if self._segment.last_index == result.index:
                    return  # an earlier attempt has encoded it
                if self._is_full(self._segment, image, time_s):
                    self._finish(self._segment)
            if self._segment is None:
                self._segment = self._begun(result, image, time_s)
            self._encode(self._segment, result.index, image, time_s)
            self._append(self._segment)

    def _is_full(self, segment: _Segment, image: Array, time_s: float) -> bool:
        return (
            segment.is_ended
            or image.shape != segment.shape
            or not segment.last_s < time_s < segment.began_s + self._segment_s
            or segment.size_bytes > self._keep_bytes // 4
        )

    def _begun(self, result: FrameResult, image: Array, time_s: float) -> _Segment:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._deletes and self._owner is None:
            self._owner = own_folder(self._folder)
        self._full.find()
        self._full.make_room(0)
        number = self._full.next_number()
        about = {"index": result.index, "taken_s": result.taken_s, "media_s": result.media_s}
        return _Segment(number, self._full.path(number), image.shape, time_s, json.dumps(about))

    def _encode(self, segment: _Segment, index: int, image: Array, time_s: float) -> None:
        from av.error import FFmpegError  # noqa: PLC0415 - needs an extra

        try:
            segment.encode(index, image, time_s)
        except (FFmpegError, ValueError) as error:
            segment.is_ended = True
            raise ResultRefusedError(
                f"frame {index}: an image of {image.shape[1]} × {image.shape[0]} pixels cannot be "
                f"encoded: {reason(error)}"
            ) from error

    def _append(self, segment: _Segment) -> None:
        """Append what FFmpeg has written; all of it or nothing."""
        size_bytes = segment.size_bytes + len(segment.pending)
        if size_bytes > self._keep_bytes:
            self._drop(segment)
            raise ResultRefusedError(f"{self.description}: a frame is larger than keep_bytes")
        self._full.make_room(size_bytes)
        segment.append()

    def _drop(self, segment: _Segment) -> None:
        segment.close()
        self._full.path(segment.number).unlink(missing_ok=True)
        self._segment = None

    def _finish(self, segment: _Segment) -> None:
        segment.end()
        self._append(segment)
        segment.close()
        self._full.add(segment.number, segment.size_bytes)
        self._full.make_room(0)
        self._segment = None

    def close(self) -> None:
        """Complete the segment, and unlock the folder.

        If the disk is full, the last frame is lost; the segment can be played without it.
        """
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.end()
            with suppress(OSError, ResultRefusedError):
                self._append(segment)
            segment.close()
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


class _Segment:
    """A file, an encoder, and the bytes that it has made and the file has not."""

    def __init__(
        self, number: int, path: Path, shape: tuple[int, ...], began_s: float, comment: str
    ) -> None:
        """Create the file; raises `OSError`."""
        self.number, self.shape = number, shape
        self.began_s = began_s
        self.last_s = -float("inf")
        self.last_index: int | None = None
        self.size_bytes = 0
        self.is_ended = False
        """Whether no further frame can be appended."""
        self._comment = comment
        self._memory = _Memory()
        self._container: OutputContainer | None = None
        self._stream: VideoStream | None = None
        self._last_time = -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)

    @property
    def pending(self) -> bytes:
        """The bytes to append to the file."""
        return self._memory.content

    def encode(self, index: int, image: Array, time_s: float) -> None:
        """Encode an image, uint8 [height, width, 3] in RGB with even sides."""
        from av import VideoFrame  # noqa: PLC0415 - needs an extra

        if self._container is None or self._stream is None:
            self._container, self._stream = self._opened()
        frame = VideoFrame.from_ndarray(image, format="rgb24")
        self._last_time = max(self._last_time + 1, round((time_s - self.began_s) / TIME_BASE))
        frame.pts, frame.time_base = self._last_time, TIME_BASE
        self._container.mux(self._stream.encode(frame))
        self.last_s, self.last_index = time_s, index

    def _opened(self) -> tuple[OutputContainer, VideoStream]:
        import av  # noqa: PLC0415 - needs an extra

        container: OutputContainer = av.open(self._memory, "w", format="mp4", options=_MP4)
        container.metadata["comment"] = self._comment
        height, width = self.shape[:2]
        codec, options = _encoder()
        stream: Any = container.add_stream(codec, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = stream.codec_context.time_base = TIME_BASE
        stream.codec_context.max_b_frames = 0  # each frame leaves the encoder at once
        stream.codec_context.gop_size = 60
        if codec != "libx264":
            stream.bit_rate = 4 * width * height
        return container, stream

    def end(self) -> None:
        """Let the encoder and FFmpeg write their remaining frames."""
        from av.error import FFmpegError  # noqa: PLC0415 - needs an extra

        self.is_ended = True
        container, self._container = self._container, None
        if container is not None and self._stream is not None:
            with suppress(FFmpegError):  # of an encoder that could not be opened
                container.mux(self._stream.encode(None))
            with suppress(FFmpegError):
                container.close()

    def append(self) -> None:
        """Append what is pending to the file; raises `OSError` and leaves the file as it was."""
        try:
            write_all(self._descriptor, self.pending)
        except BaseException:
            os.ftruncate(self._descriptor, self.size_bytes)
            raise
        self.size_bytes += len(self.pending)
        self._memory.content = b""

    def close(self) -> None:
        """Close the file; nothing the second time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class _Memory:
    """A file for FFmpeg, which cannot seek in it."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> int:
        """Take everything."""
        self.content += data
        return len(data)


def _encoder() -> tuple[str, dict[str, str]]:
    """H.264 if FFmpeg has x264, else MPEG-4 Visual."""
    from av.codec import codecs_available  # noqa: PLC0415 - needs an extra

    if "libx264" in codecs_available:
        return "libx264", {"preset": "veryfast", "tune": "zerolatency"}
    return "mpeg4", {}


def _with_even_sides(image: Array) -> Array:
    """Repeat the last row and column where the number of rows or columns is odd."""
    height, width = image.shape[:2]
    return np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
