"""Decodes PNG and JPEG files and turns them into a network's input, within a bound of memory.

An image is turned upright, resized, put in the input's layout, scaled and normalised. Its format is
recognised by the file's first bytes, and only Pillow's plugins for PNG and JPEG are used: others
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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageOps, JpegImagePlugin, PngImagePlugin

from cnn.network import Tensor
from cnn.reading.regular_files import open_regular
from launcher.config.cluster import InputConfig, PerChannel
from launcher.errors import BadInputError, reason
from launcher.inputs.arrays import DEFLATE_RATIO
from launcher.run.runtime import Array

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
"""Up to so many pixels, a JPEG file may have any length: arithmetic coding has no lowest rate."""

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
    except Exception as error:  # noqa: BLE001 - Pillow's parsers raise errors of any type
        raise BadInputError(f"{path}: cannot be read as an image: {reason(error)}") from None


def decoded_from(file: BinaryIO, mode: str) -> Image.Image:
    """Return the picture of a file that is open, or in memory, as `decoded` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's about oddities of a file
        with _opened(file) as image:
            image.load()
            turn = _UPRIGHT.get(_orientation(image))
            picture = _eight_bits(image)
        del image  # at most two of the original, a copy and a turned one exist at a time
        if picture.mode != mode:
            picture = picture.convert(mode)
        return picture if turn is None else picture.transpose(turn)


def _opened(file: BinaryIO) -> Image.Image:
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
        _check_size(image, bits, 8 * DEFLATE_RATIO * size_bytes)
    elif head.startswith(_JPEG):
        image = _Jpeg(file)
        _check_size(image, 1, max(SMALL_PIXELS, JPEG_PIXELS_PER_BYTE * size_bytes))
        if _scans(file) > MOST_SCANS:
            raise ValueError(f"it has more than {MOST_SCANS} scans, each of the whole picture")
    else:
        raise ValueError("it is neither a PNG nor a JPEG file, whatever its name says")
    return image


def _check_size(image: Image.Image, cost: int, most: int) -> None:
    """Raise `ValueError` if a picture is too large, or needs more than its file has (`most`).

    `cost` is what a pixel needs, in the unit of `most`.
    """
    width, height = image.size
    if width * height > MOST_PIXELS or max(width, height) > MOST_SIDE:
        raise ValueError(
            f"it has {width}×{height} pixels, but at most {MOST_PIXELS // 10**6} million are "
            f"decoded, {MOST_SIDE} along an edge; make it smaller"
        )
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

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's training pixels in 0..1, red, green, blue, with which
almost every classifier of photographs was trained."""

_MODES = {3: "RGB", 1: "L", 4: "RGBA"}
"""Pillow's modes by number of channels, the likeliest first."""

