"""Draws predictions on an image: masks, boxes, key points, and the names and scores of classes.

OpenCV's fonts have ASCII only, so other characters of a name are drawn as question marks. The
colour of a class follows from its number: hues a golden angle apart, so that near numbers differ.
"""

from __future__ import annotations

import colorsys
import math

import cv2
import numpy as np

from launcher.config.ends.sink import FrameResult, ResultRefusedError
from launcher.tasks.predictions import (
    NO_CLASS,
    ClassMap,
    FoundObject,
    FoundObjects,
    ImageClasses,
    ObjectMask,
    name_of,
)
from nodes.protocol.payload import Array

_GOLDEN = 0.618033988749895
_LONGEST_TEXT = 60
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_OPACITY = 0.45
"""How much of a mask's colour is mixed into the image."""

Color = tuple[int, int, int]


def annotated(result: FrameResult) -> Array:
    """Return a copy of the result's image with its predictions on it.

    Predictions of a kind that is not known here are not drawn. Raises `ResultRefusedError` if the
    result has no image.
    """
    if result.image is None:
        raise ResultRefusedError(f"frame {result.index}: its source gives no image to draw on")
    image = np.array(result.image, np.uint8, order="C")
    match result.predictions:
        case FoundObjects(objects=objects):
            pen = _Pen(image)
            for found in reversed(objects):  # the best one on top
                pen.object(found)
        case ImageClasses(classes=classes):
            pen = _Pen(image)
            for row, one in enumerate(classes):
                text = _label(one.number, one.name, one.score)
                pen.text(text, 0, row * pen.line_height, color_of(one.number))
        case ClassMap() as found:
            _Pen(image).class_map(found)
        case _:
            pass
    return image


def encoded(result: FrameResult, suffix: str, quality: int) -> bytes:
    """Return the annotated image as a file's content; `suffix` is .jpg or .png.

    Raises `ResultRefusedError` if there is no image, or one that the format cannot hold.
    """
    image = cv2.cvtColor(annotated(result), cv2.COLOR_RGB2BGR)
    settings = [cv2.IMWRITE_JPEG_QUALITY, quality] if suffix == ".jpg" else []
    try:
        done, content = cv2.imencode(suffix, image, settings)
    except cv2.error:
        done = False
    if not done:
        height, width = image.shape[:2]
        raise ResultRefusedError(
            f"frame {result.index}: no {suffix} file can have {width} × {height} pixels"
        )
    return content.tobytes()


def color_of(number: int) -> Color:
    """The colour of a class, red, green and blue in 0..255."""
    red, green, blue = colorsys.hsv_to_rgb(number * _GOLDEN % 1, 0.85, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def _label(number: int, name: str, score: float) -> str:
    shown = (name or f"class {number}").encode("ascii", "replace").decode()
    return f"{shown[:_LONGEST_TEXT]} {score:.2f}"


class _Pen:
    """Draws on one image with lines and letters that suit its size."""

    def __init__(self, image: Array) -> None:
        self._image = image
        self._height, self._width = image.shape[:2]
        size = min(self._height, self._width)
        self._thick = max(1, round(size / 300))
        self._scale = max(0.35, size / 1000)
        self.line_height = round(40 * self._scale)

    def object(self, found: FoundObject) -> None:
        """Draw an object's mask, its outline, its key points and its label."""
        color = color_of(found.number)
        if found.mask is not None:
            self._mask(found.mask, color)
        outline = found.corners or _corners(found.box)
        points = np.array([self._pixel(x, y) for x, y in outline], np.int32)
        cv2.polylines(self._image, [points], True, color, self._thick)
        for point in found.points:
            cv2.circle(self._image, self._pixel(point.x, point.y), 2 * self._thick, color, -1)
        left, top = self._pixel(found.box[0], found.box[1])
        label = _label(found.number, found.name, found.score)
        self.text(label, left, top - self.line_height, color)

    def _pixel(self, x: float, y: float) -> tuple[int, int]:
        """The pixel at a point, which may lie outside of the image, but not beyond all numbers."""
        return _bounded(x, self._width), _bounded(y, self._height)

    def _mask(self, mask: ObjectMask, color: Color) -> None:
        top, left = max(mask.top, 0), max(mask.left, 0)
        pixels = mask.pixels[top - mask.top :, left - mask.left :]
        part = self._image[top : top + pixels.shape[0], left : left + pixels.shape[1]]
        self._mix(part, pixels[: part.shape[0], : part.shape[1]], color)

    def _mix(self, part: Array, where: Array, color: Color) -> None:
        mixed = part[where] * (1 - _OPACITY) + np.array(color) * _OPACITY
        part[where] = mixed.astype(np.uint8)

    def class_map(self, found: ClassMap) -> None:
        """Colour the pixels of each class, and list the classes."""
        classes = found.classes[: self._height, : self._width]
        part = self._image[: classes.shape[0], : classes.shape[1]]
        row = 0
        for number in np.unique(classes).tolist():
            if number == NO_CLASS:
                continue
            where = classes == number
            self._mix(part, where, color_of(number))
            share = _label(number, name_of(number, found.names), float(where.mean()))
            self.text(share, 0, row, color_of(number))
            row += self.line_height

    def text(self, text: str, left: int, top: int, color: Color) -> None:
        """Write black letters on a ground of `color`; text that begins outside is moved inside."""
        (width, height), below = cv2.getTextSize(text, _FONT, self._scale, self._thick)
        left = max(0, min(left, self._width - width))
        top = max(0, min(top, self._height - height - below))
        corner = (left + width, top + height + below)
        cv2.rectangle(self._image, (left, top), corner, color, -1)
        begin = (left, top + height)
        cv2.putText(
            self._image, text, begin, _FONT, self._scale, (0, 0, 0), self._thick, cv2.LINE_AA
        )


def _corners(box: tuple[float, float, float, float]) -> tuple[tuple[float, float], ...]:
    x1, y1, x2, y2 = box
    return (x1, y1), (x2, y1), (x2, y2), (x1, y2)


def _bounded(value: float, size: int) -> int:
    return round(min(max(value, -size), 2 * size)) if math.isfinite(value) else 0
