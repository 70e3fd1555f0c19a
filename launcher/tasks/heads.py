"""Reads boxes from a network's outputs, in the forms that exporters give them.

A row below is one candidate: a box, scores, and extras (coefficients of a mask, key points, or an
angle). N is the number of candidates, C of classes, E of extras.

| head | outputs | box |
|---|---|---|
| yolov8 | [1, 4 + C + E, N] | centre and size in the network's pixels |
| yolov5 | [1, N, 5 + C + E], an objectness behind the box | the same |
| end-to-end | [1, N, 6 + E]: box, score, class, extras | corners; with an angle centre and size |
| rt-detr | [1, N, 6]: box, score, class; or [1, N, 4 + C] | centre and size in 0..1 |
| ssd | boxes [1, N, 4] and scores [1, N, C], class 0 being the background | corners in 0..1 |
| torchvision | boxes [N, 4], scores [N], integer labels [N] | corners in the network's pixels |
| torchvision | the same with a batch axis, as the ONNX zoo's SSD | corners in 0..1 |
| tensorflow | boxes [1, N, 4], classes and scores [1, N], a count [1] | y1, x1, y2, x2 in 0..1 |

yolov8 stands for YOLOv8, v9, 11 and 12, and for YOLOv3, v5, v10 and 26 as ultralytics exports them
unless asked otherwise.
Candidates whose best score is below the confidence asked for, or that hold NaN or infinity, are
left out here, so that no later step meets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from launcher.errors import RunFailedError
from nodes.protocol.payload import Array

MOST_CANDIDATES = 10_000
"""Candidates that are examined, those of the best scores; a YOLO of 640 × 640 pixels has 8400."""

FARTHEST = 1e6
"""Coordinates are clipped to ± this many of the network's pixels, so that overlaps stay exact."""

LARGEST_CLASS = 65_534


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Boxes that a network proposes.

    `boxes` is float64 [n, 4]: corners in the network's pixels, or centre and size of turned boxes;
    `scores` is float64 [n], `classes` int64 [n], and `extras` float64 [n, E].
    """

    boxes: Array
    scores: Array
    classes: Array
    extras: Array

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, indices: Array) -> Candidates:
        """Return those with these indices, in this order."""
        return Candidates(
            self.boxes[indices], self.scores[indices], self.classes[indices], self.extras[indices]
        )


class Head(Protocol):
    """Reads candidates from a network's outputs."""

    @property
    def overlaps(self) -> bool:
        """Whether several candidates may be the same object, so that the best must be chosen."""
        ...

    def candidates(self, outputs: Mapping[str, Array], confidence: float) -> Candidates:
        """Return those of at least this score; raises `RunFailedError` for another shape."""
        ...


@dataclass(frozen=True, slots=True)
class GridHead:
    """A score per class for each cell of a grid: yolov8, yolov5 and rt-detr.

    `unit` is what a coordinate of 1 is in the network's pixels: 1, or its width and height.
    """

    output: str
    classes: int
    extras: int = 0
    rows_last: bool = True
    has_objectness: bool = False
    is_turned: bool = False
    unit: tuple[float, float] = (1.0, 1.0)
    overlaps: bool = True

    def candidates(self, outputs: Mapping[str, Array], confidence: float) -> Candidates:
        """See `Head`."""
        begin = 5 if self.has_objectness else 4
        channels = begin + self.classes + self.extras
        output = read(outputs, self.output, (1, channels, None) if self.rows_last else
                      (1, None, channels))[0]  # fmt: skip
        columns = output if self.rows_last else output.T
        if self.has_objectness:  # no score is above its objectness, which one comparison shows
            columns = columns[:, columns[4] >= confidence]
        of_classes = columns[begin : begin + self.classes]
        best = of_classes.max(axis=0)
        if self.has_objectness:
            best = best * columns[4]
        kept = best_indices(best, confidence)
        rows = columns[:, kept].T.astype(np.float64)
        boxes = rows[:, :4] * (self.unit * 2)
        return finite(
            boxes if self.is_turned else _corners(boxes),
            best[kept],
            of_classes[:, kept].argmax(axis=0),
            rows[:, begin + self.classes :],
        )


@dataclass(frozen=True, slots=True)
class EndToEndHead:
    """A box, a score and a class in each row, of which the network has chosen the best itself.

    Boxes are corners, or as RT-DETR has them centre and size (`is_centred`). `unit` is as that of
    `GridHead`.
    """

    output: str
    extras: int = 0
    is_centred: bool = False
    unit: tuple[float, float] = (1.0, 1.0)
    overlaps: bool = False

    def candidates(self, outputs: Mapping[str, Array], confidence: float) -> Candidates:
        """See `Head`."""
        rows = read(outputs, self.output, (1, None, 6 + self.extras))[0]
        rows = rows[best_indices(rows[:, 4], confidence)].astype(np.float64)
        boxes = rows[:, :4] * (self.unit * 2)
        boxes = _corners(boxes) if self.is_centred else boxes
        return finite(boxes, rows[:, 4], rows[:, 5], rows[:, 6:])


