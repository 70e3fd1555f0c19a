"""Image files as a network's input: resized, put in its layout, scaled and normalised.

`launcher.inputs.pixels` decodes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from cnn.network import Tensor
from launcher.config.cluster import InputConfig, PerChannel
from launcher.errors import BadInputError, reason
from launcher.inputs.pixels import decoded
from launcher.run.runtime import Array

SUFFIXES = (".png", ".jpg", ".jpeg")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's training pixels in 0..1, red, green, blue: what almost every
classifier of photographs was trained with."""

_MODES = {3: "RGB", 1: "L", 4: "RGBA"}
"""Pillow's modes by number of channels, the likeliest first."""

_COLORS = {1: "grey", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class ImageFormat:
    """How an image becomes the array that a network's input wants.

    pixel → (pixel / 255 × `scale` − `mean`) / `std` per channel; a `uint8` input takes pixels as
    they are. `channel_axis` counts in the shape without its batch axis; None: grey, no such axis.
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
        """What is done to every image, in words."""
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
    """The format of a network's input, from its shape and from what the user set.

    A classifier of three-channel floating-point images gets ImageNet's mean and deviation unless
    `scale`, `mean` or `std` are set. Raises `BadInputError`, beginning with `where`, if the tensor
    is no image or a setting does not suit it.
    """
    dtype = np.dtype(tensor.dtype)
    if dtype != np.uint8 and not np.issubdtype(dtype, np.floating):
        raise BadInputError(
            f"{where}: the model's input {tensor.name!r} is {tensor.dtype}, "
            "for which images have no meaning; give .npy files"
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
    """The image as an array of `wanted.shape` and dtype; `BadInputError` naming the file if not."""
    try:
        image = _resized(decoded(path, _MODES[wanted.channels]), wanted)
    except Exception as error:  # noqa: BLE001 - Pillow lets whatever its parsers run into through
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
            f"{[1, *shape[1:]]} if the model allows it, or give .npy files of the whole shape"
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
    raise BadInputError(f"{where}: {shown} is no image of 1, 3 or 4 channels; give .npy files")


def _per_channel(key: str, value: PerChannel, channels: int, where: str) -> tuple[float, ...]:
    values = value if isinstance(value, tuple) else (float(value),) * channels
    if len(values) != channels:
        raise BadInputError(
            f"{where}: {key} has {len(values)} numbers, but the model's images have "
            f"{channels} channel{'s' if channels > 1 else ''}"
        )
    if key == "std" and not all(values):
        raise BadInputError(f"{where}: std must not hold 0, which pixels would be divided by")
    return values
