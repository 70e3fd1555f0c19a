"""Reads the only file of a form (multipart/form-data, RFC 7578) whose bytes have all arrived.

Everything that a client may make long is bounded: the parts, the bytes of a part's headers and what
precedes the first boundary. The time is therefore proportional to the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from email.utils import collapse_rfc2231_value

from launcher.serve.errors import RequestError

MOST_PARTS = 16
"""The parts of a form."""

MOST_HEADER_BYTES = 4096
"""Bytes of the headers of a part."""

FORM_BYTES = 32 * 1024
"""Bytes of a form in addition to those of its file."""

_TYPE = "multipart/form-data"
_CONTROLS = bytes((*range(32), 127))


def is_form(content_type: str) -> bool:
    """Whether a body of this type is a form with files."""
    return content_type.lower().startswith(_TYPE)


def only_file(body: bytes, content_type: str) -> tuple[str, bytes]:
    """Return the name and the content of the only file of a form.

    A part is a file if it has a file name, or is an image by its type. Raises `RequestError` for a
    malformed form, and for one without a file or with several.
    """
    files = []
    for number, (head, begin, end) in enumerate(_parts(body, _boundary(content_type)), 1):
        if number > MOST_PARTS:
            raise RequestError(f"a form may have at most {MOST_PARTS} parts")
        place = f"a header of part {number} of the form"
        headers = _headers(head, place)
        name = _parameter(headers, "filename", "Content-Disposition", place)
        if name is not None or headers.get("Content-Type", "").lower().startswith("image/"):
            files.append((name or "", begin, end))
    if len(files) != 1:
        raise RequestError(
            f"the form has {len(files)} files; send one picture as the field 'image'"
        )
    ((name, begin, end),) = files
    return name, body[begin:end]


def _boundary(content_type: str) -> bytes:
    headers = Message()
    headers["Content-Type"] = content_type
    boundary = _parameter(headers, "boundary", "Content-Type", "the Content-Type of the form")
    if not boundary or len(boundary) > 70 or not boundary.isascii():
        raise RequestError("the Content-Type of the form has no boundary of 1 to 70 characters")
    return boundary.encode()


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the headers of each part, and where its content begins and ends in the body."""
    delimiter = b"\r\n--" + boundary
    at = len(delimiter) if body.startswith(delimiter) else len(delimiter) - 2
    if not body.startswith((delimiter, delimiter[2:])):
        raise RequestError("the form does not begin with the boundary that its Content-Type gives")
    while not body.startswith(b"--", at):
        if not body.startswith(b"\r\n", at):
            raise RequestError("a boundary of the form is not followed by the end of its line")
        blank = body.find(b"\r\n\r\n", at, at + MOST_HEADER_BYTES)
        if blank < 0:
            raise RequestError(
                f"a part of the form has no end of its headers within {MOST_HEADER_BYTES} bytes"
            )
        end = body.find(delimiter, blank + 2)
        if end < 0:
            raise RequestError("the form is cut off: its last boundary is missing")
        yield body[at + 2 : blank], min(blank + 4, end), end
        at = end + len(delimiter)


def _headers(head: bytes, place: str) -> Message:
    """Return the headers of a part. Raises `RequestError` unless each is `name: text`."""
    headers = Message()
    for line in head.split(b"\r\n") if head else ():
        name, colon, value = line.partition(b":")
        if not name or not colon:
            raise RequestError(f"{place} has no name and colon")
        headers[_text(name, place)] = _text(value.strip(b" \t"), place)
    return headers


def _text(data: bytes, place: str) -> str:
    """Return UTF-8 as text. Raises `RequestError` for other bytes and for control characters."""
    if data.translate(None, _CONTROLS) != data:
        raise RequestError(f"{place} holds control characters")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RequestError(f"{place} is not UTF-8") from None


def _parameter(headers: Message, name: str, header: str, place: str) -> str | None:
    """Return a parameter of a header, decoded (RFC 2231), or None without it.

    Raises `RequestError` for one that is not text.
    """
    try:
        value = headers.get_param(name, header=header)
        if value is None:
            return None
        data = collapse_rfc2231_value(value).encode()
    except ValueError:  # also for an encoding that Python has but cannot use here
        raise RequestError(f"{place} has a {name} that cannot be decoded") from None
    return _text(data, place)
