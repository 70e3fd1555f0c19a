"""Fits images to a network's input, and remembers where in it each image lies.

An image is resized, put in the input's layout, scaled and normalised. `crop` fills the input and
cuts off what exceeds it, `pad` and `letterbox` show all of the image and fill the rest, `stretch`
ignores proportions. The first two and `stretch` resize by Pillow's bilinear filter, which averages
all pixels that become one. `letterbox` does what the YOLO family was trained with: OpenCV's
bilinear interpolation between the four nearest pixels, grey bars, and ultralytics' rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from PIL import Image, ImageOps

from cnn.network import Tensor
from launcher.config.network import InputConfig, PerChannel, Resize
from launcher.errors import BadInputError
from nodes.protocol.payload import Array

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's training pixels in 0..1, red, green, blue, with which
almost every classifier of photographs was trained."""

USUAL_PAD = 114
"""The grey of letterbox's bars in the YOLO family."""

_MODES = {3: "RGB", 1: "L", 4: "RGBA"}
"""Pillow's modes by number of channels, the likeliest first."""

_COLORS = {1: "grey", 3: "RGB", 4: "RGBA"}

_FITTED = {
    "crop": "cropped",
    "pad": "padded",
    "stretch": "stretched",
    "letterbox": "letterboxed",
}


@dataclass(frozen=True, slots=True)
class ImagePlacement:
    """Where a source's image lies in the network's input.

    The pixel (x, y) of the source is at (x · scale_x + left, y · scale_y + top).
    """

    width: int
    height: int
    """The size of the source's image in pixels."""
    scale_x: float = 1.0
    scale_y: float = 1.0
    left: float = 0.0
    top: float = 0.0


@dataclass(frozen=True)
class ImageFormat:
    """How an image becomes the array that a network's input needs.

    Each channel becomes (pixel / 255 × `scale` − `mean`) / `std`; a `uint8` input takes pixels as
    they are. `channel_axis` counts in the shape without its batch axis; it is None for grey images
    without such an axis. `pad_color` is letterbox's, in the order of `mode`'s channels.
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
    resize: Resize
    colors: str
    pad_color: tuple[int, ...] = ()
    scale_up: bool = True

    @property
    def mode(self) -> str:
        """Pillow's mode of the pixels: L, RGB or RGBA."""
        return _MODES[self.channels]

    @property
    def description(self) -> str:
        """The treatment of every image, in words."""
        colors = "BGR" if self.channels == 3 and self.colors == "bgr" else _COLORS[self.channels]
        parts = [f"{_FITTED[self.resize]} to {self.height}×{self.width}", colors]
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
    tensor: Tensor,
    config: InputConfig,
    *,
    is_classifier: bool,
    where: str,
    usual_resize: Resize = "crop",
) -> ImageFormat:
    """Return the format of a network's input, which follows from its shape and the user's settings.

    A classifier of three-channel floating-point images gets ImageNet's mean and deviation unless
    `scale`, `mean` or `std` is set. `usual_resize` applies if `resize` is not set. Raises
    `BadInputError`, whose message begins with `where`, if the tensor is not an image or a setting
    does not suit it.
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
    resize = config.resize or usual_resize
    _check_resize(config, resize, where)
    pad = USUAL_PAD if config.pad_color is None else config.pad_color
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
        resize=resize,
        colors=config.colors,
        pad_color=tuple(map(int, _per_channel("pad_color", pad, channels, where))),
        scale_up=config.scale_up,
    )


def _check_resize(config: InputConfig, resize: Resize, where: str) -> None:
    if resize == "letterbox":
        if find_spec("cv2") is None:
            raise BadInputError(
                f"{where}: letterbox needs OpenCV: install csdf-edge with its extra 'stream' "
                "(pip install 'csdf-edge[stream]'), or write resize: pad"
            )
        return
    for key in ("pad_color", "scale_up"):
        if key in config.model_fields_set:
            raise BadInputError(
                f"{where}: {key} has an effect only with resize: letterbox, but resize is "
                f"{resize}; remove it, or change resize"
            )


def fit(image: Array, wanted: ImageFormat) -> tuple[Array, ImagePlacement]:
    """Return an image, uint8 [height, width, 3] in RGB, as `wanted`, and where it lies there.

    Raises `BadInputError` for an array that is not such an image.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise BadInputError(
            f"an image is uint8 [height, width, 3], not {image.dtype} {list(image.shape)}"
        )
    if np.ma.is_masked(image):
        raise BadInputError("an image has masked pixels; replace them, for example by filled(0)")
    if wanted.resize == "letterbox" and wanted.channels == 3:
        return _letterboxed(image, wanted)
    picture = Image.fromarray(image)
    return fit_picture(picture if wanted.channels == 3 else picture.convert(wanted.mode), wanted)


