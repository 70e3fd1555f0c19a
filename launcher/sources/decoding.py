"""Decodes a video by PyAV (ffmpeg's libraries) in a separate thread.

libav blocks where Python cannot interrupt it: on a camera that says nothing, in a driver. So
`frames` waits for a thread that decodes, and can leave it. The thread ends by itself when libav
notices its own time-out; it never ends if a driver does not return. The source connects again only
when it has ended, so that there is never more than one.

Frames are handed over one at a time. As in every player, decoding continues after broken parts: a
recording may have lost packets, or be several that were joined. The size that a video states is
checked by libav before it allocates a picture (`max_pixels`), and again before a picture is
converted. No device could be tried where this was written.

Videos come from strangers, and some formats are lists of other files and addresses (HLS, concat,
SDP), which libav would open. So only formats that hold their video themselves are taken, unless the
user has named another. A file is opened here and not by libav, which may then open nothing; for an
address it may use only what carries its scheme, and follow no redirect.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

import av
import numpy as np
from av.packet import Packet
from av.stream import Disposition
from av.video.stream import VideoStream

from cnn.reading.regular_files import open_regular
from launcher.clock import now_s
from launcher.config.ends.source import FrameRefusedError, SourceFrame, SourceLostError
from launcher.config.redaction import is_address
from launcher.errors import BadInputError, LauncherError, reason
from launcher.inputs.images import MOST_PIXELS
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame

_BOUND = {"max_pixels": str(MOST_PIXELS)}

_FORMATS = (
    "apng,asf,av1,avi,cavsvideo,dhav,dirac,dnxhd,dv,flv,gif,gxf,h261,h263,h264,hevc,ifv,ivf,"
    "jpeg_pipe,kux,live_flv,m4v,matroska,mjpeg,mov,mpeg,mpegts,mpegvideo,mpjpeg,mxf,nut,nuv,obu,"
    "ogg,png_pipe,rm,swf,vc1,vc1test,vvc,webp_pipe,wtv,yuv4mpegpipe"
)
"""libav's names of the formats that hold a video and refer to nothing else."""

_FORMATS_OF_SCHEMES = {"rtsp": "rtsp", "rtsps": "rtsp", "satip": "rtsp", "rtp": "rtp", "sap": "sap"}

_BELOW = "tcp,udp,tls"
_PROTOCOLS_OF_SCHEMES = {
    **dict.fromkeys(("rtsp", "rtsps", "satip"), "rtp,srtp,http,https"),
    **dict.fromkeys(("rtp", "srtp", "sap"), "rtp"),
    **dict.fromkeys(("http", "https"), "http,https,crypto,httpproxy"),
    **dict.fromkeys(("rtmpe", "rtmpt", "rtmpte", "rtmpts"), "ffrtmpcrypt,ffrtmphttp,http,https"),
    "mmsh": "http",
}
"""Protocols that libav opens for an address of a scheme, beyond the scheme itself and `_BELOW`."""

_LASTING = (
    av.error.ProtocolNotFoundError,
    av.error.DemuxerNotFoundError,
    av.error.DecoderNotFoundError,
    av.error.OptionNotFoundError,
    av.error.HTTPUnauthorizedError,
    av.error.HTTPForbiddenError,
)
"""Errors that another attempt would not change."""


@dataclass(frozen=True)
class Opening:
    """The video to decode, and how; `path` is the file, None if libav opens `url` itself."""

    url: str
    path: Path | None
    format: str | None
    options: Mapping[str, str]
    timeout_s: float
    is_live: bool
    description: str


