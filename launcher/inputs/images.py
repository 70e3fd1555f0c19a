"""Decodes PNG and JPEG files within a bound of memory.

An image is turned upright, and fitted to a network's input (`launcher.inputs.fitting`). Its format
is recognised by the file's first bytes, and only Pillow's plugins for PNG and JPEG are used: others
run Ghostscript, map files, or read far more than an image. Before memory is allocated, the size
that a file states is checked: at most `MOST_PIXELS`, and at most what its bytes can encode, so that
a few kilobytes do not cost hundreds of megabytes.

The peak of memory, in bytes per pixel, is 4 for the picture as Pillow holds it, and either 4 for a
copy of it (another colour space, turned upright) or, while a JPEG file of several scans is decoded,
up to 8 for its coefficients; and `METADATA_BYTES` for metadata.
"""

from __future__ import annotations

import os
import warnings
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageFile, JpegImagePlugin, PngImagePlugin

from cnn.reading.regular_files import open_regular
from launcher.errors import BadInputError, reason
from launcher.inputs.arrays import DEFLATE_RATIO
from launcher.inputs.fitting import ImageFormat, fit_picture
from nodes.protocol.payload import Array

MOST_PIXELS = 110_000_000
"""The pixels of the largest cameras: 12 000 × 9 000."""

MOST_SIDE = 65_535
"""The longest edge in pixels, which is JPEG's limit."""

MOST_FILE_BYTES = 512 << 20

EXIF_BYTES = 1 << 16
"""The largest EXIF data in a JPEG file's segment. All its entries may refer to the same bytes,
which Pillow copies for each: 64 KiB become `METADATA_BYTES`."""

METADATA_BYTES = 384 << 20

DECODE_BYTES = 12 * MOST_PIXELS + METADATA_BYTES
"""Memory that decoding a picture may use beyond its file's own size."""

SMALL_PIXELS = 1 << 24
"""Pixels up to which a JPEG file may have any length: arithmetic coding has no lowest rate."""

JPEG_PIXELS_PER_BYTE = 1024
"""The most pixels per byte. Huffman coding takes at least one bit for 64 pixels, half of this."""

MOST_SCANS = 500
"""Scans of a JPEG file; a dozen is usual. A scan of 200 bytes makes the decoder visit every pixel.
"""

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_HEAD_BYTES = 26
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels of PNG's colour types."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The operation that turns a picture upright, by EXIF's orientation."""

_ROWS = 64
"""Rows of 16-bit grey that are scaled at a time."""


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """A JPEG file whose EXIF data is not read before its size is checked."""

    def _read_dpi_from_exif(self) -> None:
        """Do nothing: the resolution in print is not needed."""


def decode_quickly() -> None:
    """Have Pillow use more memory, and less time, for each picture that this process decodes.

    It keeps up to 32 MB of the memory of freed pictures for the next ones. By default it returns
    all of it to the system, and takes the next picture's pages one by one: a JPEG file of
    1920 × 1080 pixels then takes 17 instead of 6 ms. And it moves pixels in blocks of 8 MiB rather
    than 64 KiB, which saves an eighth of the time from that file to an array.
    """
    Image.core.set_blocks_max(2)  # type: ignore[attr-defined] # of 16 MiB; a documented function
    ImageFile.MAXBLOCK = 8 << 20


def decoded(path: Path, mode: str) -> Image.Image:
    """Return the picture, upright, in Pillow's `mode` (L, RGB or RGBA).

    Raises what Pillow raises, and `ValueError` for a file that is refused.
    """
    with open_regular(path) as file:
        return decoded_from(file, mode)


def read_pixels(path: Path) -> Array:
    """Return an image's pixels, upright, uint8 [height, width, 3] in RGB.

    Raises `BadInputError` naming the file.
    """
    try:
        return np.asarray(decoded(path, "RGB"))
    except FileNotFoundError:
        raise BadInputError(f"there is no file {str(path)!r}; check the path") from None
    except Exception as error:  # noqa: BLE001 - Pillow's parsers raise errors of any type
        raise BadInputError(f"{path}: cannot be read as an image: {reason(error, path)}") from None


def pixels_of(content: bytes, *, most_pixels: int = MOST_PIXELS) -> Array:
    """Return the pixels of a PNG or JPEG file's content as `read_pixels` does.

    Raises `BadInputError`, also for an image of more than `most_pixels`.
    """
    try:
        return np.asarray(decoded_from(BytesIO(content), "RGB", most_pixels=most_pixels))
    except Exception as error:  # noqa: BLE001 - Pillow's parsers raise errors of any type
        raise BadInputError(f"the image cannot be read: {reason(error)}") from None


def decoded_from(file: BinaryIO, mode: str, *, most_pixels: int = MOST_PIXELS) -> Image.Image:
    """Return the picture of a file that is open, or in memory, as `decoded` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's about oddities of a file
        with _opened(file, most_pixels) as image:
            image.load()
            turn = _UPRIGHT.get(_orientation(image))
            picture = _eight_bits(image)
        del image  # at most two of the original, a copy and a turned one exist at a time
        if picture.mode != mode:
            picture = picture.convert(mode)
        return picture if turn is None else picture.transpose(turn)


