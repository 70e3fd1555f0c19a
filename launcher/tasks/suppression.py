"""Chooses the best of boxes that overlap: non-maximum suppression, of upright boxes by OpenCV.

The box of the best score is kept, all others of its class that overlap it too much are dropped, and
so on with the next one.
"""

from __future__ import annotations

import cv2
import numpy as np

from nodes.protocol.payload import Array

FIRST = 1024
"""Boxes of the best scores that are compared first."""

MOST_TURNED = 4096
"""Turned boxes that are compared with each other, the best: half a second if all are of a class."""

_ROWS = 256
"""Turned boxes that are compared with all others at a time, so that memory stays small."""

_TINY = 1e-12
"""The smallest determinant of a covariance, that of a box without an area."""

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

    `boxes` is float64 [n, 4], centre and size (x, y, width, height); `angles` is in radians. As in
    YOLO, overlaps are those of `gaussian_overlaps`, and a box is dropped if any better one of its
    class overlaps it, even one that is dropped itself (Fast NMS, Bolya et al., 2019).
    """
    ordered = np.argsort(-scores, kind="stable")[:MOST_TURNED]
    ordered = ordered[(boxes[ordered, 2:] > 0).all(axis=1)]
    for count in (FIRST, len(ordered)):
        best = ordered[:count]
        kept = best[_kept_turned(boxes[best], angles[best], classes[best], overlap)]
        if len(kept) >= most or len(best) == len(ordered):
            break
    return kept[:most]


def _kept_turned(boxes: Array, angles: Array, classes: Array, overlap: float) -> Array:
    kept = np.zeros(len(boxes), np.bool_)
    for number in np.unique(classes):
        own = np.flatnonzero(classes == number)
        for begin in range(0, len(own), _ROWS):
            better = own[: begin + _ROWS]
            shared = gaussian_overlaps(boxes[better], angles[better], begin)
            kept[better[begin:]] = ~np.tril(shared >= overlap, k=begin - 1).any(axis=1)
    return kept


def gaussian_overlaps(boxes: Array, angles: Array, begin: int = 0) -> Array:
    """Return the overlap of each turned box from `begin` on with all, from 0 to 1 for equal ones.

    This is ProbIoU (Llerena et al., *Gaussian Bounding Boxes and Probabilistic Intersection-over-
    Union*, 2021), with which YOLO learns turned boxes: 1 less the Hellinger distance of two normal
    distributions that have the centres and the covariances of the boxes. `boxes` is float64 [n, 4],
    centre and size; `angles` is in radians. The result is float64 [n - begin, n].
    """
    across, along = (boxes[:, 2:] ** 2 / 12).T
    cos, sin = np.cos(angles), np.sin(angles)
    covariance = np.stack(
        [
            across * cos**2 + along * sin**2,
            across * sin**2 + along * cos**2,
            (across - along) * cos * sin,
        ]
    )
    in_x, in_y, mixed = covariance[:, begin:, None] + covariance[:, None, :]
    determinant = np.maximum(in_x * in_y - mixed**2, _TINY)
    own = np.maximum(covariance[0] * covariance[1] - covariance[2] ** 2, _TINY)
    x, y = (boxes[begin:, None, :2] - boxes[None, :, :2]).transpose(2, 0, 1)
    apart = (in_y * x**2 + in_x * y**2 - 2 * mixed * x * y) / (4 * determinant)
    unlike = np.log(determinant / (4 * np.sqrt(own[begin:, None] * own[None, :]))) / 2
    found: Array = 1 - np.sqrt(1 - np.exp(-np.maximum(apart + unlike, 0)))
    return found
