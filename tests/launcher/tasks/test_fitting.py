"""Images are fitted to the network's input by each way of resizing, and their place is kept."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from cnn.network import Tensor
from launcher.config.network import InputConfig
from launcher.errors import BadInputError
from launcher.inputs.fitting import ImageFormat, fit, image_format
from launcher.inputs.images import read_image

MODES = ("crop", "pad", "stretch", "letterbox")
SIZES = st.tuples(st.integers(1, 90), st.integers(1, 90))


def wanted(
    shape: tuple[int, ...] = (1, 3, 32, 48), dtype: str = "float32", **keys: object
) -> ImageFormat:
    config = InputConfig(files=("x.png",), **keys)  # type: ignore[arg-type]
    return image_format(Tensor("x", shape, dtype), config, is_classifier=False, where="input")


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def as_yolo_does(image: np.ndarray, height: int, width: int, *, scale_up: bool) -> np.ndarray:
    """Letterbox as ultralytics writes it: resize, a border of 114, 0..1, channels first."""
    ratio = min(height / image.shape[0], width / image.shape[1])
    ratio = ratio if scale_up else min(ratio, 1.0)
    size = max(round(image.shape[1] * ratio), 1), max(round(image.shape[0] * ratio), 1)
    across, down = (width - size[0]) / 2, (height - size[1]) / 2
    if image.shape[1::-1] != size:
        image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    bordered = cv2.copyMakeBorder(
        image, round(down - 0.1), round(down + 0.1), round(across - 0.1), round(across + 0.1),
        cv2.BORDER_CONSTANT, value=(114, 114, 114),
    )  # fmt: skip
    return bordered.transpose(2, 0, 1)[None].astype(np.float32) / 255


@given(SIZES, SIZES, st.booleans())
@settings(deadline=None, max_examples=60)
def test_letterbox_has_the_pixels_that_yolo_was_trained_with(
    size: tuple[int, int], target: tuple[int, int], scale_up: bool
) -> None:
    image = noise(*size)
    array, _ = fit(image, wanted((1, 3, *target), resize="letterbox", scale_up=scale_up))
    np.testing.assert_allclose(array, as_yolo_does(image, *target, scale_up=scale_up), atol=1e-6)


@given(SIZES, SIZES)
@settings(deadline=None, max_examples=60)
def test_crop_pad_and_stretch_have_pillows_pixels(
    size: tuple[int, int], target: tuple[int, int]
) -> None:
    image, turned = noise(*size), target[::-1]
    picture, bilinear = Image.fromarray(image), Image.Resampling.BILINEAR
    by_pillow = {
        "crop": lambda: ImageOps.fit(picture, turned, bilinear),
        "pad": lambda: ImageOps.pad(picture, turned, bilinear),
        "stretch": lambda: picture.resize(turned, bilinear),
    }
    for mode, make in by_pillow.items():
        array, _ = fit(image, wanted((1, *target, 3), "uint8", resize=mode, layout="nhwc"))
        if mode != "pad" or not shrinks_to_nothing(size, target):
            np.testing.assert_array_equal(array[0], np.asarray(make()))


def shrinks_to_nothing(size: tuple[int, int], target: tuple[int, int]) -> bool:
    """Whether Pillow rounds a side of a padded image to 0."""
    scale = min(target[0] / size[0], target[1] / size[1])
    return round(size[0] * scale) == 0 or round(size[1] * scale) == 0


@pytest.mark.parametrize("mode", MODES)
@given(st.tuples(st.integers(20, 200), st.integers(20, 200)), st.booleans())
@settings(deadline=None, max_examples=30)
def test_a_pixel_lies_where_its_placement_says(
    mode: str, size: tuple[int, int], is_across: bool
) -> None:
    """The image's brightness is its coordinate, so that every pixel shown says where it is from."""
    height, width = size
    length = width if is_across else height
    ramp = np.linspace(0, 255, length)
    ramp = np.broadcast_to(ramp[None, :] if is_across else ramp[:, None], size)
    image = np.repeat(np.round(ramp).astype(np.uint8)[:, :, None], 3, axis=2)
    array, place = fit(image, wanted((1, 64, 80, 3), resize=mode, scale=255.0))
    assert (place.width, place.height) == (width, height)
    scale, offset, count = (
        (place.scale_x, place.left, 80) if is_across else (place.scale_y, place.top, 64)
    )
    other_scale, other_offset, other_size = (
        (place.scale_y, place.top, height) if is_across else (place.scale_x, place.left, width)
    )
    in_source = (np.arange(count) + 0.5 - offset) / scale
    middle = int(other_offset + other_size * other_scale / 2)  # a line through the image
    shown = array[0, middle, :, 0] if is_across else array[0, :, middle, 0]
    margin = max(1.0, 1 / scale) + 0.5  # the filter is clamped at the edges
    inside = (in_source > margin) & (in_source < length - margin)
    found = shown[inside] / 255 * (length - 1) + 0.5
    brightness_step = 1.0 * (length - 1) / 255
    assert np.abs(found - in_source[inside]).max(initial=0) < 0.25 + brightness_step


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(1, 3, 20, 30), (1, 20, 30, 3), (1, 1, 20, 30), (20, 30)])
def test_a_file_becomes_the_same_array_as_its_pixels(
    mode: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    image = noise(37, 41)
    Image.fromarray(image).save(tmp_path / "a.png")
    form = wanted(shape, resize=mode, mean=0.5, std=0.25)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", form), fit(image, form)[0])


def test_bars_have_the_colour_asked_for_in_the_networks_order_and_scale() -> None:
    form = wanted(
        (1, 3, 4, 8), resize="letterbox", pad_color=(255, 0, 51), colors="bgr", mean=0.5, std=0.5
    )
    array, place = fit(np.zeros((2, 2, 3), np.uint8), form)
    assert (place.left, place.top, place.scale_x) == (2, 0, 2)
    np.testing.assert_allclose(array[0, :, 0, 0], (-0.6, -1, 1), atol=1e-6)
    np.testing.assert_allclose(array[0, :, 3, 7], (-0.6, -1, 1), atol=1e-6)
    np.testing.assert_allclose(array[0, :, :, 2:6], -1)


def test_a_small_image_keeps_its_size_if_it_is_not_to_be_enlarged() -> None:
    image = noise(4, 6)
    array, place = fit(image, wanted((1, 10, 12, 3), "uint8", resize="letterbox", scale_up=False))
    assert (place.scale_x, place.scale_y, place.left, place.top) == (1, 1, 3, 3)
    np.testing.assert_array_equal(array[0, 3:7, 3:9], image)
    assert (array[0, :3] == 114).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (1, 1)])
def test_a_very_thin_image_has_a_place_too(mode: str, size: tuple[int, int]) -> None:
    array, place = fit(noise(*size), wanted(resize=mode))
    assert array.shape == (1, 3, 32, 48)
    assert min(place.scale_x, place.scale_y) > 0


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((4, 4, 3), np.float32),
    ],
)
def test_an_array_that_is_not_an_image_is_refused(array: np.ndarray) -> None:
    with pytest.raises(BadInputError, match=r"an image is uint8 \[height, width, 3\], not"):
        fit(array, wanted())


@pytest.mark.parametrize("key", [{"pad_color": 0}, {"scale_up": False}])
def test_a_key_of_letterbox_is_refused_with_another_way(key: dict[str, object]) -> None:
    with pytest.raises(BadInputError, match="has an effect only with resize: letterbox"):
        wanted(resize="pad", **key)


def test_the_description_says_letterboxed() -> None:
    form: ImageFormat = wanted(resize="letterbox")
    assert form.description == "letterboxed to 32×48, RGB, 0..1"
