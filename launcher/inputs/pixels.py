"""Decodes PNG and JPEG files, and nothing else, within a bound of memory.

The format is recognised by the file's first bytes, and only Pillow's plugins for these two are ever
used: its others run Ghostscript, map files, or read far more than an image. What a file states is
checked before anything is allocated for it: a picture has `MOST_PIXELS` at most, and no more than
its bytes can stand for, so that a few kilobytes do not cost hundreds of megabytes.

Memory at its peak, in bytes per pixel: 4 for the picture as Pillow holds it, and either 4 for a
copy of it (another colour space, turned upright) or, while a JPEG file of several scans is decoded,
up to 8 for its coefficients. Metadata come on top (`METADATA_BYTES`).
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, JpegImagePlugin, PngImagePlugin

from cnn.read.regular_files import open_regular
from launcher.inputs.arrays import DEFLATE_RATIO

MOST_PIXELS = 110_000_000
"""What the largest cameras take: 12 000 × 9 000."""

MOST_SIDE = 65_535
"""Pixels of an edge: JPEG has no more."""

MOST_FILE_BYTES = 512 << 20

EXIF_BYTES = 1 << 16
"""What EXIF may have in a JPEG file's segment. Its entries may all refer to the same bytes, and
Pillow copies them for each: 64 KiB become `METADATA_BYTES`."""

METADATA_BYTES = 384 << 20

DECODE_BYTES = 12 * MOST_PIXELS + METADATA_BYTES
"""What decoding a picture may hold beyond its file's own size."""

SMALL_PIXELS = 1 << 24
"""A JPEG file of this size may be as short as it likes; arithmetic coding has no lowest rate."""

JPEG_PIXELS_PER_BYTE = 1024
"""Huffman coding takes a bit for each 64 pixels at least, twice this rate."""

MOST_SCANS = 500
"""Of a JPEG file; a dozen is usual. A scan of 200 bytes makes the decoder visit every pixel."""

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_HEAD_BYTES = 26
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of PNG's colour types."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns a picture upright, by EXIF's orientation."""

_ROWS = 64
"""Rows of 16-bit grey that are scaled at a time."""


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """A JPEG file whose EXIF is not read before its size is checked."""

    def _read_dpi_from_exif(self) -> None:
        """Nobody asks for the resolution in print."""


def decoded(path: Path, mode: str) -> Image.Image:
    """The picture, upright, in Pillow's `mode` (L, RGB or RGBA).

    Raises whatever Pillow raises, and `ValueError` for a file that is not decoded at all.
    """
    with open_regular(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow's about what is odd in a file
        with _opened(file) as image:
            image.load()
            turn = _UPRIGHT.get(_orientation(image))
            picture = _eight_bits(image)
        del image  # of the original, a copy and a turned one, two are there at a time
        if picture.mode != mode:
            picture = picture.convert(mode)
        return picture if turn is None else picture.transpose(turn)


def _opened(file: BinaryIO) -> Image.Image:
    size_bytes = os.fstat(file.fileno()).st_size
    if size_bytes > MOST_FILE_BYTES:
        raise ValueError(f"it is larger than {MOST_FILE_BYTES >> 20} MiB")
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    image: Image.Image
    if head.startswith(_PNG):
        image = PngImagePlugin.PngImageFile(file)
        bits = head[24] * _CHANNELS.get(head[25], 1)
        _check_size(image, bits, 8 * DEFLATE_RATIO * size_bytes)
    elif head.startswith(_JPEG):
        image = _Jpeg(file)
        _check_size(image, 1, max(SMALL_PIXELS, JPEG_PIXELS_PER_BYTE * size_bytes))
        if _scans(file) > MOST_SCANS:
            raise ValueError(f"it has more than {MOST_SCANS} scans, each of the whole picture")
    else:
        raise ValueError("it is neither a PNG nor a JPEG file, whatever it is called")
    return image


def _check_size(image: Image.Image, cost: int, most: int) -> None:
    """Refuse a picture that is too large, or larger than its file can hold (cost × pixels)."""
    width, height = image.size
    if width * height > MOST_PIXELS or max(width, height) > MOST_SIDE:
        raise ValueError(
            f"it has {width}×{height} pixels; at most {MOST_PIXELS // 10**6} million are decoded, "
            f"{MOST_SIDE} along an edge: make it smaller"
        )
    if cost * width * height > most:
        raise ValueError(f"it claims {width}×{height} pixels, more than so short a file can hold")


def _scans(file: BinaryIO) -> int:
    """How often a JPEG file begins a scan: in packed data this marker does not occur."""
    file.seek(0)
    count, before = 0, b""
    while block := file.read(1 << 20):
        count += (before + block).count(b"\xff\xda")
        before = block[-1:]
    return count


def _orientation(image: Image.Image) -> int:
    """EXIF's, 1 where there is none; `ValueError` if there is too much of EXIF."""
    written = image.info.get("exif", b"")
    as_text = image.info.get("Raw profile type exif", "")
    if len(written) > EXIF_BYTES or len(as_text) > 2 * EXIF_BYTES:
        raise ValueError(f"its EXIF data are larger than {EXIF_BYTES >> 10} KiB")
    found: int = image.getexif().get(ExifTags.Base.Orientation, 1)
    return found


def _eight_bits(image: Image.Image) -> Image.Image:
    """Sixteen-bit grey as eight bits: Pillow's own conversion would clip instead of scale."""
    if not image.mode.startswith("I"):
        return image
    width, height = image.size
    scaled = np.empty((height, width), np.uint8)
    for top in range(0, height, _ROWS):
        rows = image.crop((0, top, width, min(height, top + _ROWS)))
        scaled[top : top + _ROWS] = np.asarray(rows).astype(np.uint32) >> 8
    return Image.fromarray(scaled)
