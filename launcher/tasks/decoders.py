"""Turns a network's outputs into predictions in the source's pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from launcher.config.ends.sink import Predictions
from launcher.errors import RunFailedError
from launcher.inputs.fitting import ImagePlacement
from launcher.tasks.classes import top_classes
from launcher.tasks.heads import Candidates, Head, read
from launcher.tasks.masks import classes_in_source, mask_in
from launcher.tasks.predictions import (
    NO_CLASS,
    ClassMap,
    FoundObject,
    FoundObjects,
    ImageClasses,
    KeyPoint,
    ObjectMask,
    ScoredClass,
    name_of,
)
from nodes.protocol.payload import Array

MOST_MASK_PIXELS = 1 << 26
"""Pixels of all masks of an image, eight times those of a 4K frame; the best objects get theirs."""


class Decoder(Protocol):
    """Turns outputs into predictions."""

    def decode(self, outputs: Mapping[str, Array], placement: ImagePlacement) -> Predictions:
        """Return the predictions; raises `RunFailedError` for outputs of another form."""
        ...


@dataclass(frozen=True, slots=True)
class ClassDecoder:
    """Finds the `top` likeliest classes in an output with one score per class."""

    output: str
    top: int
    names: tuple[str, ...] = ()

    def decode(self, outputs: Mapping[str, Array], placement: ImagePlacement) -> ImageClasses:
        """See `Decoder`; there is no class if a score is NaN or infinite."""
        del placement  # the classes are those of the whole image
        scores = outputs.get(self.output)
        if scores is None or scores.size == 0 or scores.dtype.kind not in "fiu":
            raise RunFailedError(f"the output {self.output!r} has no score per class")
        if not np.isfinite(scores).all():
            return ImageClasses(())
        return ImageClasses(
            tuple(
                ScoredClass(guess.number, name_of(guess.number, self.names), guess.probability)
                for guess in top_classes(scores, self.top)
            )
        )


@dataclass(frozen=True, slots=True)
class ObjectDecoder:
    """Finds objects: boxes, and with them masks, key points or turned boxes.

    `size` is the width and height of the network's input. `points` are the number of key points and
    of the values of each. `prototypes` is the output [1, M, rows, columns] of which a candidate's M
    extras make its mask. Masks take a byte per pixel of their box, and `MOST_MASK_PIXELS` together.
    """

    kind: str
    head: Head
    size: tuple[int, int]
    confidence: float
    overlap: float
    most: int
    names: tuple[str, ...] = ()
    points: tuple[int, int] | None = None
    prototypes: str = ""

    @np.errstate(all="ignore")  # a network may give NaN and infinity
    def decode(self, outputs: Mapping[str, Array], placement: ImagePlacement) -> FoundObjects:
        """See `Decoder`."""
        found = self._best(self.head.candidates(outputs, self.confidence))
        corners: Array = np.empty((len(found), 0, 2))
        if self.kind == "obb":
            corners = _to_source(_corners(found.boxes, found.extras[:, -1]), placement)
            edges = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        else:
            edges = _to_source(found.boxes.reshape(-1, 2, 2), placement).reshape(-1, 4)
        boxes = np.clip(edges, 0, (placement.width, placement.height) * 2)
        seen = np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(axis=1))
        found, boxes, corners = found.take(seen), boxes[seen], corners[seen]
        points = self._points(found, placement)
        masks = self._masks(found, boxes, outputs, placement)
        objects = []
        for index, (box, score, number) in enumerate(
            zip(boxes.tolist(), found.scores.tolist(), found.classes.tolist(), strict=True)
        ):
            mask = masks[index] if masks else None
            if mask is not None and not mask.pixels.any():  # not an object, as with ultralytics
                continue
            objects.append(
                FoundObject(
                    number,
                    name_of(number, self.names),
                    score,
                    tuple(box),
                    points[index] if points else (),
                    tuple((x, y) for x, y in corners[index].tolist()),
                    mask,
                )
            )
        return FoundObjects(self.kind, placement.width, placement.height, tuple(objects))

    def _best(self, found: Candidates) -> Candidates:
        if not len(found):
            return found
        if not self.head.overlaps:
            kept = np.argsort(-found.scores, kind="stable")
        else:
            from launcher.tasks.suppression import (  # noqa: PLC0415 - not all need OpenCV
                best_boxes,
                best_turned,
            )

            if self.kind == "obb":
                angles = found.extras[:, -1]
                kept = best_turned(
                    found.boxes, angles, found.scores, found.classes, self.overlap, self.most
                )
            else:
                kept = best_boxes(found.boxes, found.scores, found.classes, self.overlap, self.most)
        return found.take(kept[: self.most])

    def _points(self, found: Candidates, placement: ImagePlacement) -> list[tuple[KeyPoint, ...]]:
        if self.points is None:
            return []
        values = found.extras.reshape(len(found), *self.points)
        places = np.clip(
            _to_source(values[:, :, :2], placement), 0, (placement.width, placement.height)
        )
        rows = np.concatenate([places, np.clip(values[:, :, 2:], 0, 1)], axis=2).tolist()
        return [tuple(KeyPoint(*point) for point in row) for row in rows]

    def _masks(
        self,
        found: Candidates,
        boxes: Array,
        outputs: Mapping[str, Array],
        placement: ImagePlacement,
    ) -> list[ObjectMask | None]:
        if not self.prototypes:
            return []
        shape = (1, found.extras.shape[1], None, None)
        prototypes = read(outputs, self.prototypes, shape)[0].astype(np.float32, copy=False)
        count, rows, columns = prototypes.shape
        if 0 in (rows, columns):
            raise RunFailedError(f"the output {self.prototypes!r} is empty")
        values = found.extras.astype(np.float32) @ prototypes.reshape(count, -1)
        areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(axis=1)
        return [
            mask_in(tuple(box), value.reshape(rows, columns), placement, self.size)
            if total <= MOST_MASK_PIXELS
            else None
            for box, value, total in zip(boxes.tolist(), values, areas.cumsum(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class MapDecoder:
    """Finds the class of every pixel.

    The output has a score per class on `axis`, or the numbers of the classes if `axis` is None. A
    single score is that of class 1, and class 0 is what is below one half (below 0 if the scores
    are not all within 0..1).
    """

    output: str
    axis: int | None
    size: tuple[int, int]
    names: tuple[str, ...] = ()

    @np.errstate(all="ignore")
    def decode(self, outputs: Mapping[str, Array], placement: ImagePlacement) -> ClassMap:
        """See `Decoder`."""
        found = outputs.get(self.output)
        if found is None or found.dtype.kind not in "fiu" or 0 in found.shape:
            raise RunFailedError(f"the output {self.output!r} has no classes of pixels")
        classes = self._classes(found)
        if classes.ndim < 2 or any(length != 1 for length in classes.shape[:-2]):
            raise RunFailedError(
                f"the output {self.output!r} of shape {list(found.shape)} is not one image; check "
                "task in cluster.yaml"
            )
        classes = classes.reshape(classes.shape[-2:])
        return ClassMap(classes_in_source(classes, placement, self.size), self.names)

    def _classes(self, found: Array) -> Array:
        if self.axis is None:
            known = (found >= 0) & (found < NO_CLASS)
            return np.where(known, found, NO_CLASS).astype(np.uint16)
        if self.axis >= found.ndim:
            raise RunFailedError(f"the output {self.output!r} has no axis of classes")
        scores = np.moveaxis(found, self.axis, 0)
        if len(scores) == 1:
            is_probability = scores.min() >= 0 and scores.max() <= 1
            classes = (scores[0] > (0.5 if is_probability else 0)).astype(np.uint16)
            return np.where(np.isnan(scores[0]), np.uint16(NO_CLASS), classes)
        return _first_of_the_best(scores)


def _first_of_the_best(scores: Array) -> Array:
    """Return the index of the best score along the first axis as uint16; `NO_CLASS` for NaN.

    This is `argmax`, many times as fast: NumPy compares whole planes, and not columns of them.
    """
    count = min(len(scores), NO_CLASS)
    best = scores[:count].max(axis=0)
    places_from_end = np.zeros(best.shape, np.uint16)
    for number, plane in enumerate(scores[:count]):
        places = (plane == best) * np.uint16(count - number)
        np.maximum(places_from_end, places, out=places_from_end)
    known = places_from_end > 0  # NaN equals nothing
    return np.where(known, np.uint16(count) - places_from_end, np.uint16(NO_CLASS))


def _to_source(points: Array, placement: ImagePlacement) -> Array:
    """Return points [n, k, 2] of the network's pixels in the source's."""
    offset = np.array((placement.left, placement.top))
    found: Array = (points - offset) / (placement.scale_x, placement.scale_y)
    return found


def _corners(boxes: Array, angles: Array) -> Array:
    """Return the corners [n, 4, 2] of turned boxes, centre and size; angles turn x towards y."""
    across = np.stack([np.cos(angles), np.sin(angles)], axis=1) * boxes[:, 2:3] / 2
    along = np.stack([-np.sin(angles), np.cos(angles)], axis=1) * boxes[:, 3:4] / 2
    around = (across + along, across - along, -across - along, along - across)
    corners: Array = np.stack(around, axis=1) + boxes[:, None, :2]
    return corners