@dataclass(frozen=True, slots=True)
class PriorsHead:
    """Boxes and a score per class in two outputs; class 0 is the background: ssd."""

    boxes: str
    scores: str
    unit: tuple[float, float]
    overlaps: bool = True

    def candidates(self, outputs: Mapping[str, Array], confidence: float) -> Candidates:
        """See `Head`."""
        boxes = read(outputs, self.boxes, (1, None, 4))[0]
        scores = read(outputs, self.scores, (1, len(boxes), None))[0]
        if scores.shape[1] < 2:
            raise RunFailedError(
                f"the output {self.scores!r} has no class other than the background"
            )
        best = scores[:, 1:].max(axis=1)
        kept = best_indices(best, confidence)
        classes = scores[kept, 1:].argmax(axis=1) + 1
        return finite(boxes[kept] * (self.unit * 2), best[kept], classes)


@dataclass(frozen=True, slots=True)
class ListHead:
    """Boxes, scores and classes in three outputs, of which the network has chosen the best:
    torchvision and tensorflow.

    `count` is an output that says how many rows are valid, or "". With `is_y_first` a box is
    y1, x1, y2, x2.
    """

    boxes: str
    scores: str
    classes: str
    unit: tuple[float, float] = (1.0, 1.0)
    count: str = ""
    is_y_first: bool = False
    overlaps: bool = False

    def candidates(self, outputs: Mapping[str, Array], confidence: float) -> Candidates:
        """See `Head`."""
        found = outputs.get(self.boxes)
        has_batch = found is not None and found.ndim == 3
        boxes = read(outputs, self.boxes, (1, None, 4) if has_batch else (None, 4)).reshape(-1, 4)
        shape = (1, len(boxes)) if has_batch else (len(boxes),)
        scores = read(outputs, self.scores, shape).reshape(-1)
        classes = read(outputs, self.classes, shape).reshape(-1)
        if self.count:
            stated = outputs.get(self.count)
            if stated is None or stated.size != 1 or not np.isfinite(stated).all():
                raise RunFailedError(f"the output {self.count!r} is not one number")
            scores = scores[: max(0, int(stated.reshape(-1)[0]))]
        kept = best_indices(scores, confidence)
        chosen = boxes[kept].astype(np.float64)
        if self.is_y_first:
            chosen = chosen[:, (1, 0, 3, 2)]
        return finite(chosen * (self.unit * 2), scores[kept], classes[kept])


def read(outputs: Mapping[str, Array], name: str, shape: tuple[int | None, ...]) -> Array:
    """Return an output of numbers; raises `RunFailedError` if it is missing or of another shape."""
    array = outputs.get(name)
    if array is None:
        raise RunFailedError(f"the network gave no output {name!r}")
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, found) for found, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits or array.dtype.kind not in "fiu":
        wanted = ", ".join("N" if length is None else str(length) for length in shape)
        raise RunFailedError(
            f"the output {name!r} is {array.dtype} {list(array.shape)}, where numbers [{wanted}] "
            "are needed; check task in cluster.yaml"
        )
    return array


def best_indices(scores: Array, confidence: float) -> Array:
    """Return the indices of scores of at least `confidence`, at most `MOST_CANDIDATES`."""
    kept = np.flatnonzero(scores >= confidence)  # NaN is not
    if len(kept) > MOST_CANDIDATES:
        best = np.argpartition(-scores[kept].astype(np.float64), MOST_CANDIDATES)
        kept = np.sort(kept[best[:MOST_CANDIDATES]])
    return kept


def finite(boxes: Array, scores: Array, classes: Array, extras: Array | None = None) -> Candidates:
    """Return candidates without those that hold NaN, infinity or an impossible class."""
    extras = np.empty((len(scores), 0)) if extras is None else extras
    fit = np.isfinite(scores) & np.isfinite(boxes).all(axis=1) & np.isfinite(extras).all(axis=1)
    fit &= (classes >= 0) & (classes <= LARGEST_CLASS)
    return Candidates(
        np.clip(boxes[fit].astype(np.float64), -FARTHEST, FARTHEST),
        np.clip(scores[fit].astype(np.float64), 0.0, 1.0),
        np.rint(classes[fit]).astype(np.int64),
        extras[fit].astype(np.float64),
    )


def _corners(boxes: Array) -> Array:
    """Return boxes given by centre and size as corners."""
    half = boxes[:, 2:] / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
