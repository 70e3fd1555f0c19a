"""Chooses the best of boxes that overlap: non-maximum suppression, by OpenCV.

The box of the best score is kept, all others of its class that overlap it too much are dropped, and
so on with the next one.
"""

from __future__ import annotations

import cv2
import numpy as np

from launcher.tasks.base import Array

MOST_TURNED = 1000
"""Turned boxes that are compared, the best; each comparison intersects two polygons."""

FIRST = 1024
"""Boxes of the best scores that are compared first."""

_ANY = 0.0
"""A threshold that keeps every score above 0; those below the confidence are gone already."""


def best_boxes(boxes: Array, scores: Array, classes: Array, overlap: float, most: int) -> Array:
    """Return the indices of the `most` best boxes that are kept, the best score first.

    `boxes` is float64 [n, 4], corners (x1, y1, x2, y2); `overlap` is the largest intersection over
    union that two kept boxes of one class may have.
    """
    # No box drops one of a better score, so that the best candidates alone decide if they suffice.
    ordered = np.argsort(-scores, kind="stable")
    for count in (max(FIRST, 4 * most), len(ordered)):
        best = ordered[:count]
        kept = best[_kept(boxes[best], scores[best], classes[best], overlap)]
        if len(kept) >= most or len(best) == len(ordered):
            break
    return kept[:most]


def _kept(boxes: Array, scores: Array, classes: Array, overlap: float) -> Array:
    # OpenCV tells classes apart by moving each class's boxes beyond the largest coordinate, which
    # does so only if none is below 0.
    corners = boxes[:, :2] - boxes[:, :2].min(initial=0.0)
    sizes = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    rectangles = np.concatenate([corners, sizes], axis=1)
    kept = cv2.dnn.NMSBoxesBatched(
        rectangles.tolist(), scores.tolist(), classes.tolist(), _ANY, overlap
    )
    return np.sort(np.asarray(kept, np.int64).reshape(-1))


def best_turned(
    boxes: Array, angles: Array, scores: Array, classes: Array, overlap: float, most: int
) -> Array:
    """Return the indices of the `most` best turned boxes that are kept, the best score first.

    `boxes` is float64 [n, 4], centre and size (x, y, width, height); `angles` is in radians.
    """
    best = np.argsort(-scores, kind="stable")[:MOST_TURNED]
    best = best[(boxes[best, 2:] > 0).all(axis=1)]
    kept: list[int] = []
    for number in np.unique(classes[best]):
        own = best[classes[best] == number]
        rectangles = [
            ((x, y), (width, height), angle)
            for (x, y, width, height), angle in zip(
                boxes[own].tolist(), np.degrees(angles[own]).tolist(), strict=True
            )
        ]
        chosen = cv2.dnn.NMSBoxesRotated(rectangles, scores[own].tolist(), _ANY, overlap)
        kept += own[np.asarray(chosen, np.int64).reshape(-1)].tolist()
    indices = np.sort(np.array(kept, np.int64))  # equal scores in the network's order
    ordered: Array = indices[np.argsort(-scores[indices], kind="stable")][:most]
    return ordered