class VideoSource:
    """Frames of one video; implements `launcher.config.ends.source.Source`.

    Each frame of a video that is not live is yielded or refused once: after a refused one, another
    call of `frames` continues, and else it decodes from the beginning and passes over what it gave.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self.description = opening.description
        self.is_live = opening.is_live
        self._given = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._decoder: _Decoder | None = None
        self._goes_on = False
        """Whether the decoder has refused a frame, and waits to be asked for the next."""

    def frames(self) -> Iterator[SourceFrame]:
        """See `Source`."""
        decoder = self._connected()
        if decoder is None:
            return
        timeout_s = self._opening.timeout_s
        wait_s = 2 * timeout_s  # libav opens the address, and then finds its streams
        try:
            while (frame := decoder.take(wait_s if self.is_live else None)) is not None:
                wait_s = timeout_s
                self._given += 1
                yield frame
        except FrameRefusedError:
            self._given += 1
            self._goes_on = True
            raise
        finally:
            if not self._goes_on:
                decoder.leave()

    def close(self) -> None:
        """See `Source`."""
        with self._changed:
            self._is_closed = True
            if self._decoder is not None:
                self._decoder.leave()
            self._changed.notify_all()

    def _connected(self) -> _Decoder | None:
        """Start a thread that decodes, or continue; returns None if the source is closed."""
        with self._changed:
            last = self._decoder
            if self._goes_on:
                self._goes_on = False
                return last
            if last is not None:
                has_ended = self._changed.wait_for(
                    lambda: last.is_over or self._is_closed,
                    self._opening.timeout_s if self.is_live else None,
                )
                if not has_ended:
                    raise SourceLostError(f"{self.description}: the last attempt has not ended yet")
            if self._is_closed:
                return None
            passed_over = 0 if self.is_live else self._given
            self._decoder = _Decoder(self._opening, passed_over, self._changed)
            self._decoder.start()
            return self._decoder


class _Decoder(threading.Thread):
    """Decodes a video until it ends or is left, and hands over one frame at a time."""

    def __init__(self, opening: Opening, passed_over: int, changed: threading.Condition) -> None:
        super().__init__(name="csdf-edge video", daemon=True)
        self._opening = opening
        self._passed_over = passed_over
        self._changed = changed
        self._frame: SourceFrame | FrameRefusedError | None = None
        self._error: LauncherError | None = None
        self._is_left = False
        self.is_over = False

    # ------------------------------------------------------------ the thread that takes

    def take(self, timeout_s: float | None) -> SourceFrame | None:
        """Return the next frame; None after the last one, and once this was left.

        Raises `FrameRefusedError` in place of one that is broken, and what ended the decoding.
        """
        with self._changed:
            is_there = self._changed.wait_for(
                lambda: self._frame is not None or self.is_over or self._is_left, timeout_s
            )
            if self._is_left:
                return None
            if not is_there:
                raise self._lost(f"no frame arrived for {timeout_s:g} s")
            if self._frame is None and self._error is not None:
                raise self._error
            frame, self._frame = self._frame, None
            self._changed.notify_all()
        if isinstance(frame, FrameRefusedError):
            raise frame
        return frame

    def leave(self) -> None:
        """Take no more frames."""
        with self._changed:
            self._is_left = True
            self._frame = None
            self._changed.notify_all()

    # ------------------------------------------------------------ the thread that decodes

    def run(self) -> None:
        """Decode; errors are raised where frames are taken."""
        try:
            self._decode()
        except LauncherError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - PyAV raises errors of any type
            self._error = self._sentence(error)
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def _hand_over(self, frame: SourceFrame | FrameRefusedError) -> bool:
        """Wait until the last frame is taken; returns False if this was left."""
        with self._changed:
            self._changed.wait_for(lambda: self._frame is None or self._is_left)
            if not self._is_left:
                self._frame = frame
                self._changed.notify_all()
            return not self._is_left

    def _decode(self) -> None:
        given = 0
        with ExitStack() as stack:
            container = self._opened(stack)
            stream = self._video(container)
            times = _Times(stream)
            for found in self._found(container, stream):
                media_s = None if isinstance(found, str) else times.of(found)
                given += 1
                if given <= self._passed_over:
                    continue
                if not self._hand_over(
                    FrameRefusedError(f"{self._opening.description}: {found}")
                    if isinstance(found, str)
                    else SourceFrame(_upright(found), now_s(), media_s=media_s)
                ):
                    return

    def _opened(self, stack: ExitStack) -> InputContainer:
        given = self._opening
        options = {**_allowed(given), **given.options, **_BOUND}
        try:
            if given.path is None:
                address, timeout_s = given.url, given.timeout_s
                container = av.open(
                    address,
                    "r",
                    given.format,
                    options,
                    metadata_errors="replace",
                    timeout=timeout_s,
                )
            else:
                file = stack.enter_context(open_regular(given.path))
                container = av.open(
                    _Seeking(file), "r", given.format, options, metadata_errors="replace"
                )
        except av.error.ArgumentError:
            what = (
                f"{given.description}: cannot be read as a video: it is not valid, or has a format "
                "that refers to other files and addresses, as a playlist does"
            )
            trust = "" if given.path else "; name the format, such as hls, if you trust its server"
            raise BadInputError(what + trust) from None
        return stack.enter_context(container)

    def _video(self, container: InputContainer) -> VideoStream:
        stream = container.streams.best("video")  # the first may be the picture of a cover
        if not isinstance(stream, VideoStream) or stream.disposition & Disposition.attached_pic:
            raise self._unusable("holds no video")
        codec = stream.codec_context
        if codec is None:
            raise self._unusable("is truncated, or packed by a method that PyAV cannot decode")
        self._check(codec.width, codec.height)
        codec.options = {**self._opening.options, **_BOUND}
        # Threads that decode several frames at once would hold some back when one is broken, and
        # PyAV drops those: what remains are PyAV's threads for the slices of one frame.
        return stream

    def _check(self, width: int, height: int) -> None:
        if width * height > MOST_PIXELS:
            raise self._unusable(
                f"has {width}×{height} pixels, but at most {MOST_PIXELS // 10**6} million are "
                "decoded"
            )

    def _found(self, container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame | str]:
        """Yield the pictures, and for a video that is not live, what is wrong with each broken one.

        The decoder knows which frames are broken. Packets that the container calls broken may be
        whole, as where two recordings were joined; but a file whose last packet is broken was cut.
        """
        packets = (packet for packet in container.demux(stream) if packet.size)
        last: Packet[Any] = Packet()  # an empty one brings what the decoder still has
        if stream.time_base is not None:
            last.time_base = stream.time_base
        pictures, wrong, is_cut = 0, "", False
        ended: Exception | None = None
        packet: Packet[Any] | None = None
        while packet is not last:
            try:
                packet = next(packets, last)
            except Exception as error:  # noqa: BLE001 - PyAV raises errors of any type
                packet, ended = last, error
            is_cut = is_cut if packet is last else packet.is_corrupt
            if self._is_left:
                return
            for found in self._decoded(stream, packet):
                if not isinstance(found, str):
                    self._check(found.width, found.height)
                    pictures += 1
                    yield found
                else:
                    wrong = wrong or found
                    if not self._opening.is_live:
                        yield found
        if self._opening.is_live:
            raise ended or self._lost("the stream has ended")
        if not pictures:
            raise ended or self._unusable(
                f"holds no picture that can be decoded: {wrong}" if wrong else "holds no picture"
            )
        if ended is not None or is_cut:
            what = "a part of it is missing" if ended is None else _words(ended)
            raise self._unusable(f"is broken after {pictures} frames: {what}")

    @staticmethod
    def _decoded(stream: VideoStream, packet: Packet[Any]) -> Iterator[VideoFrame | str]:
        """Decode a packet, and yield what is wrong in place of a broken frame."""
        try:
            frames = stream.decode(packet)
        except av.error.EOFError:  # the decoder has no frame left
            return
        except Exception as error:  # noqa: BLE001 - PyAV raises errors of any type
            yield _words(error)
            return
        for frame in frames:
            yield "a part of it is missing" if frame.is_corrupt else frame

    def _lost(self, what: str) -> SourceLostError:
        return SourceLostError(f"{self._opening.description}: {what}")

    def _unusable(self, what: str) -> LauncherError:
        if self._opening.is_live:
            return self._lost(what)
        return BadInputError(f"{self._opening.description}: {what}")

    def _sentence(self, error: Exception) -> LauncherError:
        words = _words(error)
        if isinstance(error, av.error.ExitError):  # by this error PyAV ends libav's wait
            words = f"no answer arrived for {self._opening.timeout_s:g} s"
        if isinstance(error, OSError) and error.errno == errno.EIO:  # libav's for many causes
            if unknown := _unknown_host(self._opening.url):
                words = unknown
            elif _is_http(self._opening.url):
                words += " (redirects to other addresses are not followed; give the address itself)"
        if self._opening.path is not None:
            return BadInputError(f"{self._opening.description}: cannot be read as a video: {words}")
        if isinstance(error, _LASTING):
            return BadInputError(f"{self._opening.description}: {words}")
        return self._lost(words)


def _allowed(opening: Opening) -> dict[str, str]:
    """Return the options that say which formats and protocols libav may use."""
    scheme = opening.url.partition("://")[0].lower() if is_address(opening.url) else ""
    formats = f"{_FORMATS},{opening.format or _FORMATS_OF_SCHEMES.get(scheme, '')}"
    if opening.path is not None:
        return {"format_whitelist": formats, "protocol_whitelist": ""}
    if not scheme:  # a device, or what a format makes of the user's own text
        return {"format_whitelist": formats}
    protocols = f"{scheme},{_BELOW},{_PROTOCOLS_OF_SCHEMES.get(scheme, '')}"
    redirects = {"max_redirects": "0"} if _is_http(opening.url) else {}
    return {"format_whitelist": formats, "protocol_whitelist": protocols, **redirects}


def _unknown_host(url: str) -> str | None:
    """Return a sentence if the name of an address's host has no IP address."""
    try:
        host = urlsplit(url).hostname if is_address(url) else None
        if host is not None:
            socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        return f"the host {host!r} is unknown ({error.strerror})"
    except ValueError:  # an address as only libav reads it
        pass
    return None