_COLORS = {1: "grey", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class ImageFormat:
    """How an image becomes the array that a network's input needs.

    Each channel becomes (pixel / 255 × `scale` − `mean`) / `std`; a `uint8` input takes pixels as
    they are. `channel_axis` counts in the shape without its batch axis; it is None for grey images
    without such an axis.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    height: int
    width: int
    channels: int
    channel_axis: int | None
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: str
    colors: str

    @property
    def description(self) -> str:
        """What happens to every image, in words."""
        fitted = {"crop": "cropped", "pad": "padded", "stretch": "stretched"}[self.resize]
        colors = "BGR" if self.channels == 3 and self.colors == "bgr" else _COLORS[self.channels]
        parts = [f"{fitted} to {self.height}×{self.width}", colors]
        if self.dtype == np.uint8:
            return ", ".join((*parts, "pixels as they are (0..255)"))
        parts.append(f"0..{self.scale:g}")
        if any(self.mean) or any(value != 1 for value in self.std):
            if (sorted(self.mean), sorted(self.std)) == (
                sorted(IMAGENET_MEAN), sorted(IMAGENET_STD)
            ):  # fmt: skip
                parts.append("normalised with ImageNet's mean and deviation")
            else:
                parts.append("normalised with the given mean and std")
        return ", ".join(parts)


def image_format(
    tensor: Tensor, config: InputConfig, *, is_classifier: bool, where: str
) -> ImageFormat:
    """Return the format of a network's input, which follows from its shape and the user's settings.

    A classifier of three-channel floating-point images gets ImageNet's mean and deviation unless
    `scale`, `mean` or `std` is set. Raises `BadInputError`, whose message begins with `where`, if
    the tensor is not an image or a setting does not suit it.
    """
    dtype = np.dtype(tensor.dtype)
    if dtype != np.uint8 and not np.issubdtype(dtype, np.floating):
        raise BadInputError(
            f"{where}: the model's input {tensor.name!r} is {tensor.dtype}, "
            "which images cannot be converted to; use .npy files"
        )
    height, width, channels, axis = _layout(tensor, config.layout, where)
    colored = channels == 3 and dtype != np.uint8
    untouched = config.scale is None and config.mean is None and config.std is None
    if dtype == np.uint8 and not untouched:
        raise BadInputError(
            f"{where}: the model's input {tensor.name!r} takes pixels as they are (uint8); "
            "remove scale, mean and std"
        )
    mean: PerChannel = 0.0 if config.mean is None else config.mean
    std: PerChannel = 1.0 if config.std is None else config.std
    if colored and untouched and is_classifier:
        step = -1 if config.colors == "bgr" else 1
        mean, std = IMAGENET_MEAN[::step], IMAGENET_STD[::step]
    return ImageFormat(
        shape=tensor.shape,
        dtype=dtype,
        height=height,
        width=width,
        channels=channels,
        channel_axis=axis,
        scale=1.0 if config.scale is None else config.scale,
        mean=_per_channel("mean", mean, channels, where),
        std=_per_channel("std", std, channels, where),
        resize=config.resize,
        colors=config.colors,
    )


def read_image(path: Path, wanted: ImageFormat) -> Array:
    """Read an image as an array of `wanted.shape` and dtype; raises `BadInputError` naming it."""
    try:
        image = _resized(decoded(path, _MODES[wanted.channels]), wanted)
    except Exception as error:  # noqa: BLE001 - Pillow's parsers raise errors of any type
        raise BadInputError(f"{path}: cannot be read as an image: {reason(error)}") from None
    pixels: Array = np.asarray(image).reshape(wanted.height, wanted.width, wanted.channels)
    if wanted.colors == "bgr" and wanted.channels == 3:
        pixels = pixels[:, :, ::-1]
    if wanted.dtype != np.uint8:
        mean, std = np.array(wanted.mean, np.float32), np.array(wanted.std, np.float32)
        pixels = (pixels.astype(np.float32) * np.float32(wanted.scale / 255) - mean) / std
    if wanted.channel_axis == 0:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels.reshape(wanted.shape), dtype=wanted.dtype)


def _resized(image: Image.Image, wanted: ImageFormat) -> Image.Image:
    size = (wanted.width, wanted.height)
    if wanted.resize == "stretch":
        return image.resize(size, Image.Resampling.BILINEAR)
    fit = ImageOps.fit if wanted.resize == "crop" else ImageOps.pad
    return fit(image, size, Image.Resampling.BILINEAR)


def _layout(tensor: Tensor, layout: str | None, where: str) -> tuple[int, int, int, int | None]:
    """(height, width, channels, channel axis within one image)."""
    shape = tensor.shape
    shown = f"the model's input {tensor.name!r} of shape {list(shape)}"
    if len(shape) == 4 and shape[0] != 1:
        raise BadInputError(
            f"{where}: {shown} takes {shape[0]} images at once; set model.input_shape to "
            f"{[1, *shape[1:]]} if the model allows it, or use .npy files of the whole shape"
        )
    one = shape[1:] if len(shape) == 4 else shape
    if len(one) == 2 and one[0] > 1:
        return one[0], one[1], 1, None
    if len(one) == 3:
        axes = {None: (0, 2), "nchw": (0,), "nhwc": (2,)}[layout]
        for channels in _MODES:
            for axis in axes:
                if one[axis] == channels:
                    height, width = one[1:] if axis == 0 else one[:2]
                    return height, width, channels, axis
        if layout is not None:
            raise BadInputError(f"{where}: layout {layout} does not suit {shown}")
    raise BadInputError(f"{where}: {shown} is not an image of 1, 3 or 4 channels; use .npy files")


def _per_channel(key: str, value: PerChannel, channels: int, where: str) -> tuple[float, ...]:
    values = value if isinstance(value, tuple) else (float(value),) * channels
    if len(values) != channels:
        raise BadInputError(
            f"{where}: {key} has {len(values)} numbers, but the model's images have "
            f"{channels} channel{'s' if channels > 1 else ''}; write one number for each"
        )
    if key == "std" and not all(values):
        raise BadInputError(f"{where}: std must not contain 0, because pixels are divided by it")
    return values