def fit_picture(picture: Image.Image, wanted: ImageFormat) -> tuple[Array, ImagePlacement]:
    """Return a picture in `wanted.mode` as `wanted`, and where it lies there."""
    if wanted.resize == "letterbox":
        return _letterboxed(np.asarray(picture), wanted)
    width, height = wanted.width, wanted.height
    bilinear = Image.Resampling.BILINEAR
    match wanted.resize:
        case "stretch":
            resized = picture.resize((width, height), bilinear)
            placement = _placement(picture.size, (width, height), 0, 0)
        case "crop":
            resized = ImageOps.fit(picture, (width, height), bilinear)
            placement = _cropped(picture.size, width, height)
        case "pad":
            resized = Image.new(picture.mode, (width, height))
            size = _contained(picture.size, width, height)
            left, top = round((width - size[0]) * 0.5), round((height - size[1]) * 0.5)
            resized.paste(picture.resize(size, bilinear), (left, top))
            placement = _placement(picture.size, size, left, top)
    return _converted(np.asarray(resized), wanted), placement


def _placement(
    size: tuple[int, int], fitted: tuple[int, int], left: int, top: int
) -> ImagePlacement:
    width, height = size
    return ImagePlacement(width, height, fitted[0] / width, fitted[1] / height, left, top)


def _contained(size: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """Return the size of an image once it fits into `width` × `height`, as Pillow rounds it."""
    if size[0] * height > size[1] * width:
        return width, max(1, round(size[1] / size[0] * width))
    return max(1, round(size[0] / size[1] * height)), height


def _cropped(size: tuple[int, int], width: int, height: int) -> ImagePlacement:
    """Return where an image lies once its centre fills `width` × `height`."""
    scale = max(width / size[0], height / size[1])
    left, top = (width - size[0] * scale) / 2, (height - size[1] * scale) / 2
    return ImagePlacement(size[0], size[1], scale, scale, left, top)


def _letterboxed(pixels: Array, wanted: ImageFormat) -> tuple[Array, ImagePlacement]:
    """Return pixels, uint8 [height, width] or with channels, as `wanted` by OpenCV.

    Only the image is converted; the bars are filled with a value that is computed once.
    """
    import cv2  # noqa: PLC0415 - only letterbox needs it

    height, width = pixels.shape[:2]
    scale = min(wanted.height / height, wanted.width / width)
    if not wanted.scale_up:
        scale = min(scale, 1.0)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    # Half a pixel of padding goes to the bottom and the right.
    left = round((wanted.width - size[0]) / 2 - 0.1)
    top = round((wanted.height - size[1]) / 2 - 0.1)
    if size != (width, height):
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR))
    planes = cv2.split(pixels) if wanted.channel_axis == 0 and pixels.ndim == 3 else ()
    array = _converted(pixels, wanted, left=left, top=top, planes=planes)
    return array, _placement((width, height), size, left, top)


def _converted(
    pixels: Array,
    wanted: ImageFormat,
    *,
    left: int = 0,
    top: int = 0,
    planes: Sequence[Array] = (),
) -> Array:
    """Return resized pixels as the network's input; what they leave free has the padding's colour.

    `planes` are the channels of `pixels`, each contiguous, where the caller has them.
    """
    channels, height, width = wanted.channels, *pixels.shape[:2]
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    is_first = wanted.channel_axis == 0
    step = -1 if wanted.colors == "bgr" and channels == 3 else 1
    dtype = np.uint8 if wanted.dtype == np.uint8 else np.float32
    size = (wanted.height, wanted.width)
    whole: Array = np.empty((channels, *size) if is_first else (*size, channels), dtype)
    rows, columns = slice(top, top + height), slice(left, left + width)
    if is_first:
        area = whole[:, rows, columns]
        for number, plane in enumerate(planes or np.moveaxis(pixels, 2, 0)):
            area[::step][number] = plane
    else:
        area = whole[rows, columns]
        area[...] = pixels[:, :, ::step]
    _normalise(area, wanted)
    if area.size < whole.size:
        shape = (-1, 1, 1) if is_first else (1, 1, -1)
        color = np.array(wanted.pad_color, dtype)[::step].reshape(shape)
        _normalise(color, wanted)
        above, below = slice(0, top), slice(top + height, None)
        before, behind = slice(0, left), slice(left + width, None)
        every = slice(None)
        for bar in ((above, every), (below, every), (rows, before), (rows, behind)):
            whole[(every, *bar) if is_first else bar] = color
    return whole.reshape(wanted.shape).astype(wanted.dtype, copy=False)


def _normalise(pixels: Array, wanted: ImageFormat) -> None:
    """Scale and normalise pixels of the network's layout in place; integers stay as they are."""
    if wanted.dtype == np.uint8:
        return
    shape = (-1, 1, 1) if wanted.channel_axis == 0 else (1, 1, -1)
    factor = np.float32(wanted.scale / 255)
    if factor != 1:
        pixels *= factor
    if any(wanted.mean):
        pixels -= np.array(wanted.mean, np.float32).reshape(shape)
    if any(value != 1 for value in wanted.std):
        pixels /= np.array(wanted.std, np.float32).reshape(shape)


def image_size(tensor: Tensor) -> tuple[int, int] | None:
    """Return the width and height of the images that a network's input takes; None if it takes
    none."""
    try:
        height, width, _, _ = _layout(tensor, None, "")
    except BadInputError:
        return None
    return width, height


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