def upright(picture: Image.Image, mode: str) -> Image.Image:
    """Return a picture that is open, turned as its EXIF data say, in Pillow's `mode`.

    Raises what Pillow raises, and `ValueError` for one of too many pixels.
    """
    _check_size(picture, MOST_PIXELS)
    turn = _UPRIGHT.get(_orientation(picture))
    found = _eight_bits(picture)
    if found.mode != mode:
        found = found.convert(mode)
    return found if turn is None else found.transpose(turn)


def _opened(file: BinaryIO, most_pixels: int) -> Image.Image:
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size_bytes > MOST_FILE_BYTES:
        raise ValueError(f"it is larger than {MOST_FILE_BYTES >> 20} MiB")
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    image: Image.Image
    if head.startswith(_PNG):
        image = PngImagePlugin.PngImageFile(file)
        bits = head[24] * _CHANNELS.get(head[25], 1)
        _check_size(image, most_pixels)
        _check_claim(image, bits, 8 * DEFLATE_RATIO * size_bytes)
    elif head.startswith(_JPEG):
        image = _Jpeg(file)
        most = max(SMALL_PIXELS, JPEG_PIXELS_PER_BYTE * size_bytes)
        _check_size(image, most_pixels)
        _check_claim(image, 1, most)
        if _scans(file) > MOST_SCANS:
            raise ValueError(f"it has more than {MOST_SCANS} scans, each of the whole picture")
    else:
        raise ValueError("it is neither a PNG nor a JPEG file, whatever its name says")
    return image


def _check_size(image: Image.Image, most_pixels: int) -> None:
    """Raise `ValueError` if a picture is too large."""
    width, height = image.size
    if width * height > most_pixels or max(width, height) > MOST_SIDE:
        raise ValueError(
            f"it has {width}×{height} pixels, but at most {most_pixels // 10**6} million are "
            f"decoded, {MOST_SIDE} along an edge; make it smaller"
        )


def _check_claim(image: Image.Image, cost: int, most: int) -> None:
    """Raise `ValueError` if a picture needs more than its file has (`most`).

    `cost` is what a pixel needs, in the unit of `most`.
    """
    width, height = image.size
    if cost * width * height > most:
        raise ValueError(f"it claims {width}×{height} pixels, more than so short a file can hold")


def _scans(file: BinaryIO) -> int:
    """Count the scans of a JPEG file by their marker, which cannot occur in packed data."""
    file.seek(0)
    count, before = 0, b""
    while block := file.read(1 << 20):
        count += (before + block).count(b"\xff\xda")
        before = block[-1:]
    return count


def _orientation(image: Image.Image) -> int:
    """Return EXIF's orientation, or 1; raises `ValueError` if the EXIF data is too large."""
    written = image.info.get("exif", b"")
    as_text = image.info.get("Raw profile type exif", "")
    if len(written) > EXIF_BYTES or len(as_text) > 2 * EXIF_BYTES:
        raise ValueError(f"its EXIF data are larger than {EXIF_BYTES >> 10} KiB")
    found: int = image.getexif().get(ExifTags.Base.Orientation, 1)
    return found


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale sixteen-bit grey to eight bits; Pillow's own conversion would clip."""
    if not image.mode.startswith("I"):
        return image
    width, height = image.size
    scaled = np.empty((height, width), np.uint8)
    for top in range(0, height, _ROWS):
        rows = image.crop((0, top, width, min(height, top + _ROWS)))
        scaled[top : top + _ROWS] = np.asarray(rows).astype(np.uint32) >> 8
    return Image.fromarray(scaled)


SUFFIXES = (".png", ".jpg", ".jpeg")


def read_image(path: Path, wanted: ImageFormat) -> Array:
    """Read an image as an array of `wanted.shape` and dtype; raises `BadInputError` naming it."""
    try:
        return fit_picture(decoded(path, wanted.mode), wanted)[0]
    except Exception as error:  # noqa: BLE001 - Pillow's parsers raise errors of any type
        raise BadInputError(f"{path}: cannot be read as an image: {reason(error, path)}") from None
