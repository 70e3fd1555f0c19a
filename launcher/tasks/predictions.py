"""Defines what networks find in an image, in pixels of the source, and as JSON.

Coordinates count from the outer corner of the top left pixel, x to the right and y down. A name is
empty where the class has none; JSON then leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nodes.protocol.payload import Array

NO_CLASS = 65_535
"""The number in a `ClassMap` of pixels that the network did not see."""


@dataclass(frozen=True, slots=True)
class ScoredClass:
    """A class of the whole image, with its probability in 0..1."""

    number: int
    name: str
    score: float

    def as_json(self) -> dict[str, Any]:
        """Return `{"class": 3, "name": "cat", "score": 0.9123}`."""
        return {**_class(self.number, self.name), "score": _rounded(self.score, 4)}


@dataclass(frozen=True, slots=True)
class ImageClasses:
    """The likeliest classes of an image, the likeliest first."""

    classes: tuple[ScoredClass, ...]

    def as_json(self) -> dict[str, Any]:
        """Return `{"kind": "classify", "classes": […]}`."""
        return {"kind": "classify", "classes": [one.as_json() for one in self.classes]}


@dataclass(frozen=True, slots=True)
class KeyPoint:
    """A point of an object; `score` is None if the network gives none."""

    x: float
    y: float
    score: float | None = None

    def as_json(self) -> list[float]:
        """Return `[x, y]` or `[x, y, score]`."""
        place = [_rounded(self.x, 2), _rounded(self.y, 2)]
        return place if self.score is None else [*place, _rounded(self.score, 4)]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectMask:
    """The pixels of an object: bool [height, width], a part of the image that begins at
    (`left`, `top`)."""

    left: int
    top: int
    pixels: Array

    def run_lengths(self, width: int, height: int) -> list[int]:
        """Return COCO's run lengths in an image of `width` × `height` pixels.

        They count pixels column by column: first those outside of the object, then those inside,
        and so on in turn.
        """
        columns = np.zeros((self.pixels.shape[1], self.pixels.shape[0] + 2), np.int8)
        columns[:, 1:-1] = self.pixels.T
        change = np.diff(columns, axis=1)
        (column, begins), (_, ends) = np.nonzero(change == 1), np.nonzero(change == -1)
        offset = (column + self.left) * height + self.top
        begins, ends = begins + offset, ends + offset
        # A run that reaches the bottom continues at the top of the next column.
        goes_on = begins[1:] == ends[:-1]
        begins = np.delete(begins, np.flatnonzero(goes_on) + 1)
        return _counts(begins, np.delete(ends, np.flatnonzero(goes_on)), width * height)


@dataclass(frozen=True, slots=True, eq=False)
class FoundObject:
    """An object: its class, its score in 0..1, and its box (x1, y1, x2, y2).

    `points` are its key points and `corners` those of a turned box; `mask` are its pixels.
    """

    number: int
    name: str
    score: float
    box: tuple[float, float, float, float]
    points: tuple[KeyPoint, ...] = ()
    corners: tuple[tuple[float, float], ...] = ()
    mask: ObjectMask | None = None

    def as_json(self, width: int, height: int) -> dict[str, Any]:
        """Return the object as JSON; `width` and `height` are those of the image."""
        values: dict[str, Any] = {
            **_class(self.number, self.name),
            "score": _rounded(self.score, 4),
            "box": [_rounded(value, 2) for value in self.box],
        }
        if self.points:
            values["points"] = [point.as_json() for point in self.points]
        if self.corners:
            values["corners"] = [[_rounded(x, 2), _rounded(y, 2)] for x, y in self.corners]
        if self.mask is not None:
            counts = self.mask.run_lengths(width, height)
            values["mask"] = {"size": [height, width], "counts": counts}
        return values


@dataclass(frozen=True, slots=True)
class FoundObjects:
    """The objects in an image of `width` × `height` pixels, the best score first.

    `kind` is the task's: detect, segment, pose or obb.
    """

    kind: str
    width: int
    height: int
    objects: tuple[FoundObject, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the kind, the size of the image, and a list of objects."""
        return {
            "kind": self.kind,
            "width": self.width,
            "height": self.height,
            "objects": [one.as_json(self.width, self.height) for one in self.objects],
        }


@dataclass(frozen=True, slots=True, eq=False)
class ClassMap:
    """The class of every pixel: `classes` is uint16 [height, width], or `NO_CLASS`.

    `names` has the names of the classes, as far as they are known.
    """

    classes: Array
    names: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the classes that occur, each with its share of the pixels and a mask."""
        height, width = self.classes.shape
        pixels = self.classes.T.reshape(-1)
        changes = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
        begins, ends = np.append(0, changes), np.append(changes, pixels.size)
        classes = pixels[begins]
        found = []
        for number in np.unique(classes).tolist():
            if number == NO_CLASS:
                continue
            own = classes == number
            share = (ends[own] - begins[own]).sum() / pixels.size
            counts = _counts(begins[own], ends[own], pixels.size)
            found.append(
                {
                    **_class(number, name_of(number, self.names)),
                    "share": _rounded(float(share), 6),
                    "mask": {"size": [height, width], "counts": counts},
                }
            )
        return {"kind": "semantic", "width": width, "height": height, "classes": found}


def _counts(begins: Array, ends: Array, total: int) -> list[int]:
    """Return the lengths of what is outside and inside of runs in turn; they sum to `total`."""
    edges = np.stack([begins, ends], axis=1).reshape(-1)
    found: list[int] = np.diff(edges, prepend=0, append=total).tolist()
    return found if found[-1] else found[:-1]


def name_of(number: int, names: tuple[str, ...]) -> str:
    """Return the name of a class, or "" if it has none."""
    return names[number] if 0 <= number < len(names) else ""


def _class(number: int, name: str) -> dict[str, Any]:
    return {"class": number, "name": name} if name else {"class": number}


def _rounded(value: float, digits: int) -> float:
    return round(value, digits) + 0.0  # no -0.0
