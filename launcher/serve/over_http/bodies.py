"""Reads the bodies of requests: in time, within a bound, and inflated if they are compressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web

from launcher.errors import shortened
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.over_http.form import LENGTH_HEADER
from launcher.serve.room import Progress, TransferRoom

BUFFER_BYTES = 32 * 1024
"""The bytes that aiohttp reads ahead of a body."""

LARGE_JSON_BYTES = 1 << 20
"""A body that is read in another thread, because that takes long."""

ENCODINGS = ("gzip", "deflate")
"""The encodings in which Triton's clients compress bodies."""

T = TypeVar("T")


@dataclass(frozen=True)
class Bodies:
    """Reads the body of `request`, which has a place in `room` meanwhile, within `limit_s`."""

    room: TransferRoom
    limit_s: float
    request: web.BaseRequest

    async def read(
        self,
        most_bytes: int,
        why: str,
        use: Callable[[bytes], T],
        *,
        in_thread: bool = False,
    ) -> T:
        """Return what `use` makes of the body, inflated; in another thread if that takes long.

        Raises `RequestError` for more than `most_bytes`, and `why` completes its sentence.
        """
        request = self.request
        encoding = self._encoding()
        too_large = _too_large(most_bytes, why)
        length = self._begin(most_bytes, too_large)

        async def read(progress: Progress) -> bytes:
            size_bytes = 0
            parts: list[bytes] = []
            try:
                async for part in request.content.iter_any():
                    progress(len(part))
                    size_bytes += len(part)
                    if size_bytes > most_bytes:
                        raise too_large
                    parts.append(part)
                return b"".join(parts)
            finally:
                parts.clear()  # an error may live longer, and with it this frame

        def use_inflated(body: bytes) -> T:
            return use(_inflated(body, most_bytes, too_large))

        size_bytes = length if length and encoding == "identity" else most_bytes
        try:
            if encoding != "identity":
                return await self.room.hold_and_read(size_bytes, read, self.limit_s, use_inflated)
            if in_thread or (
                size_bytes > LARGE_JSON_BYTES and LENGTH_HEADER not in request.headers
            ):
                return await self.room.hold_and_read(size_bytes, read, self.limit_s, use)
            return use(await self.room.hold(size_bytes, read, self.limit_s))
        except (web.RequestPayloadError, ConnectionError) as error:
            raise _unreadable(error) from None

    def _encoding(self) -> str:
        encoding = self.request.headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("identity", *ENCODINGS):
            raise RequestError(
                f"Content-Encoding is {shortened(encoding)!r}; send the body as it is, or as "
                + " or ".join(ENCODINGS),
                Refusal.UNSUPPORTED,
            )
        return encoding

    def _begin(self, most_bytes: int, too_large: RequestError) -> int:
        """Return the body's stated length, or 0, and have a client that waits for it send it."""
        request = self.request
        if (length := request.content_length or 0) > most_bytes:
            raise too_large
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return length


def _too_large(most_bytes: int, why: str) -> RequestError:
    return RequestError(f"the body is larger than {most_bytes} bytes, {why}", Refusal.TOO_LARGE)


def _unreadable(error: Exception) -> RequestError:
    return RequestError(f"the body cannot be read: {shortened(str(error))}")


def _inflated(body: bytes, most_bytes: int, too_large: RequestError) -> bytes:
    """Inflate a body of gzip or zlib, and no more of it than it may have."""
    inflating = zlib.decompressobj(zlib.MAX_WBITS | 32)
    parts, size_bytes = [], 0
    with suppress(zlib.error):
        for at in range(0, len(body), BUFFER_BYTES):
            rest = body[at : at + BUFFER_BYTES]
            while rest and not inflating.eof:
                parts.append(inflating.decompress(rest, BUFFER_BYTES))
                rest = inflating.unconsumed_tail
                size_bytes += len(parts[-1])
                if size_bytes > most_bytes:
                    raise too_large
            if inflating.eof and at + BUFFER_BYTES >= len(body) and not inflating.unused_data:
                return b"".join(parts)
    raise RequestError("the body is not compressed as its Content-Encoding says, or is cut off")