def _is_http(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


class _Seeking:
    """A file in which a broken video may seek for any place; PyAV prints what a file raises."""

    def __init__(self, file: BinaryIO) -> None:
        self.name, self.read, self.tell = file.name, file.read, file.tell
        self._seek = file.seek

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Return the new position, -1 if there is none."""
        try:
            return self._seek(offset, whence)
        except (OSError, ValueError):
            return -1


class _Times:
    """Presentation times in seconds from a video's beginning."""

    def __init__(self, stream: VideoStream) -> None:
        start, unit = stream.start_time, stream.time_base
        self._begin = None if start is None or unit is None else start * unit
        self._last: Fraction | None = None

    def of(self, frame: VideoFrame) -> float | None:
        """Return a frame's time; None if it has none, or none after that of the frame before."""
        if frame.pts is None or frame.time_base is None:
            return None
        at = frame.pts * frame.time_base
        if self._begin is None:
            self._begin = at
        if self._last is not None and at <= self._last:
            return None
        self._last = at
        return float(at - self._begin)


def _upright(frame: VideoFrame) -> Array:
    """Return the pixels, uint8 [height, width, 3], turned as the video says."""
    pixels = frame.to_ndarray(format="rgb24")
    turns = round(frame.rotation / 90) % 4
    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


def _words(error: Exception) -> str:
    """The text of PyAV's error, without the address, which may have a password."""
    if isinstance(error, av.error.ArgumentError):
        return f"it is not valid, or has more than {MOST_PIXELS // 10**6} million pixels"
    if isinstance(error, av.error.FFmpegError):
        return error.strerror or type(error).__name__
    return reason(error)
